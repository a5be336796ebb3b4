#pragma once
// How many threads may be asked for.

#include <cstdint>

#include "base/status.h"

namespace subbyte {

inline constexpr int64_t kMaxThreads = 4096;

/// Checks for 0 (one for each processor) to kMaxThreads. Code execution.options.
Status check_num_threads(int64_t num_threads);

}  // namespace subbyte
