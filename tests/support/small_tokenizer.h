#pragma once
// tokenizer.json files of tests: small ones made up on the spot, and the golden ones.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "support/paths.h"
#include "support/temp_dir.h"
#include "text/tokenizer.h"

namespace subbyte {

using TokenizerJson = nlohmann::ordered_json;

/// GPT-2's alphabet, written down a second time: UTF-8 of the character for each byte.
inline std::vector<std::string> byte_characters() {
  std::vector<std::string> characters;
  unsigned next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool itself = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    const unsigned point = itself ? byte : next++;
    std::string text;
    if (point < 0x80) {
      text.push_back(static_cast<char>(point));
    } else {
      text.push_back(static_cast<char>(0xC0 + point / 64));
      text.push_back(static_cast<char>(0x80 + point % 64));
    }
    characters.push_back(text);
  }
  return characters;
}

/// A file in which byte b has id b; `words` follow from id 256 on. No added tokens, and a
/// pre-tokenizer that leaves the text whole.
inline TokenizerJson small_tokenizer(const std::vector<std::string>& words = {},
                                     const TokenizerJson& merges = TokenizerJson::array()) {
  TokenizerJson json = TokenizerJson::parse(R"({
    "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
    "post_processor": null,
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "byte_fallback": false,
              "ignore_merges": false, "vocab": {}, "merges": []}})");
  auto& vocab = json["model"]["vocab"];
  int id = 0;
  for (const std::string& character : byte_characters()) vocab[character] = id++;
  for (const std::string& word : words) vocab[word] = id++;
  json["model"]["merges"] = merges;
  return json;
}

/// An element of added_tokens with all flags false.
inline TokenizerJson added_token(int64_t id, std::string_view content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", false}};
}

inline Result<Tokenizer> load_tokenizer_text(std::string_view text) {
  const TempDir dir;
  return Tokenizer::load(dir.write("tokenizer.json", text));
}

inline Result<Tokenizer> load_tokenizer(const TokenizerJson& json) {
  return load_tokenizer_text(json.dump());
}

/// `name` is "qwen", "o200k" or "llama3".
inline Result<Tokenizer> golden_tokenizer(std::string_view name) {
  return Tokenizer::load((std::string(SUBBYTE_TEST_DATA) + "/tokenizers/").append(name) +
                         ".tokenizer.json");
}

inline TokenizerJson golden_json(std::string_view name, std::string_view kind) {
  std::ifstream file((std::string(SUBBYTE_TEST_DATA) + "/tokenizers/").append(name).append(kind) +
                     ".json");
  return TokenizerJson::parse(file);
}

}  // namespace subbyte
