#include "matrix/matrix.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/random.h"
#include "gtest/gtest.h"

namespace subbyte {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(std::initializer_list<int> values) {
  Bytes bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

MatrixView view_of(const WeightFormat& format, int64_t rows, int64_t cols, const Bytes& codes,
                   const Bytes& scales = {}, const Bytes& zeros = {}) {
  return {.format = format,
          .rows = rows,
          .cols = cols,
          .codes = codes,
          .scales = scales,
          .zeros = zeros,
          .codebook = {},
          .input_order = {}};
}

void expect_row(const MatrixView& matrix, int64_t row, const std::vector<uint32_t>& codes) {
  ASSERT_EQ(matrix.cols, static_cast<int64_t>(codes.size()));
  for (int64_t col = 0; col < matrix.cols; ++col) {
    EXPECT_EQ(code_at(matrix, row, col), codes[static_cast<std::size_t>(col)]) << col;
  }
}

TEST(Matrix, four_bit_codes_lie_low_nibble_first) {
  const Bytes codes = bytes_of({0x21, 0x43, 0x98, 0xFA});
  const MatrixView matrix = view_of({.element = Format::kU4}, 2, 4, codes);
  EXPECT_EQ(matrix.row_bytes(), 2);
  expect_row(matrix, 0, {1, 2, 3, 4});
  expect_row(matrix, 1, {8, 9, 10, 15});
}

TEST(Matrix, scales_and_offsets_of_two_levels_have_factors_after_the_groups_of_a_row) {
  // 288 inputs: groups of 32, nine a row, and two factors, of 256 and 32 inputs. The code is 5.
  const WeightFormat format = {Format::kU4, Format::kI6, Zero::kOffsetU6, 32};
  const Bytes codes(2 * 144, std::byte{0x55});
  const Bytes scales = bytes_of({33,   34,   35,   36,   37, 38, 39, 40, 0,   //
                                 0x00, 0x3C, 0x00, 0xC0,                      // 1 and -2
                                 31,   63,   32,   32,   32, 32, 32, 32, 35,  //
                                 0x00, 0x38, 0x00, 0x34});                    // 1/2 and 1/4
  const Bytes zeros = bytes_of({0,    1,    2,    3,    4, 5, 6, 7, 63,       //
                                0x00, 0xBC, 0x00, 0x44,                       // -1 and 4
                                0,    0,    0,    0,    0, 0, 0, 8, 9,        //
                                0x00, 0x40, 0x00, 0x00});                     // 2 and 0
  const MatrixView matrix = view_of(format, 2, 288, codes, scales, zeros);
  ASSERT_TRUE(Matrix::of(matrix).ok()) << Matrix::of(matrix).error().message;
  EXPECT_EQ(matrix.scale_row_bytes(), 13);
  EXPECT_EQ(weight_at(matrix, 0, 0), 5);
  EXPECT_EQ(weight_at(matrix, 0, 33), 5 * 2 - 1);
  EXPECT_EQ(weight_at(matrix, 0, 255), 5 * 8 - 7);
  EXPECT_EQ(weight_at(matrix, 0, 256), 5 * -32 * -2 + 63 * 4);
  EXPECT_EQ(weight_at(matrix, 1, 31), 5 * -0.5);
  EXPECT_EQ(weight_at(matrix, 1, 32), 5 * 31 * 0.5);
  EXPECT_EQ(weight_at(matrix, 1, 224), 8 * 2);
  EXPECT_EQ(weight_at(matrix, 1, 287), 5 * 3 * 0.25);
}

TEST(Matrix, groups_of_two_levels_are_parts_of_256_inputs) {
  const Bytes bytes(1024);
  const auto refused = [&](int64_t group_size, int64_t cols) {
    MatrixView view = view_of({Format::kU4, Format::kU6, Zero::kNone, group_size}, 1, cols, bytes);
    view.codes = std::span(bytes).first(view.row_bytes());
    view.scales = std::span(bytes).first(view.scale_row_bytes());
    const auto matrix = Matrix::of(view);
    return matrix.ok() ? "" : matrix.error().message;
  };
  EXPECT_EQ(refused(256, 1024), "");
  EXPECT_EQ(refused(8, 264), "");
  for (const int64_t size : {0, 24, 512}) {
    EXPECT_EQ(refused(size, 512),
              "matrix: group_size: expected a part of 256 where scales have two levels, found " +
                  std::to_string(size));
  }
}

TEST(Matrix, three_bit_codes_cross_bytes) {
  // Lowest bit first: 100 010 11|0 001 101 0|11 111 000
  const Bytes codes = bytes_of({0xD1, 0x58, 0x1F});
  expect_row(view_of({.element = Format::kU3}, 1, 8, codes), 0, {1, 2, 3, 4, 5, 6, 7, 0});
}

TEST(Matrix, five_bit_codes_cross_bytes) {
  // 10000 010|00 11000 1|1111  : 1, 2, 3, 31; the upper 4 bits of the last byte are padding
  const Bytes codes = bytes_of({0x41, 0x8C, 0x0F});
  expect_row(view_of({.element = Format::kU5}, 1, 4, codes), 0, {1, 2, 3, 31});
}

TEST(Matrix, two_bit_and_whole_byte_codes) {
  const Bytes codes = bytes_of({0xE4, 0x1B});
  expect_row(view_of({.element = Format::kU2}, 1, 8, codes), 0, {0, 1, 2, 3, 3, 2, 1, 0});
  expect_row(view_of({.element = Format::kU8}, 1, 2, codes), 0, {0xE4, 0x1B});
  expect_row(view_of({.element = Format::kBF16}, 1, 1, codes), 0, {0x1BE4});
  const Bytes word = bytes_of({0x78, 0x56, 0x34, 0xF2});
  expect_row(view_of({.element = Format::kF32}, 1, 1, word), 0, {0xF2345678u});
}

TEST(Matrix, every_width_reads_what_bit_by_bit_packing_wrote) {
  Random random(11);
  for (const char* name : {"u2", "u3", "u4", "u5", "u6", "u7", "u8", "f16", "f32"}) {
    const WeightFormat format = {.element = find_format(name).value()};
    const int width = bits(format.element);
    const int64_t rows = 3;
    for (int64_t cols = 1; cols <= 19; ++cols) {
      const int64_t row_bytes = (cols * width + 7) / 8;
      // Exactly as large as the codes: the address sanitizer sees a read beyond them.
      Bytes bytes(static_cast<std::size_t>(rows * row_bytes));
      std::vector<uint32_t> codes;
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t col = 0; col < cols; ++col) {
          codes.push_back(static_cast<uint32_t>(random.below(uint64_t{1} << width)));
          for (int bit = 0; bit < width; ++bit) {
            const int64_t at = row * row_bytes * 8 + col * width + bit;
            if ((codes.back() >> bit & 1) == 0) continue;
            bytes[static_cast<std::size_t>(at / 8)] |= std::byte{1} << (at % 8);
          }
        }
      }
      const MatrixView matrix = view_of(format, rows, cols, bytes);
      ASSERT_EQ(matrix.row_bytes(), row_bytes);
      for (int64_t i = 0; i < rows * cols; ++i) {
        ASSERT_EQ(code_at(matrix, i / cols, i % cols), codes[static_cast<std::size_t>(i)])
            << name << " cols " << cols << " at " << i;
      }
    }
  }
}

TEST(Matrix, dense_weights_are_their_elements) {
  const Bytes codes = bytes_of({0x80, 0x3F, 0x00, 0xC0});  // 1, -2 as bf16
  const MatrixView matrix = view_of({.element = Format::kBF16}, 2, 1, codes);
  EXPECT_EQ(matrix.groups(), 0);
  EXPECT_EQ(weight_at(matrix, 0, 0), 1);
  EXPECT_EQ(weight_at(matrix, 1, 0), -2);
}

TEST(Matrix, dense_weights_have_the_factor_of_the_tensor) {
  const Bytes codes = bytes_of({0x80, 0x3F, 0x00, 0xC0});  // 1, -2 as bf16
  MatrixView matrix = view_of({.element = Format::kBF16}, 2, 1, codes);
  matrix.tensor_scale = 0.37;
  EXPECT_EQ(weight_at(matrix, 0, 0), 0.37);
  EXPECT_EQ(weight_at(matrix, 1, 0), -0.74);
}

TEST(Matrix, a_group_of_any_size_covers_a_row) {
  for (const int64_t cols : {1, 2, 64}) {
    for (const int64_t size :
         {cols, cols + 1, int64_t{1} << 40, std::numeric_limits<int64_t>::max()}) {
      const WeightFormat format = {Format::kU4, Format::kF16, Zero::kNone, size};
      EXPECT_EQ(view_of(format, 1, cols, {}).groups(), 1) << cols << " in groups of " << size;
    }
  }
  EXPECT_EQ(view_of({Format::kU4, Format::kF16, Zero::kNone, 24}, 1, 64, {}).groups(), 3);
  EXPECT_EQ(view_of({Format::kU4, Format::kF16, Zero::kNone, 0}, 1, 0, {}).groups(), 0);
}

TEST(Matrix, each_group_has_its_scale_and_zero_point) {
  // 2 rows of 4 codes, groups of 2; scales 1, 2, 0.5, -1; zeros 0, 3, 8, 15
  const WeightFormat format = {Format::kU4, Format::kF16, Zero::kU8, 2};
  const Bytes codes = bytes_of({0x21, 0x43, 0x98, 0xFA});
  const Bytes scales = bytes_of({0x00, 0x3C, 0x00, 0x40, 0x00, 0x38, 0x00, 0xBC});
  const Bytes zeros = bytes_of({0, 3, 8, 15});
  const MatrixView matrix = view_of(format, 2, 4, codes, scales, zeros);
  EXPECT_EQ(matrix.groups(), 2);
  EXPECT_EQ(matrix.bytes(), 4 + 8 + 4);
  const double expected[2][4] = {{1, 2, 0, 2}, {0, 0.5, 5, 0}};
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t col = 0; col < 4; ++col) {
      EXPECT_EQ(weight_at(matrix, row, col), expected[row][col]) << row << " " << col;
    }
  }
}

TEST(Matrix, sixteen_bit_zero_points_reach_256) {
  const WeightFormat format = {Format::kU8, Format::kF16, Zero::kU16, 1};
  const Bytes codes = bytes_of({255, 1});
  const Bytes scales = bytes_of({0x00, 0x3C, 0x00, 0x40});
  const Bytes zeros = bytes_of({0x00, 0x01, 0x02, 0x00});
  const MatrixView matrix = view_of(format, 1, 2, codes, scales, zeros);
  EXPECT_EQ(weight_at(matrix, 0, 0), -1);
  EXPECT_EQ(weight_at(matrix, 0, 1), -2);
}

/// tinygemm's (q - 8) s + z, and q s + z.
TEST(Matrix, offsets_are_added_after_scaling) {
  const Bytes codes = bytes_of({0x21, 0x43, 0x98, 0xFA});
  const Bytes scales = bytes_of({0x00, 0x3C, 0x00, 0x40, 0x00, 0x38, 0x00, 0xBC});
  const Bytes f16 = bytes_of({0x00, 0x3E, 0x00, 0xC0, 0x00, 0x80, 0x00, 0x34});   // 1.5 -2 -0 0.25
  const Bytes bf16 = bytes_of({0xC0, 0x3F, 0x00, 0xC0, 0x00, 0x80, 0x80, 0x3E});  // the same
  const double with_signed[2][4] = {{-5.5, -4.5, -12, -10}, {0, 0.5, -1.75, -6.75}};
  const double with_unsigned[2][4] = {{2.5, 3.5, 4, 6}, {4, 4.5, -9.75, -14.75}};
  for (const Zero zero : {Zero::kF16, Zero::kBF16}) {
    MatrixView matrix = view_of({Format::kI4, Format::kF16, zero, 2}, 2, 4, codes, scales,
                                zero == Zero::kF16 ? f16 : bf16);
    EXPECT_EQ(matrix.bytes(), 4 + 8 + 8);
    for (int64_t row = 0; row < 2; ++row) {
      for (int64_t col = 0; col < 4; ++col) {
        matrix.format.element = Format::kI4;
        matrix.tensor_scale = 1;
        EXPECT_EQ(weight_at(matrix, row, col), with_signed[row][col]) << row << " " << col;
        matrix.tensor_scale = 0.5;
        EXPECT_EQ(weight_at(matrix, row, col), 0.5 * with_signed[row][col]);
        matrix.format.element = Format::kU4;
        EXPECT_EQ(weight_at(matrix, row, col), 0.5 * with_unsigned[row][col]);
      }
    }
  }
}

TEST(Matrix, mxfp4_block_by_hand) {
  // The block that transformers reads as -0.25, 0.1875, ...: byte 0x5E with scale 123 (2^-4).
  const WeightFormat format = {Format::kE2M1, Format::kE8M0, Zero::kNone, 2};
  const Bytes codes = bytes_of({0x5E, 0x7F});
  const Bytes scales = bytes_of({123, 128});
  const MatrixView matrix = view_of(format, 1, 4, codes, scales);
  EXPECT_EQ(weight_at(matrix, 0, 0), -0.25);
  EXPECT_EQ(weight_at(matrix, 0, 1), 0.1875);
  EXPECT_EQ(weight_at(matrix, 0, 2), -12);
  EXPECT_EQ(weight_at(matrix, 0, 3), 12);
}

TEST(Matrix, nan_scale_makes_the_block_nan) {
  const WeightFormat format = {Format::kE2M1, Format::kE8M0, Zero::kNone, 2};
  const Bytes codes = bytes_of({0x00, 0x11});
  const Bytes scales = bytes_of({255, 127});
  const MatrixView matrix = view_of(format, 1, 4, codes, scales);
  EXPECT_TRUE(std::isnan(weight_at(matrix, 0, 0)));
  EXPECT_EQ(weight_at(matrix, 0, 2), 0.5);
}

TEST(Matrix, four_byte_scales) {
  const WeightFormat format = {Format::kI4, Format::kF32, Zero::kNone, 0};
  const Bytes codes = bytes_of({0x9F, 0x70});
  const Bytes scales = bytes_of({0x00, 0x00, 0x80, 0x3E, 0x00, 0x00, 0x00, 0x40});  // 0.25, 2
  const MatrixView matrix = view_of(format, 2, 2, codes, scales);
  EXPECT_EQ(matrix.group_size(), 2);
  EXPECT_EQ(matrix.groups(), 1);
  EXPECT_EQ(weight_at(matrix, 0, 0), 7 * 0.25);
  EXPECT_EQ(weight_at(matrix, 0, 1), 1 * 0.25);
  EXPECT_EQ(weight_at(matrix, 1, 0), -16);
  EXPECT_EQ(weight_at(matrix, 1, 1), -2);
}

TEST(Matrix, last_group_may_be_shorter) {
  const WeightFormat format = {Format::kU4, Format::kF16, Zero::kNone, 2};
  const Bytes codes = bytes_of({0x21, 0x03, 0x54, 0x06});
  const Bytes scales = bytes_of({0x00, 0x3C, 0x00, 0x40, 0x00, 0x44, 0x00, 0x48});  // 1 2 4 8
  const MatrixView matrix = view_of(format, 2, 3, codes, scales);
  EXPECT_EQ(matrix.groups(), 2);
  EXPECT_EQ(weight_at(matrix, 0, 1), 2);
  EXPECT_EQ(weight_at(matrix, 0, 2), 6);
  EXPECT_EQ(weight_at(matrix, 1, 1), 20);
  EXPECT_EQ(weight_at(matrix, 1, 2), 48);
}

TEST(Matrix, act_order_does_not_move_stored_columns) {
  const WeightFormat format = {Format::kU4, Format::kF16, Zero::kNone, 0};
  const Bytes codes = bytes_of({0x21});
  const Bytes scales = bytes_of({0x00, 0x3C});
  const std::vector<uint32_t> order = {1, 0};
  MatrixView matrix = view_of(format, 1, 2, codes, scales);
  matrix.input_order = order;
  EXPECT_EQ(weight_at(matrix, 0, 0), 1);
  EXPECT_EQ(weight_at(matrix, 0, 1), 2);
  EXPECT_EQ(matrix.bytes(), 1 + 2 + 8);
}

}  // namespace
}  // namespace subbyte
