#pragma once
// One block of Mamba 2 (Dao and Gu, "Transformers are SSMs", 2024): a layer that keeps
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
#include <array>
#include <cstdint>
#include <limits>
#include <string>

#include "ops/cache_layout.h"
#include "ops/operand.h"

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

/// y [width] = a block of Mamba 2 of its projections.
struct MambaOp {
  struct Weights {
    Vector filters = {};  // [taps][channels], the last tap is that of the token itself
    Vector bias = {};     // [channels]
    Vector rates = {}, dt_bias = {}, d = {};  // [heads]
    Vector norm = {};                         // [width]
  };

  ValueId y = kNoValue;
  ValueId scratch = kNoValue;
  ValueId projections = kNoValue;
  MambaShape shape = {};
  bool has_bias = false;  // of the filters
  bool has_norm = true;
  Weights weights = {};
  CacheSlot cache = {};

  CacheGroup kept() const { return {.state_size = shape.kept_size()}; }
  std::string text() const { return "mamba, " + std::to_string(shape.heads) + " heads"; }
  auto inputs() { return std::array{MixerInput{"in_proj", shape.row_size(), &projections}}; }
  static auto numbers(auto& op) {
    const MambaShape& s = op.shape;
    auto& w = op.weights;
    return std::array{
        MixerNumbers{"conv1d", TensorRole::kFilters, &w.filters, s.channels(), s.taps},
        MixerNumbers{"conv1d.bias", TensorRole::kVector, &w.bias, op.has_bias ? s.channels() : 0},
        MixerNumbers{"A_log", TensorRole::kRates, &w.rates, s.heads},
        MixerNumbers{"dt_bias", TensorRole::kVector, &w.dt_bias, s.heads},
        MixerNumbers{"D", TensorRole::kVector, &w.d, s.heads},
        MixerNumbers{"norm", TensorRole::kNorm, &w.norm, op.has_norm ? s.width() : 0}};
  }
  auto sizes() const {
    return std::array{
        MixerSize{"ssm.conv_kernel", shape.taps}, MixerSize{"ssm.state_size", shape.state_size},
        MixerSize{"ssm.group_count", shape.groups}, MixerSize{"ssm.time_step_rank", shape.heads},
        MixerSize{"ssm.inner_size", shape.width()}};
  }
  Operands operands() const {
    const auto rest = [](int64_t number, int64_t by) { return by > 0 ? number % by : number; };
    Operands all = {reads(projections, shape.row_size(), "columns of z, x, B, C and dt"),
                    holds_some("heads", shape.heads),
                    holds("heads, by the groups a rest of", 0, rest(shape.heads, shape.groups)),
                    holds("columns, by the groups of the norm a rest of", 0,
                          rest(shape.width(), shape.norm_groups)),
                    holds_some("numbers of a head", shape.head_size),
                    holds_at_most("numbers of a head", kMaxMambaSize, shape.head_size),
                    holds_some("numbers of a state", shape.state_size),
                    holds_at_most("numbers of a state", kMaxMambaSize, shape.state_size),
                    holds_some("taps", shape.taps),
                    holds_at_most("taps", kMaxMambaTaps, shape.taps),
                    writes(y, shape.width()),
                    writes(scratch, shape.scratch_size(), ValueType::kFloat)};
    add_numbers(all, *this);
    return all;
  }
};

}  // namespace subbyte
