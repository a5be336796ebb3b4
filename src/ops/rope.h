#pragma once
// Rotary position embedding: two elements of a head turn together by the angle
// position * inv_freq[i].

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace subbyte {

/// Elements that turn together by angle i: i and i + dim / 2, as GPT-NeoX has them, or 2 i and
/// 2 i + 1, as GPT-J has them.
enum class RopePairs : uint8_t { kHalves, kNeighbours };

/// theta^(-2 i / dim), [dim / 2]: the frequencies of Su et al., "RoFormer", 2021.
std::vector<double> rope_frequencies(int64_t dim, double theta);

/// Angles of one model. What its config says of frequencies is read in models/ropes/.
class Rope {
 public:
  Rope() = default;
  explicit Rope(std::vector<double> inv_freq, double attention_factor = 1)
      : inv_freq_(std::move(inv_freq)), attention_factor_(attention_factor) {}
  Rope(int64_t dim, double theta) : Rope(rope_frequencies(dim, theta)) {}
  /// With other frequencies, as many, for all positions of texts that have more than `after`.
  Rope(std::vector<double> inv_freq, double attention_factor, std::vector<double> long_inv_freq,
       int64_t after)
      : inv_freq_(std::move(inv_freq)),
        attention_factor_(attention_factor),
        long_inv_freq_(std::move(long_inv_freq)),
        long_after_(after) {}

  /// cos and sin [positions][dim / 2] of the angles of successive positions, times the attention
  /// factor. They depend on the position and on whether the text is a long one: all heads of all
  /// layers share them.
  void angles(std::span<float> cos, std::span<float> sin, int64_t first_position,
              bool is_long = false) const;

  /// Numbers of a head that turn.
  int64_t dim() const { return 2 * std::ssize(inv_freq_); }
  std::span<const double> inv_freq() const { return inv_freq_; }
  double attention_factor() const { return attention_factor_; }
  /// Those of long texts, and the positions that these have more than; 0: there are none.
  std::span<const double> long_inv_freq() const { return long_inv_freq_; }
  int64_t long_after() const { return long_after_; }

  bool operator==(const Rope&) const = default;

 private:
  std::vector<double> inv_freq_;  // [dim / 2]
  double attention_factor_ = 1;
  std::vector<double> long_inv_freq_;  // [dim / 2]
  int64_t long_after_ = 0;
};

}  // namespace subbyte
