#include "matrix/float_rows.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/random_matrix.h"

namespace subbyte {
namespace {

using subbyte::testing::Contents;
using subbyte::testing::random_matrix;
using subbyte::testing::RandomMatrix;

/// The rows of `ids`, one after the other.
std::vector<float> rows_of(const MatrixView& matrix, const std::vector<int64_t>& ids) {
  std::vector<float> rows(ids.size() * matrix.cols, NAN);
  const FloatRows reader(matrix);
  for (std::size_t i = 0; i < ids.size(); ++i) reader.row(ids[i], &rows[i * matrix.cols]);
  return rows;
}

TEST(FloatRows, copies_rows_of_every_dense_format) {
  for (const Format format : {Format::kF32, Format::kF16, Format::kBF16}) {
    for (const int64_t hidden : {1, 7, 64}) {
      // The last row ends at a page that faults.
      const RandomMatrix table =
          random_matrix({format, Format::kNone, Zero::kNone, 0}, 11, hidden, Contents::kReal, 1);
      const std::vector<int64_t> ids = {10, 0, 3, 3, 10};
      const std::vector<float> y = rows_of(table.view, ids);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        for (int64_t k = 0; k < hidden; ++k) {
          EXPECT_EQ(y[i * hidden + k], weight_at(table.view, ids[i], k));
        }
      }
    }
  }
}

TEST(FloatRows, rows_of_quantized_tables_are_the_floats_next_to_the_weights) {
  const WeightFormat formats[] = {{Format::kU4, Format::kF16, Zero::kU8, 32},
                                  {Format::kU8, Format::kF16, Zero::kU16, 64},
                                  {Format::kU8, Format::kF32, Zero::kU16, 0},
                                  {Format::kU3, Format::kBF16, Zero::kU8, 8},
                                  {Format::kU2, Format::kF16, Zero::kU8, 0},
                                  {Format::kE2M1, Format::kE8M0, Zero::kNone, 32},
                                  {Format::kI4, Format::kBF16, Zero::kBF16, 32},
                                  {Format::kU3, Format::kF16, Zero::kF16, 0}};
  for (const WeightFormat& format : formats) {
    for (const int64_t hidden : {64, 192}) {
      const RandomMatrix table = random_matrix(format, 9, hidden, Contents::kReal, 3);
      const std::vector<int64_t> ids = {8, 0, 5, 5};
      const std::vector<float> y = rows_of(table.view, ids);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        for (int64_t k = 0; k < hidden; ++k) {
          // The difference is exact in either type, so both round the same product once, as is a
          // product before an offset, so both round the same sum once.
          EXPECT_EQ(y[i * hidden + k], static_cast<float>(weight_at(table.view, ids[i], k)))
              << to_string(format) << ", row " << ids[i] << ", column " << k;
        }
      }
    }
  }
}

TEST(FloatRows, puts_sorted_columns_back_in_their_places) {
  const WeightFormat formats[] = {{Format::kU4, Format::kF16, Zero::kU8, 8},
                                  {Format::kI4, Format::kF32, Zero::kF32, 8},
                                  {Format::kF32},
                                  {Format::kF16},
                                  {Format::kBF16}};
  std::vector<uint32_t> order(16);
  for (uint32_t k = 0; k < 16; ++k) order[k] = (k * 5 + 3) % 16;
  for (const WeightFormat& format : formats) {
    RandomMatrix table = random_matrix(format, 2, 16, Contents::kExact, 4);
    table.view.input_order = order;
    const std::vector<float> y = rows_of(table.view, {1});
    for (int64_t k = 0; k < 16; ++k) {
      EXPECT_EQ(y[order[k]], static_cast<float>(weight_at(table.view, 1, k))) << to_string(format);
    }
  }
}

TEST(FloatRows, keeps_nan_in_its_row) {
  const float table[4] = {1, 2, NAN, 4};
  MatrixView view;
  view.format = {Format::kF32, Format::kNone, Zero::kNone, 0};
  view.rows = 2;
  view.cols = 2;
  view.codes = std::as_bytes(std::span(table));
  const std::vector<float> y = rows_of(view, {1, 0});
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], 4);
  EXPECT_EQ(y[2], 1);
  EXPECT_EQ(y[3], 2);
}

TEST(FloatRows, a_factor_of_the_tensor_is_in_every_weight) {
  const WeightFormat formats[] = {{Format::kE2M1, Format::kE4M3, Zero::kNone, 16},
                                  {Format::kF32},
                                  {Format::kF16},
                                  {Format::kBF16}};
  for (const WeightFormat& format : formats) {
    RandomMatrix table = random_matrix(format, 3, 48, Contents::kReal, 5);
    table.view.tensor_scale = 0.37;
    const std::vector<float> y = rows_of(table.view, {2});
    for (int64_t k = 0; k < 48; ++k) {
      const double weight = weight_at(table.view, 2, k);
      EXPECT_NEAR(y[k], weight, 0x1p-22 * std::abs(weight)) << to_string(format);
    }
  }
}

}  // namespace
}  // namespace subbyte
