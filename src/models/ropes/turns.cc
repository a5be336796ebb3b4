#include <algorithm>
#include <numbers>

#include "models/model_config.h"
#include "models/ropes/rope_kind.h"

namespace subbyte {

/// Frequencies that make at least `fast` turns over the original positions are left alone, those
/// that make at most `slow` are divided, and in between the turns themselves decide. Of Llama 4
/// both are the same, and there is nothing in between.
Result<ScaledRope> read_turns_rope(const RopeInput& input) {
  const json::Object& section = input.section;
  const auto required = [&](const char* key, double min, double max) -> Result<double> {
    SUBBYTE_TRY(const auto value, section.number(key, min, max));
    if (!value) return section.error("json.missing", key, "a number");
    return *value;
  };
  SUBBYTE_TRY(const double factor, required_rope_factor(section));
  SUBBYTE_TRY(const double slow, required("low_freq_factor", 1e-6, 1e6));
  SUBBYTE_TRY(const double fast, required("high_freq_factor", 1e-6, 1e6));
  SUBBYTE_TRY(const double positions,
              required("original_max_position_embeddings", 1, kMaxPositions));
  if (fast < slow) {
    return section.error("config.rope", "high_freq_factor", "a number not below low_freq_factor");
  }
  std::vector<double> inv_freq = input.frequencies();
  for (double& frequency : inv_freq) {
    const double turns = positions * frequency / (2 * std::numbers::pi);
    const double ramp = fast == slow ? (turns < slow ? 0.0 : 1.0)
                                     : std::clamp((turns - slow) / (fast - slow), 0.0, 1.0);
    frequency = frequency * ramp + frequency / factor * (1 - ramp);
  }
  return ScaledRope{Rope(std::move(inv_freq))};
}

}  // namespace subbyte
