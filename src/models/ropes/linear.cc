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

}  // namespace subbyte
