#pragma once
// Which rows of x and y the tokens of a product have.

#include <cstdint>

namespace subbyte::cuda {

/// As many, one after the other.
struct OwnRows {
  __device__ void finish_arguments() const {}
  __device__ int64_t of_x(int64_t token) const { return token; }
  __device__ int64_t of_y(int64_t token) const { return token; }
};

/// Those of the routes to experts, sorted by expert; nullptr: as OwnRows.
struct RoutedRows {
  const int32_t* x;
  const int32_t* y;

  __device__ int64_t of_x(int64_t token) const { return x != nullptr ? x[token] : token; }
  __device__ int64_t of_y(int64_t token) const { return y != nullptr ? y[token] : token; }
};

}  // namespace subbyte::cuda
