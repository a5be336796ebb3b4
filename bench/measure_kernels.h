#pragma once
// The kernels alone: products with weights that come from memory, beside the read bandwidth of the
// same minute, and products of many rows beside the peaks of the machine.

#include <cstdint>
#include <string>

#include "base/status.h"
#include "ops/execution.h"

namespace subbyte::bench {

struct KernelRun {
  int64_t rows = 4096;  // N
  int64_t cols = 4096;  // K
  int rounds = 9;       // everything is measured once in each
  std::string only;     // formats whose name contains this
};

/// Prints a line for each format: share of B at M = 1, and the times of M = 2 to 16 over M = 1.
Status measure_decode_kernels(Execution& execution, const KernelRun& run);

/// Prints a line for each format: GFLOP/s at M = 512.
Status measure_prefill_kernels(Execution& execution, const KernelRun& run);

}  // namespace subbyte::bench
