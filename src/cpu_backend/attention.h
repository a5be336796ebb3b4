#pragma once
// Causal attention over the pages of the key-value cache with grouped queries, an optional sliding
// window and optional sinks.

#include <cstdint>
#include <span>

#include "kernels/cpu/execution.h"
#include "ops/attention.h"

namespace subbyte {

/// Tokens of one sequence that follow each other. Token t is at position first_position + t, and
/// its key and value are in the cache already.
struct AttentionPart {
  const float* q = nullptr;  // [tokens][heads * head_dim]
  float* out = nullptr;      // [tokens][heads * value_dim]
  int64_t tokens = 0;
  int64_t first_position = 0;
  std::span<const int32_t> pages;
};

/// How many floats lie between numbers of q and out, and how many of a head's values are results.
struct AttentionStrides {
  int64_t q = 0;          // from a token to the next
  int64_t q_kv_head = 0;  // from the queries of a KV head to those of the next
  int64_t out = 0;        // from a token to the next
  int64_t out_head = 0;
  int64_t value_dim = 0;
};

/// All parts in one parallel loop; the results of a part are the same bits as alone. Rows of q are
/// `q_stride` floats apart, rows of out heads * value_dim. `sinks` [heads] or empty: a logit that
/// takes part in the softmax and has no value (it adds exp(sink) to the denominator).
void attention(Execution& execution, std::span<const AttentionPart> parts, int64_t q_stride,
               const KvLayer& layer, const AttentionShape& shape,
               std::span<const float> sinks = {});
void attention(Execution& execution, std::span<const AttentionPart> parts,
               const AttentionStrides& strides, const KvLayer& layer, const AttentionShape& shape,
               std::span<const float> sinks);

}  // namespace subbyte
