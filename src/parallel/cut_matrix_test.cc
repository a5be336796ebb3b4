#include "parallel/cut_matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "matrix/given_matrix.h"
#include "parallel/shares.h"
#include "support/random_matrix.h"

namespace subbyte {
namespace {

using testing::Contents;
using testing::random_matrix;

constexpr int64_t kRows = 6;
constexpr int64_t kCols = 768;

/// A format of each kind that the canonical form has.
const std::vector<WeightFormat>& formats() {
  static const std::vector<WeightFormat> all = {
      {Format::kBF16},
      {Format::kF32},
      {Format::kU4, Format::kF16, Zero::kU8, 128},
      {Format::kU4, Format::kF16, Zero::kU8, 0},
      {Format::kU3, Format::kBF16, Zero::kU8, 32},
      {Format::kU8, Format::kF32, Zero::kU16, 64},
      {Format::kI4, Format::kBF16, Zero::kBF16, 32},
      {Format::kU2, Format::kF16, Zero::kF16, 2048},
      {Format::kE2M1, Format::kE8M0, Zero::kNone, 32},
      {Format::kE2M1, Format::kE4M3, Zero::kNone, 16},
      {Format::kE4M3, Format::kF32, Zero::kNone, 128},
      {Format::kU4, Format::kU6, Zero::kOffsetU6, 32},
      {Format::kI6, Format::kI8, Zero::kNone, 16},
      {Format::kNF4, Format::kF32, Zero::kNone, 64},
      {Format::kVQ2, Format::kE4M4, Zero::kNone, 32},
      {Format::kU4, Format::kF16, Zero::kNone, 32, 64},
  };
  return all;
}

std::vector<double> numbers_of(const MatrixView& view) {
  std::vector<double> numbers(static_cast<std::size_t>(view.rows * view.cols));
  EXPECT_TRUE((Matrix{view, {}}.dequantize(0, std::span<double>(numbers)).ok()));
  return numbers;
}

/// Of the whole the numbers of these rows and inputs.
std::vector<double> chosen(const MatrixView& whole, const Columns& rows, const Columns& cols) {
  const std::vector<double> all = numbers_of(whole);
  std::vector<double> found;
  for (const ColumnRange& row_range : rows) {
    for (int64_t row = row_range.first; row < row_range.end(); ++row) {
      for (const ColumnRange& range : cols) {
        const auto from = all.begin() + row * whole.cols + range.first;
        found.insert(found.end(), from, from + range.count);
      }
    }
  }
  return found;
}

TEST(CutMatrix, rows_are_those_of_the_whole) {
  const Columns all = {{0, kCols}};
  for (const WeightFormat& format : formats()) {
    SCOPED_TRACE(to_string(format));
    const auto whole = random_matrix(format, kRows, kCols, Contents::kReal, 1);
    for (const Columns& rows : {Columns{{1, 3}}, Columns{{4, 2}, {0, 1}}}) {
      const Matrix cut = cut_rows({whole.view, {}}, rows);
      ASSERT_TRUE(check_matrix(cut.view).ok());
      EXPECT_EQ(numbers_of(cut.view), chosen(whole.view, rows, all));
    }
  }
}

TEST(CutMatrix, columns_are_those_of_the_whole) {
  const Columns all = {{0, kRows}};
  for (const WeightFormat& format : formats()) {
    SCOPED_TRACE(to_string(format));
    const auto whole = random_matrix(format, kRows, kCols, Contents::kReal, 2);
    for (const Columns& cols : {Columns{{256, 512}}, Columns{{512, 256}, {0, 256}}}) {
      ASSERT_TRUE(stored_columns(whole.view, cols));
      const Matrix cut = cut_columns({whole.view, {}}, cols);
      ASSERT_TRUE(check_matrix(cut.view).ok());
      EXPECT_EQ(numbers_of(cut.view), chosen(whole.view, all, cols));
    }
  }
}

TEST(CutMatrix, parts_of_all_units_are_those_of_the_whole) {
  for (const WeightFormat& format : formats()) {
    SCOPED_TRACE(to_string(format));
    const auto whole = random_matrix(format, kRows, kCols, Contents::kReal, 3);
    for (const Columns& part : even_parts(kCols, column_unit(whole.view), 3)) {
      const Matrix cut = cut_columns({whole.view, {}}, part);
      ASSERT_TRUE(check_matrix(cut.view).ok());
      EXPECT_EQ(numbers_of(cut.view), chosen(whole.view, {{0, kRows}}, part));
    }
  }
}

TEST(CutMatrix, parts_with_act_order_have_no_order) {
  const WeightFormat format = {Format::kU4, Format::kF16, Zero::kU8, 128};
  auto whole = random_matrix(format, kRows, kCols, Contents::kReal, 4);
  std::vector<uint32_t> order(kCols);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::reverse(order);
  std::swap(order[5], order[700]);
  whole.view.input_order = order;
  for (const Columns& stored : even_parts(kCols, 128, 3)) {
    const Columns inputs = inputs_of(whole.view, stored);
    ASSERT_EQ(stored_columns(whole.view, inputs), stored);
    const Matrix cut = cut_columns({whole.view, {}}, inputs);
    EXPECT_TRUE(cut.view.input_order.empty());
    EXPECT_EQ(numbers_of(cut.view), chosen(whole.view, {{0, kRows}}, inputs));
  }
  EXPECT_FALSE(stored_columns(whole.view, {{0, 384}}));
}

TEST(CutMatrix, copies_let_go_of_the_whole) {
  const WeightFormat format = {Format::kU4, Format::kF16, Zero::kU8, 128};
  const auto bytes = random_matrix(format, kRows, kCols, Contents::kReal, 6);
  auto owner = std::make_shared<int>(0);
  const std::weak_ptr<int> whole = owner;
  Matrix matrix = {bytes.view, {std::move(owner)}};
  const Matrix cols = cut_columns(matrix, {{0, 128}});
  const Matrix rows = cut_rows(matrix, {{0, 1}, {4, 2}});
  Matrix one_range = cut_rows(matrix, {{0, 2}});
  matrix = {};
  EXPECT_FALSE(whole.expired());
  EXPECT_EQ(one_range.owners.size(), 1u);
  EXPECT_EQ(cols.owners.size(), 3u);  // codes, scales, zeros
  EXPECT_EQ(rows.owners.size(), 3u);
  one_range = {};
  EXPECT_TRUE(whole.expired());
}

TEST(CutMatrix, groups_are_not_cut) {
  const auto whole =
      random_matrix({Format::kU4, Format::kF16, Zero::kU8, 128}, kRows, 320, Contents::kReal, 5);
  EXPECT_EQ(column_unit(whole.view), 128);
  EXPECT_TRUE(stored_columns(whole.view, {{256, 64}}));
  EXPECT_FALSE(stored_columns(whole.view, {{0, 64}}));
  EXPECT_FALSE(stored_columns(whole.view, {{256, 64}, {0, 128}}));
}

}  // namespace
}  // namespace subbyte
