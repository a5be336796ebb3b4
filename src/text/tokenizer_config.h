#pragma once
// The files beside tokenizer.json that say something of its tokens: tokenizer_config.json, and
// where that has no added_tokens_decoder special_tokens_map.json and added_tokens.json, which older
// software writes. The rules are those of transformers 5.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "json/key_rules.h"
#include "json/side_files.h"
#include "text/added_tokens.h"

namespace subbyte {

/// A token that stands there.
struct SideToken {
  std::optional<TokenId> id;  // nullopt: a special token by its name alone
  AddedToken token;           // with the id, where there is one
  std::string where;          // "tokenizer_config.json: added_tokens_decoder.258"
};

struct TokenizerConfig {
  std::vector<SideToken> tokens;  // those with an id first
  std::optional<std::string> eos_token;
  // What tokenizer.json has, or would have to be changed for:
  bool adds_prefix = false;          // a space before each text
  bool has_mistral_pattern = false;  // instead of the first one, in large vocabularies
};

/// Says whether a key is one of the special tokens that the reference has a name for.
bool is_special_token_name(std::string_view key);

/// Says whether a value is a token as the reference writes it: {"__type": "AddedToken", ...}.
bool is_written_token(const json::Value& value);

/// The rules of tokenizer_config.json.
std::span<const json::KeyRule> tokenizer_config_rules();

/// Files that are not there say nothing. Codes: json.*, file.*, tokenizer.unsupported for keys that
/// would change tokens and are not computed.
Result<TokenizerConfig> read_tokenizer_config(const SideFiles& files);

}  // namespace subbyte
