#pragma once
// The shape of one attention block.

#include <cstdint>

namespace subbyte {

struct AttentionShape {
  int64_t heads = 0;     // query heads
  int64_t kv_heads = 0;  // query head h reads key and value head h / (heads / kv_heads)
  int64_t head_dim = 0;
  float scale = 1;     // of the scores, usually 1 / sqrt(head_dim)
  int64_t window = 0;  // a token sees itself and window - 1 before it; 0: all before it
  float cap = 0;       // scores s become cap * tanh(s / cap); 0: they stay

  int64_t q_size() const { return heads * head_dim; }
  int64_t kv_size() const { return kv_heads * head_dim; }
};

}  // namespace subbyte
