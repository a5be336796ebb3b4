#pragma once
// What tokenizer.json says, read and checked.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "json/side_files.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/first_tokens.h"
#include "text/normalizer.h"
#include "text/pretokenizer.h"
#include "text/text_decoder.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace subbyte {

struct TokenizerSpec {
  Vocabulary vocab;
  std::vector<Bpe::Merge> merges;
  std::vector<AddedToken> added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  TextDecoder decoder;
  // What the post-processor puts around a text that is a prompt.
  std::vector<TokenId> before;
  std::vector<TokenId> after;
  FirstTokens::Unknown unknown;
  std::optional<std::string> unk_token;  // what the file calls it
  bool has_byte_level = false;           // tokens spell bytes
  bool ignore_merges = false;
  std::optional<std::string> eos_token;  // of tokenizer_config.json
};

/// Reads the file and what others say of its tokens (text/tokenizer_config.h).
/// Takes at most four times the file of memory, or twice json::kFreeMemory if that is more.
/// Codes: those of json::parse_file, json.type, json.missing, json.range and those at the top of
/// tokenizer.cc. Messages begin with the name of the file.
Result<TokenizerSpec> read_tokenizer_json(const std::filesystem::path& path,
                                          const SideFiles& beside);

}  // namespace subbyte
