#pragma once
// What one step computes: some tokens of some sequences, and the logits that come of it.

#include <cstdint>
#include <span>
#include <vector>

#include "ops/kv_pool.h"

namespace subbyte {

/// Tokens that are appended to one sequence: a chunk of a prompt, or one decoded token.
struct Part {
  Sequence* sequence = nullptr;
  std::span<const int32_t> tokens;  // at least one
  int64_t num_logits = 1;           // of the last tokens; 0 to tokens.size()
};

/// Parts of different sequences in any mixture. Their tokens are the rows of the tensors of a step,
/// part after part.
struct Batch {
  std::span<const Part> parts;

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
};

/// The logits of a step on the host, float32: those of the first part, then of the second, ...
struct Logits {
  int64_t vocab_size = 0;
  std::vector<float> values;  // [rows][vocab_size]

  std::span<const float> row(int64_t i) const {
    return std::span(values).subspan(i * vocab_size, vocab_size);
  }
};

}  // namespace subbyte
