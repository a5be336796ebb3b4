#pragma once
// The GGUF file that is meant where a directory may have several.

#include <filesystem>
#include <optional>
#include <string_view>

#include "base/status.h"

namespace subbyte {

/// The model in a directory or in its folders: the only one, or the one that `wanted` names, by its
/// file name or by a part of that between - . and _, such as "Q4_K_M". Parts are one model, and
/// files of other things are none. nullopt where there is no GGUF file at all. Codes:
/// model.not_found where several are there, with their names, or none is wanted;
/// those of open_model_file.
Result<std::optional<std::filesystem::path>> gguf_in(const std::filesystem::path& directory,
                                                     std::string_view wanted = {});

}  // namespace subbyte
