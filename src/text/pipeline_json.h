#pragma once
// What tokenizer.json says of the way from a text to pieces and from tokens to a text.

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "json/strict_json.h"
#include "text/normalizer.h"
#include "text/pretokenizer.h"
#include "text/text_decoder.h"

namespace subbyte {

struct PipelineSpec {
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  std::vector<TextDecoderStep> decoder;
  bool has_byte_level = false;  // the pre-tokenizer: tokens spell bytes

  /// Says whether something comes before a text.
  bool adds_prefix() const;
};

/// Reads "normalizer", "pre_tokenizer" and "decoder" of the file. Patterns are not compiled yet.
/// Codes: json.*, tokenizer.unsupported for what is not implemented.
Result<PipelineSpec> read_pipeline(const json::Object& root);

/// The type of a part of the file, or "" where that is null or absent.
Result<std::string> type_of(const json::Object& parent, std::string_view key);
Error unsupported_part(std::string_view where, std::string_view what);
/// The array `key` of `object`, nullptr when it is absent or null.
Result<const json::Value*> array_of(const json::Object& object, std::string_view key);

}  // namespace subbyte
