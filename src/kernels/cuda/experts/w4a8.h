#pragma once
// Products of experts in MXFP4 by activations in E4M3 on the tensor cores for 8 bits: W4A8.

#include "kernels/cuda/experts/experts.h"

namespace subbyte::cuda {

/// Rows of activations as large_m/w4a8_products.cuh reads them (run_quantize_rows()).
struct RowsIn8Bits {
  const uint8_t* codes = nullptr;  // [count][cols], E4M3, 16-byte aligned
  const float* scales = nullptr;   // [count]
  int64_t count = 0;
  int64_t cols = 0;  // a multiple of 32
};

/// Says whether these weights have such products: MXFP4, where large_m serves them.
SUBBYTE_BY_NVCC bool has_w4a8_products(const PackedFormat& format);

/// As run_experts(), for plans of large_m256; call.x is not read. `largest_scale`: of the weights
/// of all experts; weights below 2^-15 of that are rounded to multiples of its 2^-15. Codes:
/// cuda.launch, cuda.kernel.
SUBBYTE_BY_NVCC Status run_experts_w4a8(const ExpertPlan& plan, const ExpertsCall& call,
                                        const RowsIn8Bits& x, double largest_scale, Number number,
                                        Stream stream);

}  // namespace subbyte::cuda
