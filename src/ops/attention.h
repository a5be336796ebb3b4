#pragma once
// Causal attention over the KV cache with grouped queries, an optional sliding window and
// optional sinks.

#include <cstdint>
#include <span>

#include "ops/execution.h"

namespace subbyte {

struct AttentionShape {
  int64_t heads = 0;     // query heads
  int64_t kv_heads = 0;  // query head h reads key and value head h / (heads / kv_heads)
  int64_t head_dim = 0;
  float scale = 1;     // of the scores, usually 1 / sqrt(head_dim)
  int64_t window = 0;  // a token sees itself and window - 1 before it; 0: all before it
};

/// Keys and values of one layer: [kv_heads][capacity][head_dim] each.
struct KvView {
  const float* keys = nullptr;
  const float* values = nullptr;
  int64_t capacity = 0;
};

/// out, q: [tokens][heads * head_dim]. Token t is at position first_position + t, and its key and
/// value are in the cache already. `sinks` [heads] or empty: a logit that takes part in the softmax
/// and has no value (it adds exp(sink) to the denominator).
void attention(Execution& execution, std::span<float> out, std::span<const float> q,
               const KvView& cache, int64_t first_position, const AttentionShape& shape,
               std::span<const float> sinks = {});

}  // namespace subbyte
