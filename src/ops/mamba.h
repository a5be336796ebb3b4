#pragma once
// The shape of one block of Mamba 2 (Dao and Gu, "Transformers are SSMs", 2024): a layer that keeps
// a matrix for each head instead of keys and values of positions.
//
//   x, B, C = silu(bias + convolution of so many taps over the tokens, a filter for a channel)
//   dt      = softplus(dt + dt_bias), held within the limits of steps
//   S       = exp(rate dt) S + B (dt x)^T        [state_size][head_size], from 0
//   y       = S^T C + d x                               for each head
//   y       = norm(y * silu(z)), or norm(y) * silu(z), of the heads of a norm group together
//
// A row of projections has z, x, B, C and dt. The state of a layer is what the convolution reads
// again, and S of each head:
//
//   [taps - 1][channels], the earliest token first      [heads][state_size][head_size]

#include <algorithm>
#include <cstdint>
#include <limits>

namespace subbyte {

struct MambaShape {
  int64_t heads = 0;
  int64_t head_size = 0;
  int64_t groups = 0;      // of B and C: head h reads group h / (heads / groups)
  int64_t state_size = 0;  // numbers of B, and of C, of a group
  int64_t taps = 0;        // of the convolution
  int64_t norm_groups = 1;
  bool norm_before_gate = false;
  float eps = 1e-5f;
  float least_step = 0;
  float largest_step = std::numeric_limits<float>::infinity();

  constexpr int64_t heads_per_group() const { return heads / groups; }
  constexpr int64_t width() const { return heads * head_size; }
  /// Channels of the convolution: all of x, of B and of C.
  constexpr int64_t channels() const { return width() + 2 * groups * state_size; }
  constexpr int64_t row_size() const { return width() + channels() + heads; }
  /// Numbers that machines work in for each token.
  constexpr int64_t scratch_size() const {
    const int64_t in_chunks = (channels() + 1) / 2 + 38 * heads;  // mamba_chunks.cu
    return std::max(channels() + 2 * heads, in_chunks);
  }
  constexpr int64_t kept_size() const {
    return (taps - 1) * channels() + heads * state_size * head_size;
  }

  bool operator==(const MambaShape&) const = default;
};

inline constexpr int64_t kMaxMambaTaps = 16;
/// Numbers of a head, and of B of a group, at most.
inline constexpr int64_t kMaxMambaSize = 256;

}  // namespace subbyte
