// A CTA for a row; eight neighbouring lanes have a group, 16 inputs each.

#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/ptx.cuh"
#include "kernels/cuda/quantize/quantize_groups.h"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kPiece = 16;  // inputs of a lane
constexpr int kLanesOfGroup = 8;
constexpr float kLargest = 448;  // of E4M3
constexpr uint32_t kNaN = 0x7fc00000;

__global__ void __launch_bounds__(kThreads)
    quantize_groups(const __grid_constant__ QuantizeGroupsCall a) {
  begin_operation();
  const int64_t row = blockIdx.x;
  const auto pieces = static_cast<int>(a.cols / kPiece);
  const int last = (pieces + kLanes - 1) / kLanes * kLanes;  // all lanes of a warp take part
  for (int i = static_cast<int>(threadIdx.x); i < last; i += kThreads) {
    const bool is_there = i < pieces;
    float values[kPiece] = {};
    if (is_there) {
      const int64_t from = row * a.x_stride + i * kPiece;
      load_8(a.element, a.x, from, reinterpret_cast<float(&)[8]>(values));
      load_8(a.element, a.x, from + 8, reinterpret_cast<float(&)[8]>(values[8]));
    }
    uint32_t largest = 0;  // as its bits, of which those of NaN are the largest
#pragma unroll
    for (const float value : values) largest = max(largest, __float_as_uint(value) & 0x7fffffff);
#pragma unroll
    for (int distance = 1; distance < kLanesOfGroup; distance *= 2) {
      largest = max(largest, __shfl_xor_sync(~0u, largest, distance));
    }
    if (!is_there) continue;
    const bool is_finite = largest < 0x7f800000;
    const float amax = fmaxf(__uint_as_float(largest), 0x1p-100f);
    const float inverse = is_finite ? kLargest / amax : 0;
    uint32_t words[4];  // only Hopper reads them (w8a8.h)
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      words[t] = e4m3_x2(values[2 * t] * inverse, values[2 * t + 8] * inverse) |
                 e4m3_x2(values[2 * t + 1] * inverse, values[2 * t + 9] * inverse) << 16;
    }
    reinterpret_cast<uint4*>(a.codes)[row * pieces + i] = {words[0], words[1], words[2], words[3]};
    if (i % kLanesOfGroup == 0) {
      a.factors[i / kLanesOfGroup * a.stride + row] =
          is_finite ? amax * (1 / kLargest) : __uint_as_float(kNaN);
    }
  }
}

}  // namespace

void run_quantize_groups(const QuantizeGroupsCall& call, Stream stream) {
  launch(quantize_groups, {dim3(static_cast<unsigned>(call.count)), kThreads}, stream, call);
}

}  // namespace subbyte::cuda
