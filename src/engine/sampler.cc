#include "engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/model_file.h"
#include "json/strict_json.h"
#include "models/model_config.h"

namespace subbyte {
namespace {

Status check_range(std::string_view name, double value, double min, double max) {
  if (value >= min && value <= max) return {};
  return Error{"sampling.range",
               fmt::format("{} must be between {} and {}, found {}", name, min, max, value)};
}

}  // namespace

Status check_sampling(const SamplingOptions& options) {
  SUBBYTE_CHECK(check_range("temperature", options.temperature, 0, 100));
  SUBBYTE_CHECK(check_range("top-k", static_cast<double>(options.top_k), 0, 1e9));
  SUBBYTE_CHECK(check_range("top-p", options.top_p, 1e-6, 1));
  SUBBYTE_CHECK(check_range("min-p", options.min_p, 0, 1));
  return check_range("repetition penalty", options.repetition_penalty, 0.01, 100);
}

Result<SamplingOptions> read_sampling_defaults(const std::filesystem::path& directory,
                                               const SamplingOptions& defaults) {
  SamplingOptions options = defaults;
  const std::filesystem::path path = directory / "generation_config.json";
  if (!is_there(path)) return options;
  SUBBYTE_TRY(const json::Value value, json::parse_file(path.string(), kMaxConfigBytes));
  SUBBYTE_TRY(const json::Object config, json::Object::of(value, path.string()));
  SUBBYTE_TRY(const auto temperature, config.number("temperature", 0, 100));
  SUBBYTE_TRY(const auto top_k, config.integer("top_k", -1, 1'000'000'000));
  SUBBYTE_TRY(const auto top_p, config.number("top_p", 1e-6, 1));
  SUBBYTE_TRY(const auto min_p, config.number("min_p", 0, 1));
  SUBBYTE_TRY(const auto penalty, config.number("repetition_penalty", 0.01, 100));
  SUBBYTE_TRY(const auto do_sample, config.boolean("do_sample"));
  options.temperature = temperature.value_or(options.temperature);
  if (!do_sample.value_or(true)) options.temperature = 0;
  options.top_k = std::max<int64_t>(top_k.value_or(options.top_k), 0);  // -1 means all, too
  options.top_p = top_p.value_or(options.top_p);
  options.min_p = min_p.value_or(options.min_p);
  options.repetition_penalty = penalty.value_or(options.repetition_penalty);
  return options;
}

TokenChoice Sampler::choice(std::span<const int32_t> history) const {
  return {.temperature = options_.temperature,
          .top_k = options_.top_k,
          .top_p = options_.top_p,
          .min_p = options_.min_p,
          .repetition_penalty = options_.repetition_penalty,
          .uniform = uniform_,
          .history = history};
}

TokenChoice Sampler::choice_after() const {
  TokenChoice after = choice({});
  after.uniform = Random(random_).uniform();
  return after;
}

Result<int32_t> Sampler::sample(std::span<const float> logits, std::span<const int32_t> history) {
  Result<int32_t> token = chooser_.choose(logits, choice(history));
  if (token.ok()) advance();
  return token;
}

}  // namespace subbyte
