#pragma once
// tokenizer.json of byte pair encodings as metadata of GGUF: the inverse of gguf_tokenizer.h.

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "checkpoints/containers/gguf_writer.h"
#include "json/strict_json.h"

namespace subbyte {

struct GgufTokenizerSource {
  std::string_view tokenizer;  // the text of tokenizer.json
  std::string where;           // its name, for messages
  json::Value config = {};     // tokenizer_config.json, or null
  std::vector<std::pair<std::string, std::string>> templates = {};  // names and texts
  std::vector<int32_t> ends = {};                                   // tokens that end a text
  uint64_t num_ids = 0;                                             // outputs of the model
  bool allow_lossy = false;  // what changes ids of few texts is left out
};

/// Adds what was left out to `lost`. Codes: gguf.tokenizer for what GGUF has no words for, by the
/// part of tokenizer.json that says it; convert.inexact for what may be left out.
Status add_gguf_tokenizer(const GgufTokenizerSource& source, GgufKeys& keys,
                          std::vector<std::string>& lost);

}  // namespace subbyte
