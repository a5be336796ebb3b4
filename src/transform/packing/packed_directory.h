#pragma once
// What packed directories and models have in common: the files beside the weights.

#include <filesystem>

#include "base/leftover.h"
#include "base/status.h"

namespace subbyte {

/// Copies config.json, the files that may stand for its quantization_config, and all that
/// copy_side_files() does. Codes: as copy_side_files().
Status copy_all_side_files(const std::filesystem::path& from, const std::filesystem::path& to,
                           const Notice& notice);

}  // namespace subbyte
