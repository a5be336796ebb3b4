#pragma once
// A mixture of experts of MXFP4 beside the GPU's read bandwidth and cuBLAS on the same routes.

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace subbyte::bench {

struct MoeSuite {
  std::vector<int64_t> experts = {32, 128};
  std::vector<int64_t> tokens = {1, 4, 16, 64, 256, 1024, 8192};
  int64_t hidden = 2880;
  int64_t intermediate = 2880;
  int64_t top_k = 4;
  int replays = 9;
  bool mxfp8 = false;  // activations
  bool no_cublas = false;
};

/// Prints a table for each number of experts. Codes: those of CudaMoe.
Status run_moe_suite(const MoeSuite& suite);

}  // namespace subbyte::bench
