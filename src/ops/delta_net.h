#pragma once
// One block of a gated delta net (Yang, Kautz and Hatamizadeh, "Gated Delta Networks",
// 2024): a layer that keeps a matrix for each value head instead of keys and values of positions.
//
//   q, k, v     = silu(convolution of so many taps over the tokens, one filter for a channel)
//   q, k        = q / |q| / sqrt(key_size), k / |k|, where |x|^2 = sum(x^2) + 1e-6
//   decay, beta = exp(rate softplus(a + dt_bias)), sigmoid(b)
//   S           = decay S                         [key_size][value_size], from 0
//   S           = S + k (beta (v - S^T k))^T
//   y           = norm(S^T q) * silu(z)           for each value head
//
// The state of a layer is what the convolution reads again, and S of each value head:
//
//   [taps - 1][channels], the earliest token first    [value_heads][key_size][value_size]

#include <array>
#include <cstdint>
#include <string>

#include "ops/cache_layout.h"
#include "ops/operand.h"

namespace subbyte {

/// Epsilon of the norms of queries and keys, which is added to their sum of squares.
inline constexpr float kDeltaNetEps = 1e-6f;
inline constexpr int64_t kMaxDeltaNetTaps = 16;

struct DeltaNetShape {
  int64_t key_heads = 0;    // of queries and keys
  int64_t value_heads = 0;  // value head h reads key head h / (value_heads / key_heads)
  int64_t key_size = 0;     // of a head
  int64_t value_size = 0;
  int64_t taps = 0;  // of the convolution
  float eps = 1e-6f;
  /// Projections lie key head by key head: its query, key, values and gates z; b and a. Else all
  /// queries, all keys, all values, all z; all b, all a.
  bool by_key_head = false;
  /// The results of value heads lie in tiles: first those of the first value head of each key head.
  bool gives_tiles = false;

  constexpr int64_t values_per_key() const { return value_heads / key_heads; }
  /// The place of what a value head gives among those of all.
  constexpr int64_t place_of(int64_t value_head) const {
    if (!gives_tiles) return value_head;
    return value_head % values_per_key() * key_heads + value_head / values_per_key();
  }
  constexpr int64_t key_width() const { return key_heads * key_size; }
  constexpr int64_t value_width() const { return value_heads * value_size; }
  /// Channels of the convolution: all queries, all keys, all values.
  constexpr int64_t channels() const { return 2 * key_width() + value_width(); }
  /// Numbers of the state of a layer.
  constexpr int64_t state_size() const {
    return (taps - 1) * channels() + value_heads * key_size * value_size;
  }

  bool operator==(const DeltaNetShape&) const = default;
};

/// The column of a row of projections where the numbers of key head i begin, or those of its value
/// heads, which follow each other: first + i * stride.
struct HeadColumns {
  int64_t first = 0;
  int64_t stride = 0;

  int64_t of(int64_t key_head) const { return first + key_head * stride; }
};

struct DeltaNetColumns {
  HeadColumns q, k, v, z;  // of the projection qkvz
  HeadColumns b, a;        // of the projection ba
};

constexpr DeltaNetColumns delta_net_columns(const DeltaNetShape& shape) {
  const int64_t key = shape.key_size;
  const int64_t value = shape.values_per_key() * shape.value_size;
  const int64_t gate = shape.values_per_key();
  if (shape.by_key_head) {
    const int64_t head = 2 * key + 2 * value;
    return {{0, head},     {key, head},     {2 * key, head}, {2 * key + value, head},
            {0, 2 * gate}, {gate, 2 * gate}};
  }
  const int64_t keys = shape.key_width();
  const int64_t values = shape.value_width();
  return {{0, key},          {keys, key},
          {2 * keys, value}, {2 * keys + values, value},
          {0, gate},         {shape.value_heads, gate}};
}

/// Weights of a gated delta net.
struct DeltaNetWeights {
  Vector filters;         // [taps][channels], the last tap is that of the token itself
  Vector rates, dt_bias;  // [value_heads]
  Vector norm;            // [value_size]
};

/// y [value_heads * value_size] = a gated delta net of the projections of x.
struct DeltaNetOp {
  ValueId y = kNoValue;
  ValueId qkvz = kNoValue;
  ValueId ba = kNoValue;
  DeltaNetShape shape = {};
  DeltaNetWeights weights = {};
  CacheSlot cache = {};

  CacheGroup kept() const { return {.state_size = shape.state_size()}; }
  std::string text() const {
    return "gated delta net, " + std::to_string(shape.value_heads) + " heads";
  }
  /// Few rows, those of b and a, decide what is forgotten. No file has "in_proj": the rows of
  /// in_proj_qkvz are others.
  auto inputs() {
    const int64_t qkv = shape.channels();
    const int64_t z = shape.value_width();
    const int64_t gates = shape.value_heads;
    if (shape.by_key_head) {
      return std::array{MixerInput{"in_proj_qkvz", qkv + z, &qkvz},
                        MixerInput{"in_proj_ba", 2 * gates, &ba, false}};
    }
    return std::array{
        MixerInput{"in_proj", qkv + z, &qkvz, true, {{"in_proj_qkv", qkv}, {"in_proj_z", z}}},
        MixerInput{
            "in_proj_gates", 2 * gates, &ba, false, {{"in_proj_b", gates}, {"in_proj_a", gates}}}};
  }
  static auto numbers(auto& op) {
    const DeltaNetShape& s = op.shape;
    auto& w = op.weights;
    return std::array{
        MixerNumbers{"conv1d", TensorRole::kFilters, &w.filters, s.channels(), s.taps},
        MixerNumbers{"A_log", TensorRole::kRates, &w.rates, s.value_heads},
        MixerNumbers{"dt_bias", TensorRole::kVector, &w.dt_bias, s.value_heads},
        MixerNumbers{"norm", TensorRole::kNorm, &w.norm, s.value_size}};
  }
  auto sizes() const {
    return std::array{MixerSize{"ssm.conv_kernel", shape.taps},
                      MixerSize{"ssm.state_size", shape.key_size},
                      MixerSize{"ssm.group_count", shape.key_heads},
                      MixerSize{"ssm.time_step_rank", shape.value_heads},
                      MixerSize{"ssm.inner_size", shape.value_width()}};
  }
  Operands operands() const {
    Operands all = {reads(qkvz, shape.channels() + shape.value_width(),
                          "columns of queries, keys, values and gates"),
                    reads(ba, 2 * shape.value_heads, "columns of b and a"),
                    writes(y, shape.value_width())};
    add_numbers(all, *this);
    return all;
  }
};

}  // namespace subbyte
