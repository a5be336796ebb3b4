#pragma once
// Some columns of rows, range after range.

#include <span>

#include "kernels/cuda/common/elements.h"

namespace subbyte::cuda {

struct ColumnRange {
  int32_t first = 0;
  int32_t count = 0;
};

struct ColumnsCall {
  void* y = nullptr;        // [rows][the sum of all counts], 16-bit numbers
  const void* x = nullptr;  // [rows][x_cols]
  int64_t rows = 0;
  int64_t y_cols = 0;
  int64_t x_cols = 0;
};

/// Errors are left to cudaGetLastError().
void run_columns(const ColumnsCall& call, std::span<const ColumnRange> ranges, Stream stream);

}  // namespace subbyte::cuda
