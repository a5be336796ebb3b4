#include "engine/sampler.h"

#include <fmt/format.h>

#include <limits>
#include <map>

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
  SUBBYTE_CHECK(check_range("frequency penalty", options.frequency_penalty, -2, 2));
  SUBBYTE_CHECK(check_range("presence penalty", options.presence_penalty, -2, 2));
  SUBBYTE_CHECK(check_range("repetition penalty", options.repetition_penalty, 0.01, 100));
  for (const LogitBias& bias : options.biases) {
    SUBBYTE_CHECK(check_range("a bias", bias.bias, -100, 100));
  }
  if (std::ssize(options.biases) <= kMaxBiases) return {};
  return Error{"sampling.range", fmt::format("there must be at most {} biases, found {}",
                                             kMaxBiases, options.biases.size())};
}

bool says_how(const Sampling& wishes) {
  return wishes.temperature || wishes.top_k || wishes.top_p || wishes.min_p;
}

Sampling or_else(const Sampling& wishes, const Sampling& next) {
  const auto first = [](const auto& a, const auto& b) { return a ? a : b; };
  return {.temperature = first(wishes.temperature, next.temperature),
          .top_k = first(wishes.top_k, next.top_k),
          .top_p = first(wishes.top_p, next.top_p),
          .min_p = first(wishes.min_p, next.min_p),
          .repetition_penalty = first(wishes.repetition_penalty, next.repetition_penalty),
          .frequency_penalty = first(wishes.frequency_penalty, next.frequency_penalty),
          .presence_penalty = first(wishes.presence_penalty, next.presence_penalty),
          .seed = first(wishes.seed, next.seed),
          .biases = wishes.biases.empty() ? next.biases : wishes.biases};
}

SamplingOptions resolve(const Sampling& wishes, const SamplingOptions& rest) {
  const auto top_k = wishes.top_k.value_or(rest.top_k);
  return {.temperature = wishes.temperature.value_or(rest.temperature),
          .top_k = top_k == -1 ? 0 : top_k,  // -1: all, as in vLLM
          .top_p = wishes.top_p.value_or(rest.top_p),
          .min_p = wishes.min_p.value_or(rest.min_p),
          .repetition_penalty = wishes.repetition_penalty.value_or(rest.repetition_penalty),
          .frequency_penalty = wishes.frequency_penalty.value_or(rest.frequency_penalty),
          .presence_penalty = wishes.presence_penalty.value_or(rest.presence_penalty),
          .seed = wishes.seed.value_or(rest.seed),
          .biases = wishes.biases.empty() ? rest.biases : wishes.biases};
}

SamplingOptions neutral_sampling() {
  return {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0};
}

SamplingDefaults SamplingDefaults::of(const Sampling& options, const Sampling& model) {
  const Sampling wishes = or_else(options, model);
  SamplingDefaults defaults;
  defaults.beside = resolve(wishes, neutral_sampling());
  defaults.alone = says_how(model) ? defaults.beside : resolve(wishes, SamplingOptions{});
  return defaults;
}

std::string to_string(const SamplingOptions& options) {
  std::string text = "greedy (temperature 0)";
  if (options.temperature != 0) {
    text = fmt::format("temperature {}, top-k {}, top-p {}, min-p {}, seed {}", options.temperature,
                       options.top_k, options.top_p, options.min_p, options.seed);
  }
  const auto add = [&](std::string_view name, double penalty, double none) {
    if (penalty != none) text += fmt::format(", {} penalty {}", name, penalty);
  };
  add("repetition", options.repetition_penalty, 1);
  add("frequency", options.frequency_penalty, 0);
  add("presence", options.presence_penalty, 0);
  if (!options.biases.empty()) text += fmt::format(", {} biases", options.biases.size());
  return text;
}

json::Value to_json(const SamplingOptions& options) {
  return {{"temperature", options.temperature},
          {"top_k", options.top_k},
          {"top_p", options.top_p},
          {"min_p", options.min_p},
          {"repetition_penalty", options.repetition_penalty},
          {"frequency_penalty", options.frequency_penalty},
          {"presence_penalty", options.presence_penalty},
          {"seed", options.seed}};
}

Sampler::Sampler(const SamplingOptions& options, int64_t min_tokens,
                 std::span<const int32_t> held_back)
    : options_(options),
      min_tokens_(min_tokens),
      random_(options.seed),
      uniform_(random_.uniform()) {
  if (min_tokens <= 0) return;
  std::map<int32_t, float> biases;
  for (const LogitBias& bias : options.biases) biases[bias.token] = bias.bias;
  for (const int32_t token : held_back) biases[token] = -std::numeric_limits<float>::infinity();
  for (const auto& [token, bias] : biases) first_biases_.push_back({token, bias});
}

TokenChoice Sampler::choice(std::span<const int32_t> history, int64_t num_generated) const {
  return {.temperature = options_.temperature,
          .top_k = options_.top_k,
          .top_p = options_.top_p,
          .min_p = options_.min_p,
          .repetition_penalty = options_.repetition_penalty,
          .frequency_penalty = options_.frequency_penalty,
          .presence_penalty = options_.presence_penalty,
          .uniform = uniform_,
          .history = history,
          .num_generated = num_generated,
          .biases = num_generated < min_tokens_ ? first_biases_ : options_.biases};
}

TokenChoice Sampler::choice_after(int64_t num_generated) const {
  TokenChoice after = choice({}, num_generated + 1);
  after.num_generated = 0;
  after.uniform = Random(random_).uniform();
  return after;
}

Result<int32_t> Sampler::sample(std::span<const float> logits, std::span<const int32_t> history,
                                int64_t num_generated) {
  Result<int32_t> token = chooser_.choose(logits, choice(history, num_generated));
  if (token.ok()) advance();
  return token;
}

}  // namespace subbyte
