#include "matrix/zero_points.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace subbyte {
namespace {

constexpr Format kSigned[] = {Format::kI2, Format::kI3, Format::kI4, Format::kI5,
                              Format::kI6, Format::kI7, Format::kI8};

/// 5 outputs, 64 inputs, groups of 16, scales of random powers of two.
Matrix symmetric(Format element) {
  Random random(static_cast<uint64_t>(element));
  Matrix matrix;
  matrix.view.format = {element, Format::kE8M0, Zero::kNone, 16};
  matrix.view.rows = 5;
  matrix.view.cols = 64;
  const int64_t code_bytes = 5 * matrix.view.row_bytes();
  const auto bytes = allocate_bytes(code_bytes + 20);
  for (int64_t i = 0; i < code_bytes; ++i) bytes[i] = std::byte(random.next() & 0xFF);
  for (int64_t i = 0; i < 20; ++i) bytes[code_bytes + i] = std::byte(120 + random.below(15));
  matrix.view.codes = {bytes.get(), static_cast<std::size_t>(code_bytes)};
  matrix.view.scales = {bytes.get() + code_bytes, 20};
  matrix.owners = {bytes};
  return matrix;
}

TEST(ZeroPoints, both_forms_mean_the_same_weights_in_the_same_bytes) {
  for (const Format element : kSigned) {
    const Matrix i = symmetric(element);
    const Matrix u = with_zero_points(i);
    EXPECT_EQ(u.view.format.zero, element == Format::kI8 ? Zero::kU16 : Zero::kU8);
    EXPECT_EQ(info(u.view.format.element).min, 0);
    EXPECT_EQ(info(u.view.format.element).bits, info(element).bits);
    EXPECT_EQ(u.view.codes.data(), i.view.codes.data());
    for (int64_t n = 0; n < 5; ++n) {
      for (int64_t k = 0; k < 64; ++k) {
        EXPECT_EQ(weight_at(u.view, n, k), weight_at(i.view, n, k));
      }
    }
    const Matrix back = without_zero_points(u);
    EXPECT_EQ(back.view.format, i.view.format);
    EXPECT_TRUE(back.view.zeros.empty());
  }
}

TEST(ZeroPoints, five_to_seven_bits_become_bytes_of_the_same_weights) {
  for (const Format element : kSigned) {
    const Matrix i = symmetric(element);
    const bool widens = element >= Format::kI5 && element <= Format::kI7;
    for (const Matrix& narrow : {i, with_zero_points(i)}) {
      const Matrix wide = with_whole_bytes(narrow);
      const int bits = info(wide.view.format.element).bits;
      EXPECT_EQ(bits, widens ? 8 : info(element).bits);
      EXPECT_EQ(wide.view.format, with_whole_bytes(narrow.view.format));
      EXPECT_EQ(wide.view.codes.data() == narrow.view.codes.data(), !widens);
      for (int64_t n = 0; n < 5; ++n) {
        for (int64_t k = 0; k < 64; ++k) {
          ASSERT_EQ(weight_at(wide.view, n, k), weight_at(i.view, n, k));
        }
      }
    }
  }
}

TEST(ZeroPoints, codes_of_seven_bits_at_the_end_of_a_row_are_its_own) {
  // 3 codes of 7 bits in 3 bytes, 3 bits of which are nobody's: 127, 1 and 64.
  const std::array<std::byte, 3> codes = {std::byte{0xFF}, std::byte{0x00}, std::byte{0xF0}};
  Matrix matrix;
  const std::byte scale{127};
  matrix.view = {
      {Format::kU7, Format::kE8M0, Zero::kNone, 0}, 1, 3, codes, {&scale, 1}, {}, 1, {}, {}};
  const Matrix wide = with_whole_bytes(matrix);
  ASSERT_EQ(wide.view.codes.size(), 3u);
  for (int64_t k = 0; k < 3; ++k) EXPECT_EQ(code_at(wide.view, 0, k), code_at(matrix.view, 0, k));
  EXPECT_EQ(wide.view.codes[0], std::byte{127});
  EXPECT_EQ(wide.view.codes[1], std::byte{1});
  EXPECT_EQ(wide.view.codes[2], std::byte{64});
}

TEST(ZeroPoints, what_has_another_zero_point_stays) {
  Matrix u = with_zero_points(symmetric(Format::kI4));
  const auto zeros = allocate_bytes(20);
  std::ranges::copy(u.view.zeros, zeros.get());
  zeros[19] = std::byte{7};
  u.view.zeros = {zeros.get(), 20};
  EXPECT_EQ(without_zero_points(u).view.format, u.view.format);
  EXPECT_EQ(with_zero_points(u).view.zeros.data(), zeros.get());
}

TEST(ZeroPoints, other_formats_stay) {
  for (const Format element : {Format::kI4, Format::kU4}) {
    Matrix offsets = symmetric(Format::kI4);
    const auto bytes = allocate_bytes(40);  // as integers, all of them 8
    for (int64_t i = 0; i < 20; ++i) bytes[2 * i] = std::byte{8};
    offsets.view.format.element = element;
    offsets.view.format.zero = Zero::kF16;
    offsets.view.zeros = {bytes.get(), 40};
    EXPECT_EQ(with_zero_points(offsets).view.format, offsets.view.format);
    EXPECT_EQ(with_zero_points(offsets).view.zeros.data(), bytes.get());
    EXPECT_EQ(without_zero_points(offsets).view.format, offsets.view.format);
  }
  Matrix fp4 = symmetric(Format::kI4);
  fp4.view.format.element = Format::kE2M1;
  EXPECT_EQ(with_zero_points(fp4).view.format, fp4.view.format);
  EXPECT_EQ(without_zero_points(fp4).view.format, fp4.view.format);
}

}  // namespace
}  // namespace subbyte
