#pragma once
// The shape of one attention block.

#include <algorithm>
#include <cstdint>

namespace subbyte {

struct AttentionShape {
  int64_t heads = 0;     // query heads
  int64_t kv_heads = 0;  // query head h reads key and value head h / (heads / kv_heads)
  int64_t head_dim = 0;
  float scale = 1;       // of the scores, usually 1 / sqrt(head_dim)
  int64_t window = 0;    // a token sees itself and window - 1 before it; 0: all before it
  float cap = 0;         // scores s become cap * tanh(s / cap); 0: they stay
  bool has_keys = true;  // false: keys and values are those that another layer has stored
  /// Values are the first so many numbers of the keys, of which there is one head; 0: they are
  /// apart and as long as keys.
  int64_t values_in_keys = 0;
  int64_t first_turning = 0;  // number of such a head from which on it turns
  /// Positions that a token attends to at most, where they were selected (SelectOp); 0: all.
  int64_t top = 0;
  /// Windows are chunks: a token sees no position before the last multiple of `window`.
  bool in_chunks = false;

  int64_t q_size() const { return heads * head_dim; }
  int64_t kv_size() const { return kv_heads * head_dim; }
  /// Heads of a token that come: of queries, and of keys and values.
  int64_t heads_of_token() const {
    if (!has_keys) return heads;
    return heads + (values_in_keys > 0 ? 1 : 2) * kv_heads;
  }
  int64_t qkv_size() const { return heads_of_token() * head_dim; }
  int64_t value_dim() const { return values_in_keys > 0 ? values_in_keys : head_dim; }
  int64_t result_size() const { return heads * value_dim(); }
  /// The first position that the token at `position` sees.
  int64_t first_seen(int64_t position) const {
    if (window == 0) return 0;
    return in_chunks ? position / window * window : std::max<int64_t>(0, position - window + 1);
  }
};

}  // namespace subbyte
