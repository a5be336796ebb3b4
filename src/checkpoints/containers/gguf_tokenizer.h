#pragma once
// The tokenizer of a GGUF file as the files that a directory of transformers has for it.
//
//   tokenizer.ggml.model    "gpt2": byte pair encoding with merges in the file, cut by
//                           tokenizer.ggml.pre; "llama": SentencePiece, whose merges follow from
//                           tokens and scores
//   tokenizer.ggml.tokens   with tokenizer.ggml.token_type: 1 normal, 2 unknown, 3 control, 4 of a
//                           user, 5 unused, 6 a byte

#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoints/containers/gguf_parts.h"

namespace subbyte {

/// The name of tokenizers with scores.
inline constexpr std::string_view kSentencePiece = "llama";

/// Says whether the file has a tokenizer.
bool has_gguf_tokenizer(const GgufFile& file);

/// tokenizer.json. Codes: gguf.tokenizer for kinds that are not read and lists that do not fit.
Result<std::string> gguf_tokenizer_json(const GgufFile& file);
/// The same of a model, whose embedding has as many rows as there are tokens.
Result<std::string> gguf_tokenizer_json(const GgufModel& model);

/// All that keeps a model from having a tokenizer, where one file says the first: each key that is
/// wrong, of lists their first element.
std::vector<Error> gguf_tokenizer_problems(const GgufModel& model);

/// tokenizer_config.json: the names of tokens, and chat templates. Code gguf.tokenizer.
Result<std::string> gguf_tokenizer_config(const GgufFile& file);

/// generation_config.json: what ends a text, and how to sample. Code gguf.tokenizer, gguf.value.
Result<std::string> gguf_generation_config(const GgufFile& file);

}  // namespace subbyte
