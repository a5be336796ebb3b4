#pragma once
// The shape of one attention block, and of the latents that some have.

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

/// Latents, of which two matrices of a head make its keys and values. Attention over the latents
/// themselves has the matrices absorbed into queries and results (AttentionShape::values_in_keys).
/// Expanded to keys and values of every head they have fewer numbers: that costs less where many
/// tokens read what is made once for all of them.
struct LatentSizes {
  int64_t heads = 0;  // 0: there are no latents
  int64_t rank = 0;
  int64_t turning = 0;  // numbers of a key that turn, which all heads share
  int64_t nope = 0;     // the others, of a head
  int64_t value = 0;
  int64_t top = 0;  // AttentionShape::top

  /// Keys and values of a head lie in as many numbers.
  int64_t head_dim() const { return std::max(nope + turning, value); }

  /// Says whether a machine that expands does so for some tokens of a sequence after `cached` ones:
  /// what a head multiplies decides, and that its matrix of keys is turned, whatever else is
  /// computed. The rows of absorbed queries and results have to have room for the others, and every
  /// token sees all before it.
  bool is_expanded(int64_t tokens, int64_t cached) const {
    constexpr int64_t kProductsOfMove = 32;  // that take as long as a number of a matrix that turns
    if (heads == 0 || nope > rank || value > rank) return false;
    if (top > 0 && cached + tokens > top) return false;
    const int64_t pairs = tokens * cached + tokens * (tokens + 1) / 2;  // of a query and a key
    const int64_t saved = 2 * (rank + turning) - 2 * head_dim();
    return pairs * saved > cached * rank * (nope + value) + kProductsOfMove * rank * nope;
  }
};

}  // namespace subbyte
