#include "engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "json/strict_json.h"
#include "models/model_config.h"

namespace subbyte {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::size_t kBlock = 128;  // logits of which only the largest is looked at first

// What every x86-64 machine has. Wider ones the compiler takes apart to single floats.
using Floats [[gnu::vector_size(16)]] = float;
using Masks [[gnu::vector_size(16)]] = int32_t;
constexpr std::size_t kLanes = sizeof(Floats) / sizeof(float);
constexpr std::size_t kChains = 4;  // none waits for the one before it

/// The largest of kBlock logits; infinity if one of them is NaN.
float largest_of(const float* logits) {
  const Floats limit = Floats{} + kInfinity;
  Floats top[kChains] = {-limit, -limit, -limit, -limit};
  Masks ordinary = ~Masks{};
  for (std::size_t i = 0; i < kBlock; i += kChains * kLanes) {
#pragma GCC unroll 4
    for (std::size_t c = 0; c < kChains; ++c) {
      Floats v;
      std::memcpy(&v, logits + i + c * kLanes, sizeof(v));
      ordinary &= v < limit;
      top[c] = v > top[c] ? v : top[c];
    }
  }
  top[0] = top[1] > top[0] ? top[1] : top[0];
  top[2] = top[3] > top[2] ? top[3] : top[2];
  top[0] = top[2] > top[0] ? top[2] : top[0];
  float largest = -kInfinity;
  for (std::size_t i = 0; i < kLanes; ++i) {
    if (ordinary[i] == 0) return kInfinity;
    largest = std::max(largest, top[0][i]);
  }
  return largest;
}

Error not_finite(std::span<const float> logits) {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] < kInfinity) continue;
    return {"sampling.not_finite",
            fmt::format("the model gave {} as the logit of token {}", logits[i], i)};
  }
  return {"sampling.not_finite", "the model gave no finite logit"};
}

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

Status Sampler::scan(std::span<const float> logits) {
  largest_.clear();
  std::size_t i = 0;
  for (; i + kBlock <= logits.size(); i += kBlock) largest_.push_back(largest_of(&logits[i]));
  if (i < logits.size()) {
    std::array<float, kBlock> last;
    last.fill(-kInfinity);
    std::ranges::copy(logits.subspan(i), last.begin());
    largest_.push_back(largest_of(last.data()));
  }
  const auto best = std::ranges::max_element(largest_);
  if (best == largest_.end() || !std::isfinite(*best)) return not_finite(logits);
  return {};
}

/// As many blocks as tokens are wanted have a logit of `least` or more, so at least as many tokens.
void Sampler::collect(std::span<const float> logits, std::size_t wanted) {
  float least = -kInfinity;
  if (wanted < largest_.size()) {
    std::vector<float> sorted = largest_;
    const auto nth = sorted.begin() + static_cast<std::ptrdiff_t>(wanted) - 1;
    std::ranges::nth_element(sorted, nth, std::greater());
    least = *nth;
  }
  candidates_.clear();
  for (std::size_t block = 0; block < largest_.size(); ++block) {
    if (largest_[block] < least) continue;
    const std::size_t end = std::min(logits.size(), (block + 1) * kBlock);
    for (std::size_t i = block * kBlock; i < end; ++i) {
      if (logits[i] >= least) candidates_.push_back({static_cast<int32_t>(i), logits[i]});
    }
  }
}

/// Fills `occurred_`, with each token once, and `has_occurred_`; returns how many. Without a
/// penalty none is looked for.
std::size_t Sampler::count_occurred(std::span<const int32_t> history, std::size_t vocabulary) {
  occurred_.clear();
  if (options_.repetition_penalty == 1.0) return 0;
  has_occurred_.assign(vocabulary, false);
  for (const int32_t token : history) {
    if (token < 0 || static_cast<std::size_t>(token) >= vocabulary || has_occurred_[token])
      continue;
    has_occurred_[token] = true;
    occurred_.push_back(token);
  }
  return occurred_.size();
}

/// Divides positive logits of tokens that occurred and multiplies negative ones.
void Sampler::penalize(std::span<const float> logits) {
  if (occurred_.empty()) return;
  std::erase_if(candidates_,
                [&](const Candidate& candidate) { return has_occurred_[candidate.token]; });
  const double penalty = options_.repetition_penalty;
  for (const int32_t token : occurred_) {
    const double logit = logits[token];
    candidates_.push_back({token, logit > 0 ? logit / penalty : logit * penalty});
  }
}

void Sampler::keep_best(std::size_t wanted) {
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.value != b.value ? a.value > b.value : a.token < b.token;
  };
  const std::size_t kept = std::min(wanted, candidates_.size());
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(kept),
                    candidates_.end(), better);
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
  SUBBYTE_CHECK(scan(logits));
  const bool greedy = options_.temperature == 0;
  std::size_t wanted = greedy ? 1 : static_cast<std::size_t>(options_.top_k);
  if (wanted == 0 || wanted > logits.size()) wanted = logits.size();
  // Those that are penalized may leave the best.
  collect(logits, wanted + count_occurred(history, logits.size()));
  penalize(logits);
  keep_best(wanted);
  if (greedy) return candidates_.front().token;
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
