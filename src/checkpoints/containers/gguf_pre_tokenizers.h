#pragma once
// The names that GGUF files have for the ways in which tokenizers cut a text before they merge
// (tokenizer.ggml.pre), and what each means in the words of tokenizer.json.

#include <span>
#include <string_view>

namespace subbyte {

struct GgufPreTokenizer {
  std::string_view names;                           // with blanks between them
  std::span<const std::string_view> patterns = {};  // each cuts what the one before it left
  bool ignore_merges = false;                       // a piece that is a token is that token
  bool adds_begin = false;                          // where a file does not say whether it does
  bool is_nfc = false;                              // texts are normalized so before
  bool of_characters = false;                       // which are merged, and not bytes
};

/// nullptr for a name that is not known.
const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name);

std::span<const GgufPreTokenizer> all_gguf_pre_tokenizers();

}  // namespace subbyte
