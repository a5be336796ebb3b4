#pragma once
// y = x W^T + bias with weights that are f32, f16 or bf16: what a checkpoint leaves unquantized.
//
//   up to kDenseGemvTokens tokens   each warp reads some rows of W once, products in float32
//   more                       tiles of 64 outputs by 64 tokens, mma in tf32, which holds f16 and
//                              bf16 exactly; f32 weights are rounded to it (2^-11)
//
// Both accumulate in float32. The order of additions for a token depends on which of the two runs
// and on nothing else; in batch-invariant mode the first runs for any number of tokens.

#include "kernels/cuda/ops/elements.h"

namespace subbyte::cuda {

inline constexpr int kDenseGemvTokens = 8;

struct DenseCall {
  const void* weights = nullptr;  // [rows][cols]
  Element weights_element = Element::kF32;
  const void* x = nullptr;  // [m][x_stride], 16 bits
  Element x_element = Element::kF16;
  void* y = nullptr;  // [m][y_stride]
  Element y_element = Element::kF16;
  const float* bias = nullptr;  // [rows] or nullptr
  int64_t m = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t x_stride = 0;
  int64_t y_stride = 0;
  bool batch_invariant = false;  // a token's results do not depend on m
};

/// Errors are left to cudaGetLastError().
void run_dense(const DenseCall& call, Stream stream);

}  // namespace subbyte::cuda
