#pragma once
// What one step computes: some tokens of some sequences, and the logits or tokens that come of it.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ops/kv_pool.h"
#include "ops/step_observer.h"
#include "ops/token_choice.h"

namespace subbyte {

/// Stands for the token that choice `i` of the step before takes, while nobody knows it: in a step
/// that is enqueued before that one is finished.
constexpr int32_t pending_token(int64_t i) {
  return kNoToken - 1 - static_cast<int32_t>(i);
}
constexpr bool is_pending_token(int32_t token) {
  return token < kNoToken;
}

/// Tokens that are appended to one sequence: a chunk of a prompt, or one decoded token.
struct Part {
  Sequence* sequence = nullptr;
  std::span<const int32_t> tokens;      // at least one
  int64_t num_logits = 1;               // of the last tokens; 0 to tokens.size()
  std::optional<TokenChoice> choice{};  // of the token after the last one, by the backend

  /// The last tokens whose logits are computed, whoever reads them.
  int64_t num_head_rows() const { return std::max<int64_t>(num_logits, choice ? 1 : 0); }
};

/// Parts of different sequences in any mixture. Their tokens are the rows of the tensors of a step,
/// part after part.
struct Batch {
  std::span<const Part> parts;
  StepObserver* observer = nullptr;  // sees what the operations give
  /// Values of the stage before (ReceiveOp), one after the other, each [tokens][its columns].
  std::span<const float> received{};

  int64_t num_tokens() const {
    int64_t tokens = 0;
    for (const Part& part : parts) tokens += static_cast<int64_t>(part.tokens.size());
    return tokens;
  }
  int64_t num_logits() const {
    int64_t rows = 0;
    for (const Part& part : parts) rows += part.num_logits;
    return rows;
  }
  int64_t num_head_rows() const {
    int64_t rows = 0;
    for (const Part& part : parts) rows += part.num_head_rows();
    return rows;
  }
  int64_t num_choices() const {
    return std::ranges::count_if(parts, [](const Part& part) { return part.choice.has_value(); });
  }
};

/// Results of a step, on the host: the logits that parts ask for in float32, those of the first
/// part, then of the second, ..., and the tokens that parts let choose, in the same order.
struct Logits {
  int64_t vocab_size = 0;
  std::vector<float> values;    // [rows][vocab_size]
  std::vector<int32_t> tokens;  // or kNoToken
  std::vector<float> sent{};    // for the next stage, as Batch::received has it

  std::span<const float> row(int64_t i) const {
    return std::span(values).subspan(i * vocab_size, vocab_size);
  }
};

}  // namespace subbyte
