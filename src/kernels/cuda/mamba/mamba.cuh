#pragma once
// What the kernels of Mamba 2 share: where numbers lie, the convolution of a channel, the step of a
// head.

#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/common/state_parts.cuh"
#include "kernels/cuda/mamba/mamba.h"

namespace subbyte::cuda {

__host__ __device__ __forceinline__ int width_of(const MambaSizes& s) {
  return s.heads * s.head_size;
}
__host__ __device__ __forceinline__ int channels_of(const MambaSizes& s) {
  return width_of(s) + 2 * s.groups * s.state_size;
}
__host__ __device__ __forceinline__ int row_size(const MambaSizes& s) {
  return width_of(s) + channels_of(s) + s.heads;
}
__device__ __forceinline__ int group_of(const MambaSizes& s, int head) {
  return head / (s.heads / s.groups);
}

/// The matrix of a head in a state, or where it goes to.
__device__ __forceinline__ int64_t matrix_at(const MambaCall& a, int32_t state, int head) {
  const MambaSizes& s = a.sizes;
  return state * a.state_stride + int64_t{s.taps - 1} * channels_of(s) +
         int64_t{head} * s.state_size * s.head_size;
}

/// What the convolution reads of a channel of a token; a negative one is of earlier steps.
__device__ __forceinline__ float input_of(const MambaCall& a, const StatePart& part, int token,
                                          int channel) {
  const MambaSizes& s = a.sizes;
  if (token >= 0) {
    return load_element(a.element, a.projections,
                        (int64_t{part.first_token} + token) * row_size(s) + width_of(s) + channel);
  }
  if (part.from < 0) return 0;
  return a
      .states[part.from * a.state_stride + int64_t{token + s.taps - 1} * channels_of(s) + channel];
}

/// A channel of a token of a part, convolved. The last token of a part with `keeps` leaves what the
/// next step reads of the channel.
__device__ __forceinline__ float convolve(const MambaCall& a, const StatePart& part, int token,
                                          int channel, bool keeps) {
  const MambaSizes& s = a.sizes;
  const int channels = channels_of(s);
  const bool is_last = keeps && token == part.num_tokens - 1;
  float sum = a.bias == nullptr ? 0 : a.bias[channel];
  for (int tap = 0; tap < s.taps; ++tap) {
    const float x = input_of(a, part, token - (s.taps - 1) + tap, channel);
    sum = fmaf(a.filters[int64_t{tap} * channels + channel], x, sum);
    if (is_last && tap > 0) {
      a.states[part.to * a.state_stride + int64_t{tap - 1} * channels + channel] = x;
    }
  }
  return silu(sum);
}

/// How far a head goes in a row.
__device__ __forceinline__ float step_of(const MambaCall& a, int64_t row, int head) {
  const MambaSizes& s = a.sizes;
  const float x =
      __fadd_rn(load_element(a.element, a.projections, (row + 1) * row_size(s) - s.heads + head),
                a.dt_bias[head]);
  const float softplus = x > 20 ? x : log1pf(expf(x));
  // NaN stays one.
  return softplus < a.least_step     ? a.least_step
         : softplus > a.largest_step ? a.largest_step
                                     : softplus;
}

/// The logarithm of what a head keeps of its state after such a step.
__device__ __forceinline__ float log_decay(const MambaCall& a, int head, float step) {
  return __fmul_rn(a.rates[head], step);
}

}  // namespace subbyte::cuda
