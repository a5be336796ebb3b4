#include <cmath>

#include <fmt/format.h>

#include "models/model_config.h"
#include "models/ropes/rope_kind.h"

namespace subbyte {
namespace {

constexpr double kUsualOriginal = 4096;  // positions of Phi-3

/// The frequencies divided by a factor each.
Result<std::vector<double>> divided(const RopeInput& input, const char* key) {
  std::vector<double> inv_freq = input.frequencies();
  const json::Value* const factors = input.section.find(key);
  const auto error = [&] {
    return input.section.error("config.rope", key,
                               fmt::format("{} numbers above 0", inv_freq.size()));
  };
  if (factors == nullptr || !factors->is_array() || factors->size() != inv_freq.size()) {
    return error();
  }
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    const json::Value& factor = (*factors)[i];
    if (!factor.is_number() || !(factor.get<double>() >= 1e-6) || factor.get<double>() > 1e9) {
      return error();
    }
    inv_freq[i] /= factor.get<double>();
  }
  return inv_freq;
}

}  // namespace

Result<ScaledRope> read_long_rope(const RopeInput& input) {
  SUBBYTE_TRY(const auto said, original_positions(input));
  const double original = said.value_or(kUsualOriginal);
  SUBBYTE_TRY(const auto factor, input.section.number("factor", 1e-6, 1e6));
  SUBBYTE_TRY(const auto attention, input.section.number("attention_factor", 1e-6, 1e6));
  const double ratio = factor.value_or(static_cast<double>(input.max_positions) / original);
  const bool is_scaled = ratio > 1 && original > 1;
  const double root = is_scaled ? std::sqrt(1 + std::log(ratio) / std::log(original)) : 1;
  SUBBYTE_TRY(auto few, divided(input, "short_factor"));
  SUBBYTE_TRY(auto many, divided(input, "long_factor"));
  return ScaledRope{Rope(std::move(few), attention.value_or(root), std::move(many),
                         static_cast<int64_t>(original))};
}

}  // namespace subbyte
