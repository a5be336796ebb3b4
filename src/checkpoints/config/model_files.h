#pragma once
// What the files of a model's directory mean here (model_files.def).

#include <filesystem>

#include "base/status.h"

namespace subbyte {

/// Refuses files that would change the model for the reference and are not computed. Code
/// model.adapter.
Status check_model_files(const std::filesystem::path& directory);

}  // namespace subbyte
