#pragma once
// The kernels alone: products with weights that come from memory, beside the read bandwidth of the
// same minute, and products of many rows beside the peaks of the machine.

#include <cstdint>
#include <string>

#include "base/status.h"
#include "kernels/cpu/execution.h"

namespace subbyte::bench {

struct KernelRun {
  int64_t rows = 4096;  // N
  int64_t cols = 4096;  // K
  int rounds = 9;       // everything is measured once in each
  std::string only{};   // formats whose name contains this
  double peak = 0;      // operations per second that prefill is measured against
  std::string peak_name{};
};

/// Prints a line for each format: share of B at M = 1, and the times of M = 2 to 16 over M = 1.
Status measure_decode_kernels(Execution& execution, const KernelRun& run);

/// Prints a line for each format: GFLOP/s at M = 512 and their share of the peak.
Status measure_prefill_kernels(Execution& execution, const KernelRun& run);

/// 50 random shapes, INT4 in groups of 32, each beside its neighbour of rows in multiples of 64 and
/// columns in multiples of 128: bytes per second of one over the other, M = 1.
Status measure_odd_shapes(Execution& execution, const KernelRun& run);

/// What it costs that a row of activations has the same result alone or among others.
Status measure_batch_invariance(ExecutionOptions options, const KernelRun& run);

}  // namespace subbyte::bench
