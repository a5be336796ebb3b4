#pragma once
// FlashInfer's group GEMM on the CPU beside linear() with the same weights, where linear() has
// their scales as plain rows and its activations as floats.

#include <cstdint>

#include "base/status.h"
#include "kernels/cpu/execution.h"

namespace subbyte::bench {

struct GroupRun {
  int64_t groups = 16;
  int64_t n = 5760;  // gate and up of gpt-oss
  int64_t inputs = 2880;
  int64_t k = 2944;  // inputs, padded
  int rounds = 9;    // everything is measured once in each
};

/// Prints a line for each number of rows that the groups have: 1 (to which three of zeros are
/// added, as groups begin at multiples of 4), 4, 16 and 128.
Status measure_group_gemm(const ExecutionOptions& options, const GroupRun& run);

}  // namespace subbyte::bench
