#include "ops/embedding.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/random_matrix.h"

namespace subbyte {
namespace {

using subbyte::testing::Contents;
using subbyte::testing::random_matrix;
using subbyte::testing::RandomMatrix;

TEST(Embed, copies_rows_of_every_dense_format) {
  for (const Format format : {Format::kF32, Format::kF16, Format::kBF16}) {
    for (const int64_t hidden : {1, 7, 64}) {
      // The last row ends at a page that faults.
      const RandomMatrix table =
          random_matrix({format, Format::kNone, Zero::kNone, 0}, 11, hidden, Contents::kReal, 1);
      const std::vector<int32_t> ids = {10, 0, 3, 3, 10};
      std::vector<float> y(ids.size() * hidden, NAN);
      embed(y, ids, table.view);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        for (int64_t k = 0; k < hidden; ++k) {
          EXPECT_EQ(y[i * hidden + k], weight_at(table.view, ids[i], k));
        }
      }
    }
  }
}

TEST(Embed, rows_of_quantized_tables_are_the_floats_next_to_the_weights) {
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
      const std::vector<int32_t> ids = {8, 0, 5, 5};
      std::vector<float> y(ids.size() * hidden, NAN);
      embed(y, ids, table.view);
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

TEST(Embed, puts_sorted_columns_back_in_their_places) {
  RandomMatrix table =
      random_matrix({Format::kU4, Format::kF16, Zero::kU8, 8}, 2, 16, Contents::kReal, 4);
  std::vector<uint32_t> order(16);
  for (uint32_t k = 0; k < 16; ++k) order[k] = (k * 5 + 3) % 16;
  table.view.input_order = order;
  std::vector<float> y(16, NAN);
  embed(y, std::vector<int32_t>{1}, table.view);
  for (int64_t k = 0; k < 16; ++k) {
    EXPECT_EQ(y[order[k]], static_cast<float>(weight_at(table.view, 1, k)));
  }
}

TEST(Embed, keeps_nan_in_its_row) {
  const float table[4] = {1, 2, NAN, 4};
  MatrixView view;
  view.format = {Format::kF32, Format::kNone, Zero::kNone, 0};
  view.rows = 2;
  view.cols = 2;
  view.codes = std::as_bytes(std::span(table));
  std::vector<float> y(4);
  embed(y, std::vector<int32_t>{1, 0}, view);
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], 4);
  EXPECT_EQ(y[2], 1);
  EXPECT_EQ(y[3], 2);
}

TEST(Embed, of_nothing_is_nothing) {
  const RandomMatrix table =
      random_matrix({Format::kBF16, Format::kNone, Zero::kNone, 0}, 2, 8, Contents::kReal, 2);
  embed({}, {}, table.view);
}

}  // namespace
}  // namespace subbyte
