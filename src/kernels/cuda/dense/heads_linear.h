#pragma once
// A product of each head of a row with a matrix of its own, and copies of what is beside them.
//
//   x   [m] of heads of [inputs + kept]       y   [m] of heads of [outputs + kept], then rest_cols
//
//   gemv     a warp has four outputs of a head: few tokens, and weights of any type and shape
//   tiles    mma in 16 bits, heads side by side in the grid (dense_16bit.h): more tokens

#include "kernels/cuda/common/elements.h"

namespace subbyte::cuda {

struct HeadsLinearCall {
  const void* weights = nullptr;  // [heads][outputs][inputs]
  Element weights_element = Element::kF16;
  const void* x = nullptr;
  const void* rest = nullptr;  // [m][rest_cols] or nullptr
  void* y = nullptr;
  Element element = Element::kF16;  // of x, rest and y: 16 bits
  int64_t m = 0;
  int32_t heads = 0;
  int32_t outputs = 0;
  int32_t inputs = 0;
  int32_t kept = 0;
  int32_t rest_cols = 0;
  bool batch_invariant = false;  // a token's results do not depend on m

  SUBBYTE_HOST_DEVICE int64_t x_cols() const { return int64_t{heads} * (inputs + kept); }
  SUBBYTE_HOST_DEVICE int64_t y_cols() const {
    return int64_t{heads} * (outputs + kept) + rest_cols;
  }
};

/// Errors are left to cudaGetLastError().
void run_heads_linear(const HeadsLinearCall& call, Stream stream);

}  // namespace subbyte::cuda
