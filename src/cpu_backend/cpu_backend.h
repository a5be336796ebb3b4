#pragma once
// The CPU as a machine that models run on.

#include <memory>

#include "kernels/cpu/execution.h"
#include "ops/backend.h"

namespace subbyte {

/// Codes: those of Execution::create.
Result<std::unique_ptr<Backend>> make_cpu_backend(const ExecutionOptions& options);

}  // namespace subbyte
