#include "models/ropes/rope_kind.h"

namespace subbyte {

Result<ScaledRope> read_plain_rope(const RopeInput& input) {
  return ScaledRope{Rope(input.frequencies())};
}

Result<ScaledRope> read_linear_rope(const RopeInput& input) {
  SUBBYTE_TRY(const double factor, required_rope_factor(input.section));
  std::vector<double> inv_freq = input.frequencies();
  for (double& frequency : inv_freq) frequency /= factor;
  return ScaledRope{Rope(std::move(inv_freq))};
}

Result<ScaledRope> read_proportional_rope(const RopeInput& input) {
  SUBBYTE_TRY(const auto factor, input.section.number("factor", 1, 1e6));
  std::vector<double> inv_freq = rope_frequencies(input.head_dim, input.theta);
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    const bool turns = static_cast<int64_t>(i) < input.dim / 2;
    inv_freq[i] = turns ? inv_freq[i] / factor.value_or(1) : 0;
  }
  return ScaledRope{Rope(std::move(inv_freq))};
}

}  // namespace subbyte
