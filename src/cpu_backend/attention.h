#pragma once
// Causal attention over the pages of the key-value cache with grouped queries, an optional sliding
// window and optional sinks.

#include <cstdint>
#include <span>

#include "kernels/cpu/execution.h"
#include "ops/attention.h"
#include "subbyte/function_ref.h"

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

/// Prepares what parts[part], which is a token, needs of a KV head: its queries in `room`, of
/// (heads / kv_heads + 1) * head_dim floats, one after the other, and where `stores` its key and
/// value in the cache. Called on any thread, for a head more than once, with `stores` once.
using PrepareHead = FunctionRef<void(int64_t part, int64_t kv_head, bool stores, float* room)>;

/// At most so many query heads may share a KV head whose token is prepared.
inline constexpr int64_t kMostPreparedHeads = 64;

/// The same for parts of one token each, whose q is not read: `prepare` makes it.
void attention_of_tokens(Execution& execution, std::span<const AttentionPart> parts,
                         const KvLayer& layer, const AttentionShape& shape,
                         std::span<const float> sinks, PrepareHead prepare);

}  // namespace subbyte
