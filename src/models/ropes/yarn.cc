#include <algorithm>
#include <cmath>
#include <numbers>

#include "models/model_config.h"
#include "models/ropes/rope_kind.h"

namespace subbyte {
namespace {

struct Yarn {
  double factor = 1;
  double original_positions = 0;  // context length of the pretraining
  double beta_fast = 32;          // what makes more turns over it is left alone
  double beta_slow = 1;           // what makes fewer turns is interpolated fully
  bool truncate = true;           // round the ends of the ramp to whole dimensions
};

/// The dimension (of dim/2) that makes `turns` full turns over the original context.
double dimension_of(double turns, double dim, double theta, double positions) {
  return dim * std::log(positions / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
}

std::vector<double> scaled(std::vector<double> inv_freq, double theta, const Yarn& yarn) {
  const double dim = 2 * static_cast<double>(inv_freq.size());
  double low = dimension_of(yarn.beta_fast, dim, theta, yarn.original_positions);
  double high = dimension_of(yarn.beta_slow, dim, theta, yarn.original_positions);
  if (yarn.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;  // a step instead of a ramp
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    inv_freq[i] = inv_freq[i] * (1 - ramp) + inv_freq[i] / yarn.factor * ramp;
  }
  return inv_freq;
}

/// A factor that is null follows from the positions.
Result<double> read_factor(const RopeInput& input, double original_positions) {
  SUBBYTE_TRY(const auto factor, input.section.number("factor", 1, 1e6));
  if (!factor && input.section.find("factor") == nullptr) {
    return input.section.error("json.missing", "factor", "a number");
  }
  const double ratio = static_cast<double>(input.max_positions) / std::max(original_positions, 1.0);
  if (factor.value_or(ratio) >= 1) return factor.value_or(ratio);
  return input.section.error("config.rope", "factor",
                             "a number, as the positions do not become more");
}

/// The factor of cos and sin: as it is given, or the ratio of what mscale and mscale_all_dim make
/// of the factor, or what follows from the factor.
Result<double> read_attention_factor(const json::Object& section, double factor) {
  SUBBYTE_TRY(const auto given, section.number("attention_factor", 1e-6, 1e6));
  SUBBYTE_TRY(const auto mscale, section.number("mscale", 0, 1e6));
  SUBBYTE_TRY(const auto all_dim, section.number("mscale_all_dim", 0, 1e6));
  const auto scale = [&](double by) { return factor <= 1 ? 1.0 : 0.1 * by * std::log(factor) + 1; };
  if (given) return *given;
  if (mscale.value_or(0) == 0 || all_dim.value_or(0) == 0) return scale(1);
  return scale(*mscale) / scale(*all_dim);
}

}  // namespace

Result<ScaledRope> read_yarn_rope(const RopeInput& input) {
  const json::Object& section = input.section;
  Yarn yarn;
  SUBBYTE_TRY(const auto original, original_positions(input));
  yarn.original_positions = original.value_or(static_cast<double>(input.max_positions));
  SUBBYTE_TRY(yarn.factor, read_factor(input, yarn.original_positions));
  SUBBYTE_TRY(const auto fast, section.number("beta_fast", 1e-6, 1e6));
  SUBBYTE_TRY(const auto slow, section.number("beta_slow", 1e-6, 1e6));
  SUBBYTE_TRY(const auto truncate, section.boolean("truncate"));
  SUBBYTE_TRY(const double attention_factor, read_attention_factor(section, yarn.factor));
  yarn.beta_fast = fast.value_or(32);
  yarn.beta_slow = slow.value_or(1);
  yarn.truncate = truncate.value_or(true);
  // Qwen3's way to 131,072 positions: 32,768 times 4, beside max_position_embeddings of 40,960.
  const double positions =
      std::min(yarn.original_positions * yarn.factor, static_cast<double>(kMaxPositions));
  return ScaledRope{Rope(scaled(input.frequencies(), input.theta, yarn), attention_factor),
                    static_cast<int64_t>(positions)};
}

}  // namespace subbyte
