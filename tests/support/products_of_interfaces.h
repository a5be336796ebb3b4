#pragma once
// Products that every interface computes to the same bits: formats, shapes and rows of x.

#include <cstdint>
#include <vector>

#include "formats/weight_format.h"

namespace subbyte::testing {

inline constexpr WeightFormat kProductFormats[] = {
    {Format::kU4, Format::kF16, Zero::kU8, 128},
    {Format::kI4, Format::kBF16, Zero::kNone, 32},
    {Format::kU8, Format::kF16, Zero::kU16, 64},
    {Format::kU3, Format::kF16, Zero::kU8, 32},
    {Format::kU2, Format::kF16, Zero::kU8, 16},
    {Format::kE2M1, Format::kE8M0, Zero::kNone, 32},
    {Format::kE2M1, Format::kE4M3, Zero::kNone, 16},
    {Format::kE4M3, Format::kF32, Zero::kNone, 128},
    {Format::kNF4, Format::kF32, Zero::kNone, 64},
    {Format::kI4, Format::kF16, Zero::kF16, 32},
};

inline constexpr int64_t kProductM[] = {1, 7, 64, 300};

struct ProductShape {
  int64_t rows;
  int64_t cols;
};

/// Rows that end within a strip, and inputs that end within a tile.
inline std::vector<ProductShape> product_shapes() {
  std::vector<ProductShape> all;
  for (const int64_t rows : {8, 24, 128, 520, 1032}) {
    for (const int64_t cols : {128, 384, 1024, 2176}) all.push_back({rows, cols});
  }
  return all;
}

}  // namespace subbyte::testing
