#pragma once
// Residual sum and norms.

#include "kernels/cuda/experts/route.h"

namespace subbyte::cuda {

/// The result of an expert that every token goes to, times the sigmoid of its gate, if it has one.
struct GatedResult {
  const void* x = nullptr;      // [..][cols]; nullptr: there is none
  const float* gate = nullptr;  // [..], or nullptr
};

/// x[row] = scale * (x[row] + factor * (delta[row] or the rounded sum of the row's routes)), then
/// y[i] = x[row] / sqrt(mean(x[row]^2) + eps) * weight, rounded once to the type of y. The mean is
/// accumulated in double precision.
struct AddNormCall {
  void* y = nullptr;  // [num_rows][cols]
  float* x = nullptr;
  const void* delta = nullptr;    // as x, of the type of y; nullptr: zero, or
  RoutedSum routes;               // of the rows of x; top_k 0: none
  GatedResult gated;              // with routes: added to their rounded sum, and rounded
  const int32_t* rows = nullptr;  // [num_rows], different ones, of x and delta; nullptr: row i
  const float* weight = nullptr;  // [cols]; no kernel of the stream may be writing them
  const float* bias = nullptr;    // [cols], added to y before it is rounded; nullptr: none
  bool is_centred = false;        // of x[row] less its mean, without routes
  int64_t num_rows = 0;
  int64_t cols = 0;
  float eps = 0;
  float factor = 1;
  const float* scale = nullptr;     // [1] of a sum with something; nullptr: 1
  Element element = Element::kF16;  // of y, delta and routes
};

/// Results of a row do not depend on the others. Errors are left to cudaGetLastError().
void run_add_norm(const AddNormCall& call, Stream stream);

/// A row that is added: 16-bit numbers or the rounded sum of routes, normalised and rounded if
/// there is a weight.
struct NormTerm {
  const void* x = nullptr;  // nullptr: there is none, but for
  RoutedSum routes;         // top_k 0: none
  const float* weight = nullptr;
  float eps = 0;
};

/// One row: x = scale * (x + factor * d), where d is the rounded sum of the terms, normalised and
/// rounded if there is a weight; then norms of x as run_add_norm() has them. All that is read is
/// read before a result is written.
struct JoinedNormsCall {
  static constexpr int kMaxResults = 3;
  struct Result {
    void* y = nullptr;  // [cols]; nullptr: there is none, nor any after it
    const float* weight = nullptr;
    float eps = 0;
  };

  NormTerm terms[2];  // the second may be none
  const float* weight = nullptr;
  float eps = 0;
  float* x = nullptr;
  float factor = 1;
  const float* scale = nullptr;  // [1]; nullptr: 1
  Result results[kMaxResults];
  int64_t cols = 0;
  Element element = Element::kF16;  // of terms and results
};

/// Says whether rows and addresses are such that run_joined_norms() has them.
bool serves_joined_norms(const JoinedNormsCall& call);
/// Errors are left to cudaGetLastError().
void run_joined_norms(const JoinedNormsCall& call, Stream stream);

/// x[i] += factor * delta[i] unless `delta` is nullptr, then y[i] = x[i]; y and delta are of the
/// type `element`.
void run_add(void* y, float* x, const void* delta, float factor, Element element, int64_t size,
             Stream stream);

/// y = x with `runs` times `cols` columns of each row from `first` on normalised, each run by
/// itself; y may be x, and has to be where there are other columns, which stay.
struct NormCall {
  void* y = nullptr;  // [num_rows][stride]
  const void* x = nullptr;
  const float* weight = nullptr;  // [cols]
  int64_t num_rows = 0;
  int64_t stride = 0;
  int64_t first = 0;
  int64_t cols = 0;
  int64_t runs = 1;
  float eps = 0;
  Element element = Element::kF16;
};
void run_norm(const NormCall& call, Stream stream);

}  // namespace subbyte::cuda
