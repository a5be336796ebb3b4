#pragma once
// Rotary position embedding in the half-split (NeoX) form: element i of a head turns together with
// element i + head_dim/2 by the angle position * inv_freq[i].

#include <cstdint>
#include <span>
#include <vector>

namespace subbyte {

struct RopeScaling {
  enum class Type : uint8_t { kNone, kLinear, kYarn, kTurns };

  Type type = Type::kNone;
  double factor = 1;
  // YaRN, and the ramp over turns (kTurns), where the middle follows the turns themselves.
  double original_max_positions = 0;  // context length of the pretraining
  double beta_fast = 32;              // what makes more turns over it is left alone
  double beta_slow = 1;               // what makes fewer turns is interpolated fully
  bool truncate = true;               // YaRN: round the ends of the ramp to whole dimensions
  double attention_factor = 0;        // YaRN: factor of cos and sin; 0: 0.1 ln(factor) + 1

  bool operator==(const RopeScaling&) const = default;
};

/// Angles of one model. Formulas: Su et al., "RoFormer", 2021, and Peng et al., "YaRN", 2023;
/// `truncate` is false in gpt-oss. The ramp over turns is what Llama 3.1 and later have.
class Rope {
 public:
  Rope(int64_t head_dim, double theta, const RopeScaling& scaling);

  /// cos and sin [positions][head_dim / 2] of the angles of successive positions, times the
  /// attention factor. They depend on the position alone: all heads of all layers share them.
  void angles(std::span<float> cos, std::span<float> sin, int64_t first_position) const;

  std::span<const double> inv_freq() const { return inv_freq_; }
  double attention_factor() const { return attention_factor_; }

 private:
  std::vector<double> inv_freq_;  // [head_dim / 2]
  double attention_factor_ = 1;
};

}  // namespace subbyte
