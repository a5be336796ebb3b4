#pragma once
// Where a model is: a directory, a GGUF file, a model file of OrinMLLM, or an entry of the Hugging
// Face cache.

#include <filesystem>
#include <string_view>

#include "base/status.h"

namespace subbyte {

/// `name` is a directory that holds config.json, a file that is_orin_model() knows (its
/// tokenizer.json lies beside it), a directory with such a file called model.ak48, a GGUF file or a
/// directory with one (gguf_path.h), or `org/name[@revision]`, which is looked up in the cache
/// (model_cache.h; nothing is downloaded), with `:Q4_K_M` for one of several GGUF files.
/// Codes: model.not_found, which says where it was looked for and what may be done;
/// model.unfinished for a download that did not come to its end; file.permission.
Result<std::filesystem::path> find_model(std::string_view name);

/// For what also opens files that are no models: `name` where there is something of that name, and
/// the model file where it is a directory with one; else as find_model.
Result<std::filesystem::path> find_checkpoint(std::string_view name);

}  // namespace subbyte
