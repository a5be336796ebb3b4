#pragma once
// A tekken.json, as Mistral's own directories have it, as the tokenizer.json that others have:
// "config" with the pattern and the ids that are for special tokens, which come first,
// "special_tokens", and "vocab" with the bytes of each token in base64 in the order of ranks.

#include <string>

#include "base/status.h"
#include "json/side_files.h"

namespace subbyte {

inline constexpr const char* kTekkenFile = "tekken.json";

/// tokenizer.json for the file of `beside`; special tokens without a name are <SPECIAL_N>. Codes:
/// tokenizer.tiktoken, by the element; file.*, json.*.
Result<std::string> tekken_tokenizer_json(const SideFiles& beside);

}  // namespace subbyte
