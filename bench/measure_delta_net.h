#pragma once
// Layers of Qwen3.5 with a gated delta net on the CPU: what of a prompt and of a token is the
// recurrence, and what the products around it.

#include <cstdint>

#include "base/status.h"
#include "kernels/cpu/execution.h"

namespace subbyte::bench {

struct DeltaNetRun {
  int64_t tokens = 512;  // of the prompt
  int rounds = 9;
};

/// Prints a line for each shape, number of tokens and format of weights.
Status measure_delta_nets(const ExecutionOptions& options, const DeltaNetRun& run);

}  // namespace subbyte::bench
