#include "engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

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
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return options;
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

/// Divides positive logits of tokens that occurred and multiplies negative ones.
void Sampler::apply_penalty(std::span<const float> logits, std::span<const int32_t> history) {
  candidates_.resize(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    candidates_[i] = {static_cast<int32_t>(i), logits[i]};
  }
  if (options_.repetition_penalty == 1.0) return;
  for (const int32_t token : history) {
    if (token < 0 || static_cast<std::size_t>(token) >= logits.size()) continue;
    const double logit = logits[token];
    candidates_[token].value =
        logit > 0 ? logit / options_.repetition_penalty : logit * options_.repetition_penalty;
  }
}

void Sampler::keep_top_k() {
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.value != b.value ? a.value > b.value : a.token < b.token;
  };
  const auto count = static_cast<int64_t>(candidates_.size());
  const int64_t kept = options_.top_k == 0 ? count : std::min(options_.top_k, count);
  std::partial_sort(candidates_.begin(), candidates_.begin() + kept, candidates_.end(), better);
  candidates_.resize(kept);
}

/// Softmax over the candidates, best first, then the smallest set that reaches top_p, without
/// those below min_p of the best. At least one stays.
void Sampler::keep_probable() {
  const double best = candidates_.front().value;
  double sum = 0;
  for (Candidate& candidate : candidates_) {
    candidate.value = std::exp((candidate.value - best) / options_.temperature);
    sum += candidate.value;
  }
  double mass = 0;
  std::size_t kept = 0;
  while (kept < candidates_.size() && (kept == 0 || mass < options_.top_p)) {
    candidates_[kept].value /= sum;
    mass += candidates_[kept].value;
    ++kept;
  }
  const double floor = options_.min_p * candidates_.front().value;
  // What has no probability must not be drawn, not even when the draw rounds beyond the sum.
  while (kept > 1 && (candidates_[kept - 1].value < floor || candidates_[kept - 1].value == 0)) {
    --kept;
  }
  candidates_.resize(kept);
}

Result<int32_t> Sampler::sample(std::span<const float> logits, std::span<const int32_t> history) {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == std::numeric_limits<float>::infinity()) {
      return Error{"sampling.not_finite",
                   fmt::format("the model gave {} as the logit of token {}", logits[i], i)};
    }
  }
  if (std::ranges::none_of(logits, [](float logit) { return std::isfinite(logit); })) {
    return Error{"sampling.not_finite", "the model gave no finite logit"};
  }
  apply_penalty(logits, history);
  if (options_.temperature == 0) {
    const auto best = std::ranges::max_element(candidates_, {}, &Candidate::value);
    return best->token;
  }
  keep_top_k();
  keep_probable();
  double sum = 0;
  for (const Candidate& candidate : candidates_) sum += candidate.value;
  double point = random_.uniform() * sum;
  for (const Candidate& candidate : candidates_) {
    point -= candidate.value;
    if (point < 0) return candidate.token;
  }
  return candidates_.back().token;
}

}  // namespace subbyte
