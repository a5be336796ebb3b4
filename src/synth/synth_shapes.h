#pragma once
// The sizes of published models, as data.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace subbyte {

struct ModelShape {
  std::string_view arch;  // "qwen3", "qwen3-moe", "gpt-oss"
  std::string_view name;  // "8b"
  int64_t hidden;
  int64_t intermediate;
  int64_t layers;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t window;       // sliding window of even layers; 0: none
  int64_t vocabulary;   // rows of the embedding, more than the tokenizer has
  int64_t first_added;  // id of the first added token; the ids below it are the vocabulary's
  int64_t positions;
  bool tied;                // the head is the embedding
  int64_t experts = 0;      // 0: dense
  int64_t per_token = 0;    // experts of a token
  int64_t expert_size = 0;  // outputs of the gate of one
};

inline constexpr std::string_view kGptOss = "gpt-oss";

/// nullptr when there is none.
const ModelShape* find_shape(std::string_view arch, std::string_view name);

/// "qwen3, gpt-oss".
std::string shape_archs();
/// "tiny, 0.6b, ..." of one architecture; empty when there is no such architecture.
std::string shape_names(std::string_view arch);

}  // namespace subbyte
