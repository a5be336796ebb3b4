#pragma once
// Causal attention over the pages of the key-value cache with grouped queries, an optional sliding
// window and optional sinks.

#include <cstdint>
#include <span>

#include "cpu_backend/execution.h"
#include "ops/attention.h"

namespace subbyte {

/// Keys and values of one layer: where those of head 0 begin in each page, and how far the next
/// head is.
struct KvLayer {
  const uint8_t* cache = nullptr;
  int64_t page_bytes = 0;
  int64_t keys = 0;
  int64_t values = 0;
  int64_t head_bytes = 0;
  cpu::KvElement element = cpu::KvElement::kF32;
};

/// Tokens of one sequence that follow each other. Token t is at position first_position + t, and
/// its key and value are in the cache already.
struct AttentionPart {
  const float* q = nullptr;  // [tokens][heads * head_dim]
  float* out = nullptr;      // the same
  int64_t tokens = 0;
  int64_t first_position = 0;
  std::span<const int32_t> pages;
};

/// All parts in one parallel loop; the results of a part are the same bits as alone. Rows of q are
/// `q_stride` floats apart, rows of out heads * head_dim. `sinks` [heads] or empty: a logit that
/// takes part in the softmax and has no value (it adds exp(sink) to the denominator).
void attention(Execution& execution, std::span<const AttentionPart> parts, int64_t q_stride,
               const KvLayer& layer, const AttentionShape& shape,
               std::span<const float> sinks = {});

}  // namespace subbyte
