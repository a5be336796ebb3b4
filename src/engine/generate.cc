#include "engine/generate.h"

#include <algorithm>
#include <chrono>

namespace subbyte {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

double GenerateStats::prefill_tokens_per_second() const {
  return prefill_seconds > 0 ? static_cast<double>(prompt_tokens) / prefill_seconds : 0;
}

double GenerateStats::decode_tokens_per_second() const {
  if (decode_seconds <= 0 || generated_tokens < 2) return 0;
  return static_cast<double>(generated_tokens - 1) / decode_seconds;
}

Result<GenerateStats> generate(const Model& model, Execution& execution, KvCache& cache,
                               std::span<const int32_t> prompt, const GenerateOptions& options,
                               const OnToken& on_token) {
  GenerateStats stats;
  stats.prompt_tokens = static_cast<int64_t>(prompt.size());
  if (prompt.empty()) return Error{"generate.empty_prompt", "the prompt has no tokens"};
  if (options.max_tokens == 0) return stats;

  Sampler sampler(options.sampling);
  std::vector<int32_t> history(prompt.begin(), prompt.end());
  std::vector<float> logits(model.config().vocab_size);
  auto start = Clock::now();
  SUBBYTE_CHECK(model.forward(execution, prompt, cache, logits));
  stats.prefill_seconds = seconds_since(start);

  start = Clock::now();
  while (true) {
    SUBBYTE_TRY(const int32_t token, sampler.sample(logits, history));
    ++stats.generated_tokens;
    stats.decode_seconds = seconds_since(start);
    if (std::ranges::find(options.stop_tokens, token) != options.stop_tokens.end()) {
      stats.reason = StopReason::kStopToken;
      return stats;
    }
    if (!on_token(token)) {
      stats.reason = StopReason::kCaller;
      return stats;
    }
    if (options.max_tokens >= 0 && stats.generated_tokens >= options.max_tokens) {
      stats.reason = StopReason::kLength;
      return stats;
    }
    if (cache.size() == cache.capacity()) {
      stats.reason = StopReason::kContextFull;
      return stats;
    }
    history.push_back(token);
    SUBBYTE_CHECK(model.forward(execution, {&history.back(), 1}, cache, logits));
  }
}

std::string StopStrings::push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  // The stop string that is complete first, and of several that end together the longest: so the
  // result does not depend on how the text was cut into pieces.
  std::size_t first = std::string::npos;
  std::size_t end = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t at = stop.empty() ? std::string::npos : held_.find(stop);
    if (at == std::string::npos || at + stop.size() > end) continue;
    first = at + stop.size() < end ? at : std::min(first, at);
    end = at + stop.size();
  }
  if (first != std::string::npos) {
    stopped_ = true;
    std::string shown = held_.substr(0, first);
    held_.clear();
    return shown;
  }
  // Keep the longest end of the text that is the beginning of a stop string.
  std::size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t n = std::min(stop.size(), held_.size()); n > keep; --n) {
      if (held_.ends_with(std::string_view(stop).substr(0, n))) keep = n;
    }
  }
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return shown;
}

std::string StopStrings::finish() {
  return std::exchange(held_, {});
}

}  // namespace subbyte
