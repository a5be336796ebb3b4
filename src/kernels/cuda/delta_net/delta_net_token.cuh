#pragma once
// What the kernels of single tokens of gated delta nets share.

#include "kernels/cuda/delta_net/delta_net.cuh"

namespace subbyte::cuda {

/// Few single tokens of heads of 128 numbers and four taps, as all published models have them.
bool serves_usual_tokens(const DeltaNetCall& call);
void run_usual_tokens(const DeltaNetCall& call, Stream stream);

/// A token in shared memory: queries, keys and values, convolved but not yet normalised, and what
/// the result is multiplied with.
template <int kKeys>
struct TokenOfHead {
  float q[kKeyLanes * kKeys];
  float k[kKeyLanes * kKeys];
  float v[kMaxDeltaNetHead];
  float gates[kMaxDeltaNetHead];
};

/// A warp: as MixedHead::normalise() has it.
__device__ inline void normalise_key(const DeltaNetCall& a, float* x, float length) {
  float squares = 0;
#pragma unroll
  for (int j = 0; j < kOfLane; ++j) {
    const int i = index_of_lane(j);
    if (i < a.sizes.key_size) squares = fmaf(x[i], x[i], squares);
  }
  const float factor = unit_factor(sum_of_warp(squares), a.key_eps, length);
#pragma unroll
  for (int j = 0; j < kOfLane; ++j) {
    const int i = index_of_lane(j);
    if (i < a.sizes.key_size) x[i] = __fmul_rn(x[i], factor);
  }
}

}  // namespace subbyte::cuda
