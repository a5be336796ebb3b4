// Matrices of bytes that programs bring, held to numbers that are worked out here.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "matrix/matrix.h"

namespace subbyte {
namespace {

std::span<const std::byte> bytes_of(const auto& numbers) {
  return std::as_bytes(std::span(numbers));
}

/// Two rows of four inputs in u4 with groups of two, scales in f32 and zero points.
struct SmallMatrix {
  std::array<uint8_t, 4> codes = {0x21, 0x43, 0x65, 0x87};  // 1 2 3 4, 5 6 7 8
  std::array<float, 4> scales = {0.5f, 2.0f, -1.0f, 0.25f};
  std::array<uint8_t, 4> zeros = {1, 2, 3, 8};

  MatrixView view() const {
    return {.format = {Format::kU4, Format::kF32, Zero::kU8, 2},
            .rows = 2,
            .cols = 4,
            .codes = bytes_of(codes),
            .scales = bytes_of(scales),
            .zeros = bytes_of(zeros)};
  }
};

TEST(GivenMatrix, dequantizes_what_its_bytes_say) {
  const SmallMatrix small;
  const Matrix w = Matrix::of(small.view()).value();
  std::vector<double> numbers(8);
  ASSERT_TRUE(w.dequantize(0, numbers).ok());
  EXPECT_EQ(numbers, (std::vector<double>{0, 0.5, 2, 4, -2, -3, -0.25, 0}));
  std::vector<float> row(4);
  ASSERT_TRUE(w.dequantize(1, row).ok());
  EXPECT_EQ(row, (std::vector<float>{-2, -3, -0.25f, 0}));
  EXPECT_EQ(to_string(w.view.format), "u4 g2 scale f32 zero u8");
  EXPECT_EQ(w.view.bytes(), 4 + 16 + 4);
}

TEST(GivenMatrix, puts_stored_columns_at_their_inputs) {
  const SmallMatrix small;
  const std::array<uint32_t, 4> order = {3, 0, 1, 2};
  MatrixView view = small.view();
  view.input_order = order;
  std::vector<double> row(4);
  ASSERT_TRUE(Matrix::of(view).value().dequantize(0, row).ok());
  EXPECT_EQ(row, (std::vector<double>{0.5, 2, 4, 0}));
}

TEST(GivenMatrix, keeps_the_owner_of_its_bytes) {
  auto small = std::make_shared<const SmallMatrix>();
  const std::weak_ptr<const SmallMatrix> watch = small;
  const MatrixView view = small->view();
  auto w = std::make_unique<Matrix>(Matrix::of(view, std::move(small)).value());
  const Matrix copy = *w;
  w.reset();
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(copy.view.codes.data(), view.codes.data());
}

std::string refusal_of(const MatrixView& view) {
  const auto made = Matrix::of(view);
  if (made.ok()) return "none";
  EXPECT_EQ(made.error().code, "matrix.argument");
  return made.error().message;
}

TEST(GivenMatrix, refuses_bytes_that_disagree_with_the_description) {
  const SmallMatrix small;
  const MatrixView good = small.view();
  const auto with = [&](auto change) {
    MatrixView view = good;
    change(view);
    return refusal_of(view);
  };
  EXPECT_EQ(refusal_of(good), "none");
  EXPECT_EQ(with([](auto& p) { p.codes = p.codes.first(3); }),
            "matrix: codes: expected 4 bytes, found 3");
  EXPECT_EQ(with([](auto& p) { p.scales = {}; }), "matrix: scales: expected 16 bytes, found 0");
  EXPECT_EQ(with([](auto& p) {
              p.codes = {static_cast<const std::byte*>(nullptr), 4};
            }),
            "matrix: codes: expected 4 bytes, found 4");
  EXPECT_EQ(with([](auto& p) { p.rows = int64_t{1} << 40; }),
            "matrix: rows and cols: expected up to 2^24, and a column, found 1099511627776 and 4");
  EXPECT_EQ(with([](auto& p) { p.format.group_size = -1; }),
            "matrix: group_size: expected 0 to 2^24, found -1");
  EXPECT_EQ(with([](auto& p) { p.format.scale = Format::kE2M1; }),
            "matrix: scale: expected whole bytes or integers, found e2m1");
  EXPECT_EQ(with([](auto& p) { p.format.element = static_cast<Format>(200); }),
            "matrix: element: expected a format, found 200");
  EXPECT_EQ(with([](auto& p) { p.tensor_scale = std::nan(""); }),
            "matrix: tensor_scale: expected a finite number, found nan");
  const std::array<uint32_t, 4> twice = {0, 1, 1, 3};
  EXPECT_EQ(with([&](auto& p) { p.input_order = twice; }),
            "matrix: input_order: expected every input once, found 1 at column 2");
}

TEST(GivenMatrix, is_checked_again_where_nobody_has_made_it) {
  std::vector<float> numbers(8);
  EXPECT_EQ(Matrix{}.dequantize(0, numbers).error().code, "matrix.argument");
  const SmallMatrix small;
  Matrix w = Matrix::of(small.view()).value();
  w.view.codes = w.view.codes.first(3);
  EXPECT_EQ(w.dequantize(0, numbers).error().code, "matrix.argument");
  const std::array<float, 4> few = {};
  EXPECT_EQ(refusal_of({.format = {Format::kVQ4, Format::kF32, Zero::kNone, 4},
                        .rows = 1,
                        .cols = 4,
                        .codes = bytes_of(small.codes).first(2),
                        .scales = bytes_of(few).first(4)})
                .substr(0, 18),
            "matrix: codebook: ");
}

TEST(GivenMatrix, refuses_rows_that_are_not_there) {
  const SmallMatrix small;
  const Matrix w = Matrix::of(small.view()).value();
  std::vector<float> numbers(8);
  EXPECT_EQ(w.dequantize(1, numbers).error().code, "matrix.argument");
  EXPECT_EQ(w.dequantize(-1, numbers).error().code, "matrix.argument");
  EXPECT_EQ(w.dequantize(0, std::span(numbers).first(7)).error().code, "matrix.argument");
}

}  // namespace
}  // namespace subbyte
