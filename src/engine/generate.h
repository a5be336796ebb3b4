#pragma once
// The loop: prefill a prompt, then decode token after token.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/sampler.h"
#include "models/model.h"

namespace subbyte {

struct GenerateOptions {
  SamplingOptions sampling;
  int64_t max_tokens = -1;           // -1: until the context is full
  std::vector<int32_t> stop_tokens;  // end the generation and are not handed out
};

enum class StopReason : uint8_t { kStopToken, kLength, kContextFull, kCaller };

struct GenerateStats {
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;  // those handed out and the stop token
  double prefill_seconds = 0;    // up to the logits of the first new token
  double decode_seconds = 0;     // of all later ones
  StopReason reason = StopReason::kLength;

  double prefill_tokens_per_second() const;
  double decode_tokens_per_second() const;  // 0 when nothing was decoded after the first token
};

/// Called with each token; false ends the generation.
using OnToken = std::function<bool(int32_t token)>;

/// Appends `prompt` (at least one token) and what follows to the cache. Every token that was
/// handed out is in the cache afterwards except the last one.
/// Codes: generate.empty_prompt, those of Model::forward and Sampler::sample.
Result<GenerateStats> generate(const Model& model, Execution& execution, KvCache& cache,
                               std::span<const int32_t> prompt, const GenerateOptions& options,
                               const OnToken& on_token);

/// Cuts a stream of text at that of several stop strings which is complete first. Text that may be
/// the beginning of one is held back until it is clear.
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  /// Text that may be shown now. After a stop string was found, stopped() and nothing more.
  std::string push(std::string_view text);
  /// What is still held back when the stream ends.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace subbyte
