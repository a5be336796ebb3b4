#pragma once
// y = x W^T + bias with weights that are f32, f16 or bf16: what a checkpoint leaves unquantized.
//
//   gemv_ahead    each warp reads some rows of W once, products in float32: one or two tokens,
//                 weights of 16 bits with aligned rows
//   gemv          the same for one to eight tokens of what these cannot take, and for more where x
//                 is f32 or tiles of gemm would be few, as of a router
//   dense_16bit   mma in 16 bits, exact in both types: weights of 16 bits with aligned rows; on
//                 Hopper the CTAs of a cluster share the inputs of few tiles of outputs, and
//                 many tokens have wgmma (dense_hopper.h)
//   gemm          tiles of 64 outputs by 64 tokens, mma in tf32, which holds f16 and bf16 exactly;
//                 f32 weights are rounded to it (2^-11)
//
// All accumulate in float32. The order of additions of a token depends on which of them runs and
// on the number of rows; in batch-invariant mode dense_16bit, or gemv, has any number of tokens.

#include "kernels/cuda/common/elements.h"

namespace subbyte::cuda {

inline constexpr int kDenseGemvTokens = 8;
inline constexpr int kDense16bitTokens = 3;  // from here on dense_16bit, where it can
inline constexpr int kDenseTile = 64;        // of gemm: outputs, and tokens

/// Says whether tiles of gemm would leave multiprocessors without work, so that gemv, of which a
/// CTA has 4 outputs of 8 tokens then, is faster.
constexpr bool are_few_tiles(int64_t rows, int64_t m) {
  return (rows + kDenseTile - 1) / kDenseTile * ((m + kDenseTile - 1) / kDenseTile) <= 16;
}

struct DenseCall {
  const void* weights = nullptr;  // [rows][cols]; no kernel of the stream may be writing them,
  bool are_weights_made = false;  // unless this says so
  Element weights_element = Element::kF32;
  const void* x = nullptr;  // [m][x_stride]
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

/// All rows of weights and inputs begin at multiples of 16 bytes and have a multiple of 8 elements.
bool has_aligned_rows(const DenseCall& call);

/// Errors are left to cudaGetLastError().
SUBBYTE_BY_NVCC void run_dense(const DenseCall& call, Stream stream);

}  // namespace subbyte::cuda
