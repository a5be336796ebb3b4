#pragma once
// Options of a machine as the CPU has them.

#include "base/status.h"
#include "kernels/cpu/execution.h"
#include "subbyte/device.h"

namespace subbyte {

/// They refer to `options`. Code device.unsupported: what the CPU does not have.
Result<ExecutionOptions> cpu_options(const DeviceOptions& options);

}  // namespace subbyte
