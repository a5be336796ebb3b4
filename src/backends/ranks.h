#pragma once
// Several ranks of tensor parallelism in this process, as one backend.

#include <memory>

#include "kernels/cpu/execution.h"
#include "ops/backend.h"
#include "subbyte/device.h"

namespace subbyte {

/// Codes: device.ranks for less than 1 rank or more than 64, or options that ranks do not have.
Status check_ranks(const DeviceOptions& options);

/// The threads of `options` are divided among them; each has one at least. Codes: those of
/// make_cpu_backend.
Result<std::unique_ptr<Backend>> make_cpu_ranks(const ExecutionOptions& options, int ranks);

}  // namespace subbyte
