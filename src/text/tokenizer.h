#pragma once
// The tokenizer (subbyte/tokenizer.h) for texts of which only parts are a template's: byte pair
// encoding over bytes (Qwen, gpt-oss, Llama 3) or over characters with bytes for those that have no
// token (Llama 2, Mistral, Gemma).

#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "json/side_files.h"
#include "subbyte/tokenizer.h"
#include "text/byte_range.h"

namespace subbyte {

/// Tokenizer::load() beside files that are those of `beside`.
Result<Tokenizer> open_tokenizer(const std::filesystem::path& tokenizer_json,
                                 const SideFiles& beside);

/// The tokens of a text whose added tokens are recognised inside of some ranges alone, as those of
/// a chat that its template wrote: all else is encoded as SpecialTokens::kAsText says. Codes: those
/// of Tokenizer::encode.
Result<std::vector<TokenId>> encode(const Tokenizer& tokenizer, std::string_view text,
                                    std::span<const ByteRange> recognized);

}  // namespace subbyte
