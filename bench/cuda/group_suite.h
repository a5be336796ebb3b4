#pragma once
// FlashInfer's group GEMM, MXFP8 by MXFP4, beside the GPU's read bandwidth and cuBLAS.

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace subbyte::bench {

struct GroupSuite {
  int64_t groups = 32;
  int64_t n = 5760;
  int64_t k = 2880;
  std::vector<int64_t> m = {128, 512, 2048, 8192, 32768};  // rows of all groups
  int replays = 9;
  bool no_cublas = false;
};

/// Prints a table. Codes: those of cuda::GroupGemm.
Status run_group_suite(const GroupSuite& suite);

}  // namespace subbyte::bench
