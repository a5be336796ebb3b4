#pragma once
// The sizes of published models, as data, and the config.json that such a model has: what synth
// writes.

#include <cstdint>
#include <string_view>

#include "json/strict_json.h"

namespace subbyte {

struct ModelShape {
  std::string_view arch;  // what --arch calls it
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
  // Of gated delta nets.
  int64_t key_heads = 0;
  int64_t value_heads = 0;
  int64_t state_head_dim = 0;  // of both
};

struct ModelType;

/// The keys that most families have, with the sizes of `shape` cut to `layers`.
json::Value usual_config(const ModelType& type, const ModelShape& shape, int64_t layers);

}  // namespace subbyte
