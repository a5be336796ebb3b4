#include "kernels/cuda/short_conv/short_conv.h"

#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/runs.cuh"
#include "kernels/cuda/common/state_parts.cuh"

namespace subbyte::cuda {
namespace {

/// u of some channels of a token of a part; a negative token is of earlier steps.
template <int kCount>
__device__ __forceinline__ void load_input(const ShortConvCall& a, const StatePart& part,
                                           int64_t token, int64_t channel, float (&u)[kCount]) {
  if (token >= 0) {
    const int64_t at = (part.first_token + token) * 3 * a.channels + channel;
    float x[kCount];
    load(a.element, a.bcx, at, u);
    load(a.element, a.bcx, at + 2 * a.channels, x);
#pragma unroll
    for (int i = 0; i < kCount; ++i) u[i] = u[i] * x[i];
  } else if (part.from >= 0) {
    load(Element::kF32, a.states,
         part.from * a.state_stride + (token + a.taps - 1) * a.channels + channel, u);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) u[i] = 0;
  }
}

/// A thread for kCount channels of a row. That of the last token of a part leaves what the next
/// step reads, in another state than the one that is read here.
template <int kCount>
__global__ void __launch_bounds__(256) short_conv(const __grid_constant__ ShortConvCall a) {
  begin_operation();
  const int64_t stride = int64_t{gridDim.x} * blockDim.x * kCount;
  for (int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kCount;
       i < a.rows * a.channels; i += stride) {
    const int64_t row = i / a.channels;
    const int64_t channel = i % a.channels;
    const StatePart part = part_of(a.parts, a.num_parts, row);
    const int64_t token = row - part.first_token;
    const bool is_last = token == part.num_tokens - 1;
    float sum[kCount] = {};
    if (a.bias != nullptr) load(Element::kF32, a.bias, channel, sum);
    for (int64_t tap = 0; tap < a.taps; ++tap) {
      float u[kCount];
      float filter[kCount];
      load_input(a, part, token - (a.taps - 1) + tap, channel, u);
      load(Element::kF32, a.filters, tap * a.channels + channel, filter);
#pragma unroll
      for (int j = 0; j < kCount; ++j) sum[j] = fmaf(filter[j], u[j], sum[j]);
      if (is_last && tap > 0) {
        store(Element::kF32, a.states, part.to * a.state_stride + (tap - 1) * a.channels + channel,
              u);
      }
    }
    float c[kCount];
    load(a.element, a.bcx, row * 3 * a.channels + a.channels + channel, c);
#pragma unroll
    for (int j = 0; j < kCount; ++j) c[j] = c[j] * sum[j];
    store(a.element, a.y, i, c);
  }
}

}  // namespace

void run_short_conv(const ShortConvCall& call, Stream stream) {
  const int64_t numbers = call.rows * call.channels;
  if (call.channels % kWide == 0 && call.state_stride % kWide == 0) {
    launch(short_conv<kWide>, grid_for(numbers / kWide), stream, call);
  } else {
    launch(short_conv<1>, grid_for(numbers), stream, call);
  }
}

}  // namespace subbyte::cuda
