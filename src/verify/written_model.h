#pragma once
// Reading what was written before it has its name.

#include <filesystem>
#include <string_view>

#include "base/leftover.h"
#include "base/status.h"
#include "subbyte/executor.h"
#include "verify/verify.h"

namespace subbyte {

/// Reads every tensor of `result` as `subbyte verify` does. What is wrong with the source already
/// is no fault of what was made of it: `notice` is told that neither runs. `progress` counts the
/// bytes of `result`. Codes: `code`, those of find_checkpoint().
Status check_written(const std::filesystem::path& source, const std::filesystem::path& result,
                     std::string_view code, Executor& pool, const Progress& progress = nullptr,
                     const Notice& notice = nullptr);

}  // namespace subbyte
