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
};

/// Keys of the config.json of shapes beside those that most models have, or instead of them. Later
/// rows count before earlier ones.
struct ShapeKeys {
  std::string_view arch;   // "": of all of the family
  std::string_view names;  // with blanks between them; "": of all of the arch
  /// JSON, in which values mean:
  ///   "$none"           the key goes
  ///   "$hidden"         a number of the shape; "$layers" are as many as are written
  ///   "$hidden/2"       and what "*", "/" or "-" makes of it, at least 0
  ///   "$letters ab"     a letter for each layer, over and over
  ///   "$each sf"        an array of the words that the letters stand for, as layer_types
  std::string_view keys;
};

struct ModelFamily;

/// The config.json of a shape with so many layers, but for ids of tokens and what the weights are
/// stored as.
json::Value shape_config(const ModelFamily& family, const ModelShape& shape, int64_t layers);

}  // namespace subbyte
