#pragma once
// The CPU as a machine that models run on.

#include <memory>

#include "exchange/exchange.h"
#include "kernels/cpu/execution.h"
#include "ops/backend.h"

namespace subbyte {

/// With an exchange it is a rank of a group (src/parallel/). Codes: those of Execution::create.
Result<std::unique_ptr<Backend>> make_cpu_backend(const ExecutionOptions& options,
                                                  std::shared_ptr<Exchange> exchange = nullptr);

}  // namespace subbyte
