#pragma once
// What a failed system call becomes.

#include <filesystem>
#include <string_view>

#include "base/status.h"

namespace subbyte {

/// "<path>: cannot <action>: <what errno says>", with the code that fits `error_number`:
/// file.not_found, file.permission, file.exists, file.no_space (also quota and size limits),
/// otherwise file.io.
Error file_error(int error_number, const std::filesystem::path& path, std::string_view action);

}  // namespace subbyte
