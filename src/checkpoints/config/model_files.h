#pragma once
// What the files of a model's directory mean here (model_files.def).

#include <filesystem>

#include "base/status.h"

namespace subbyte {

/// Refuses files that would change the model for the reference and are not computed. Code
/// model.adapter.
Status check_model_files(const std::filesystem::path& directory);

/// Says what to do where a directory has no tokenizer.json. Code tokenizer.missing.
Status check_tokenizer_file(const std::filesystem::path& directory);

}  // namespace subbyte
