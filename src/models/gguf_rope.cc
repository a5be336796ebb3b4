#include "models/gguf_rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>
#include <utility>

#include "models/gguf_config.h"
#include "models/rope_config.h"

namespace subbyte {
namespace {

/// Factors that divide frequencies, as the files of Llama 3.1 and later have them: those that
/// config.json says by four numbers, of which one is the same in all, and one has two values.
constexpr double kFewTurns = 1;
constexpr double kManyTurns = 4;  // or as few, of Llama 4: no factor is between the others then

/// A factor of a frequency that makes so many turns within the original positions.
double factor_of(double turns, double most, double many) {
  if (many == kFewTurns) return turns < many ? most : 1;
  const double share = std::clamp((turns - kFewTurns) / (many - kFewTurns), 0.0, 1.0);
  return 1 / ((1 - share) / most + share);
}

/// The original positions, which a factor between the smallest and the largest says; where there is
/// none, those of Llama 3.
double original_positions_of(std::span<const float> factors, std::span<const double> inv_freq,
                             double most) {
  constexpr double kUsual = 8192;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    if (factors[i] <= 1 || factors[i] >= most) continue;
    const double share = (1 / double{factors[i]} - 1 / most) / (1 - 1 / most);
    const double turns = kFewTurns + share * (kManyTurns - kFewTurns);
    return std::round(turns * 2 * std::numbers::pi / inv_freq[i]);
  }
  return kUsual;
}

Result<json::Value> turns_of(const GgufFile& file, std::span<const float> factors, double theta,
                             std::string_view type) {
  const std::vector<double> inv_freq =
      rope_frequencies(2 * static_cast<int64_t>(factors.size()), theta);
  const double most = *std::ranges::max_element(factors);
  const double original = original_positions_of(factors, inv_freq, most);
  const auto first_other = [&](double many) {
    std::size_t i = 0;
    for (; i < factors.size(); ++i) {
      const double turns = original * inv_freq[i] / (2 * std::numbers::pi);
      const double expected = factor_of(turns, most, many);
      if (std::abs(factors[i] - expected) > 1e-4 * expected) break;
    }
    return i;
  };
  const std::size_t other = first_other(kManyTurns);
  const bool has_steps = other < factors.size() && first_other(kFewTurns) == factors.size();
  if (other < factors.size() && !has_steps) {
    return Error{"gguf.value",
                 fmt::format("{}: tensor rope_freqs.weight: expected factors that turns give, "
                             "by {} within {} positions, found {} at {}",
                             file.path().native(), most, original, factors[other], other)};
  }
  return json::Value{{"rope_type", std::string(type)},
                     {"factor", most},
                     {"low_freq_factor", kFewTurns},
                     {"high_freq_factor", has_steps ? kFewTurns : kManyTurns},
                     {"original_max_position_embeddings", static_cast<uint64_t>(original)}};
}

}  // namespace

Status add_turns_rope(const GgufModel& model, std::string_view type, json::Value& config) {
  SUBBYTE_TRY(const auto factors, gguf_floats(model, "rope_freqs.weight"));
  if (factors.empty()) return {};
  if (config.contains("rope_scaling")) {
    return Error{"gguf.tensor",
                 model.keys().path().native() +
                     ": tensor rope_freqs.weight: expected none beside rope.scaling.type"};
  }
  SUBBYTE_TRY(const auto theta, gguf_number(model.keys(), "rope.freq_base"));
  SUBBYTE_TRY(config["rope_scaling"], turns_of(model.keys(), factors, theta.value_or(10000), type));
  return {};
}

Result<double> turning_part_of(const GgufModel& model) {
  constexpr float kStill = 1e29F;
  SUBBYTE_TRY(const auto factors, gguf_floats(model, "rope_freqs.weight"));
  if (factors.empty()) return 1.0;
  const auto turns = std::ranges::find_if(factors, [](float x) { return x != 1; });
  if (std::all_of(turns, factors.end(), [](float x) { return x >= kStill; })) {
    return static_cast<double>(turns - factors.begin()) / static_cast<double>(factors.size());
  }
  return Error{"gguf.value", model.keys().path().native() +
                                 ": tensor rope_freqs.weight: expected ones, then numbers from "
                                 "1e29 on"};
}

Status add_growing_rope(const GgufFile& file, json::Value& config) {
  SUBBYTE_TRY(const auto beta, gguf_number(file, "attention.temperature_scale"));
  json::Value section = config["rope_scaling"];
  config.erase("rope_scaling");
  section["rope_theta"] = config["rope_theta"];
  section["llama_4_scaling_beta"] = beta.value_or(0);
  config["rope_parameters"] = std::move(section);
  return {};
}

std::optional<double> base_of(const Rope& rope) {
  if (rope.dim() < 4) return std::nullopt;
  return std::pow(rope.inv_freq()[1], -0.5 * static_cast<double>(rope.dim()));
}

}  // namespace subbyte
