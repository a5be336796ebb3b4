#pragma once
// The positions that tokens attend to (SelectOp), and attention over these alone.

#include "base/status.h"
#include "cpu_backend/attention.h"

namespace subbyte {

/// Tokens of one sequence that follow each other, the first at `first_position`; their keys are in
/// the cache already.
struct SelectionPart {
  const float* q = nullptr;        // [tokens][heads * head_dim]
  const float* weights = nullptr;  // [tokens][heads]
  float* out = nullptr;            // [tokens][top]
  int64_t tokens = 0;
  int64_t first_position = 0;
  std::span<const int32_t> pages;
};

/// Selects as SelectOp says, for tokens with more than `shape.top` positions; of others the places
/// are not written. Code linear.unsupported.
Status select_positions(Execution& execution, const SelectionPart& part, const KvLayer& layer,
                        const AttentionShape& shape);

/// attention() of tokens that have selected `shape.top` positions each, of one head of keys with
/// values in them: `selection` [tokens][top].
void attention_of_selected(Execution& execution, const AttentionPart& part, int64_t q_stride,
                           const float* selection, const KvLayer& layer,
                           const AttentionShape& shape, std::span<const float> sinks);

}  // namespace subbyte
