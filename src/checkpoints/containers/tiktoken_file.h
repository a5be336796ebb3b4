#pragma once
// A tiktoken.model, as Kimi and Moonlight have it, as the tokenizer.json that other models have: in
// each line the bytes of a token in base64, a blank, and its rank, which is its id. Neighbours are
// joined that make the token of the lowest rank. The pattern that cuts a text is in the code beside
// it, which tokenizer_class of tokenizer_config.json names; tokens that text does not become are in
// added_tokens_decoder there, and 256 ids from the number of ranks on are reserved for them.

#include <filesystem>
#include <string>

#include "base/status.h"
#include "json/side_files.h"

namespace subbyte {

inline constexpr const char* kTiktokenFile = "tiktoken.model";

/// tokenizer.json for the file of `beside`. Codes: tokenizer.tiktoken, by the line;
/// tokenizer.unsupported for other classes; file.*, json.*.
Result<std::string> tiktoken_tokenizer_json(const SideFiles& beside);

}  // namespace subbyte
