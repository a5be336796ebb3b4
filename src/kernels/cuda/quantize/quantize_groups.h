#pragma once
// Activations in E4M3 with a factor for each 128 inputs of a token.

#include "kernels/cuda/common/elements.h"

namespace subbyte::cuda {

struct QuantizeGroupsCall {
  uint8_t* codes = nullptr;  // [count][cols], 16-byte aligned
  float* factors = nullptr;  // [cols / 128][stride]
  const void* x = nullptr;   // [count][x_stride], rows 16-byte aligned
  int64_t count = 0;         // of rows, at most `stride`
  int64_t cols = 0;          // a multiple of 128
  int64_t x_stride = 0;
  int64_t stride = 0;
  Element element = Element::kF16;  // or kBF16
};

/// A factor is the largest magnitude of the group over 448, the largest number of E4M3, and a code
/// the E4M3 number nearest to its input over that; groups whose numbers are all below 2^-100 have
/// the factor of that. A group with NaN or infinity is NaN. Of each 16 codes of a row code 4 t + j
/// is of input 2 t + j / 2 + 8 (j % 2), the order of large_m/w8a8_products.cuh. Errors are left to
/// cudaGetLastError().
void run_quantize_groups(const QuantizeGroupsCall& call, Stream stream);

}  // namespace subbyte::cuda
