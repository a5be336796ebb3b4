#include "matrix/dequantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <numeric>

#include "support/random_matrix.h"

namespace subbyte {
namespace {

using testing::Contents;
using testing::random_matrix;

const WeightFormat kFormats[] = {{Format::kU4, Format::kF16, Zero::kU8, 32},
                                 {Format::kU3, Format::kBF16, Zero::kU8, 16},
                                 {Format::kU8, Format::kF32, Zero::kU16, 0},
                                 {Format::kI5, Format::kF16, Zero::kNone, 32},
                                 {Format::kE2M1, Format::kE8M0, Zero::kNone, 32},
                                 {Format::kE2M1, Format::kE4M3, Zero::kNone, 16},
                                 {Format::kNF4, Format::kF32, Zero::kNone, 64},
                                 {Format::kI4, Format::kBF16, Zero::kBF16, 32},
                                 {Format::kU3, Format::kF32, Zero::kF16, 64},
                                 {Format::kI4, Format::kF32, Zero::kF32, 32},
                                 {Format::kU4, Format::kU6, Zero::kOffsetU6, 32},
                                 {Format::kU3, Format::kI6, Zero::kU8, 16},
                                 {Format::kI6, Format::kI8, Zero::kNone, 16},
                                 {Format::kF32, Format::kNone, Zero::kNone, 0},
                                 {Format::kF16, Format::kNone, Zero::kNone, 0},
                                 {Format::kBF16, Format::kNone, Zero::kNone, 0}};

constexpr int64_t kCols = 320;

TEST(Dequantizer, gives_the_bits_of_weight_at_in_the_order_of_the_inputs) {
  for (const WeightFormat& format : kFormats) {
    for (const bool sorted : {false, true}) {
      if (sorted && has_two_levels(format)) continue;  // no such matrix
      auto matrix = random_matrix(format, 5, kCols, Contents::kReal, 3);
      std::vector<uint32_t> order(kCols);
      std::iota(order.rbegin(), order.rend(), 0u);
      if (sorted) matrix.view.input_order = order;
      matrix.view.tensor_scale = 1 / 3.0;
      const Dequantizer dequantizer(matrix.view);
      std::vector<double> row(kCols);
      for (int64_t n = 0; n < 5; ++n) {
        dequantizer.row(n, row.data());
        for (int64_t k = 0; k < kCols; ++k) {
          const double expected = weight_at(matrix.view, n, k);
          const double found = row[sorted ? order[k] : k];
          ASSERT_EQ(std::bit_cast<uint64_t>(found), std::bit_cast<uint64_t>(expected))
              << to_string(format) << " " << n << " " << k;
        }
      }
    }
  }
}

}  // namespace
}  // namespace subbyte
