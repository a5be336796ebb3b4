#pragma once
// Residual sum and RMS norm.

#include "kernels/cuda/ops/route.h"

namespace subbyte::cuda {

/// x[row] += delta[row] or the rounded sum of the row's routes, then y[i] = x[row] /
/// sqrt(mean(x[row]^2) + eps) * weight, rounded once to the type of y. The mean is accumulated in
/// double precision.
struct AddNormCall {
  void* y = nullptr;  // [num_rows][cols]
  float* x = nullptr;
  const void* delta = nullptr;    // as x, of the type of y; nullptr: zero, or
  RoutedSum routes;               // of the rows of x; top_k 0: none
  const int32_t* rows = nullptr;  // [num_rows], different ones, of x and delta; nullptr: row i
  const float* weight = nullptr;  // [cols]; no kernel of the stream may be writing them
  int64_t num_rows = 0;
  int64_t cols = 0;
  float eps = 0;
  Element element = Element::kF16;  // of y, delta and routes
};

/// Results of a row do not depend on the others. Errors are left to cudaGetLastError().
void run_add_norm(const AddNormCall& call, Stream stream);

}  // namespace subbyte::cuda
