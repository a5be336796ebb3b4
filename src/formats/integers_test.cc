#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include "formats/format.h"

namespace subbyte {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

const FormatInfo& integer(char kind, int bits) {
  return info(find_format(std::string(1, kind) + std::to_string(bits)).value());
}

TEST(Integers, decode_all_codes) {
  for (int bits = 2; bits <= 8; ++bits) {
    const int size = 1 << bits;
    ASSERT_EQ(integer('u', bits).bits, bits);
    ASSERT_EQ(integer('i', bits).bits, bits);
    for (int code = 0; code < size; ++code) {
      EXPECT_EQ(integer('u', bits).decode(static_cast<uint32_t>(code)), code);
      EXPECT_EQ(integer('i', bits).decode(static_cast<uint32_t>(code)), code - size / 2);
    }
  }
}

TEST(Integers, i4_is_offset_binary) {
  const std::vector<double> table = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
  for (uint32_t code = 0; code < 16; ++code) {
    EXPECT_EQ(info(Format::kI4).decode(code), table[code]);
  }
}

TEST(Integers, ranges) {
  EXPECT_EQ(info(Format::kU4).min, 0);
  EXPECT_EQ(info(Format::kU4).max, 15);
  EXPECT_EQ(info(Format::kI2).min, -2);
  EXPECT_EQ(info(Format::kI2).max, 1);
  EXPECT_EQ(info(Format::kI8).min, -128);
  EXPECT_EQ(info(Format::kI8).max, 127);
  EXPECT_EQ(info(Format::kU8).max, 255);
}

TEST(Integers, saturate) {
  for (int bits = 2; bits <= 8; ++bits) {
    const uint32_t last = (1u << bits) - 1;
    for (const char kind : {'u', 'i'}) {
      const FormatInfo& format = integer(kind, bits);
      for (const double excess : {0.25, 0.5, 0.75, 1e9, 1e300, kInf}) {
        for (const Rounding rounding :
             {Rounding::kNearestEven, Rounding::kNearestLowerIndex, Rounding::kTowardZero}) {
          EXPECT_EQ(format.encode(format.max + excess, rounding), last);
          EXPECT_EQ(format.encode(format.min - excess, rounding), 0u);
        }
      }
    }
  }
}

TEST(Integers, nan_becomes_zero) {
  EXPECT_EQ(info(Format::kU4).encode(std::nan(""), Rounding::kNearestEven), 0u);
  EXPECT_EQ(info(Format::kI4).encode(std::nan(""), Rounding::kNearestEven), 8u);
  EXPECT_EQ(info(Format::kI8).encode(-std::nan(""), Rounding::kTowardZero), 128u);
}

TEST(Integers, rounding_rules) {
  const auto i4 = [](double value, Rounding rounding) {
    return info(Format::kI4).decode(info(Format::kI4).encode(value, rounding));
  };
  struct Case {
    double value, even, lower, toward_zero;
  };
  for (const Case& c : std::vector<Case>{{0.5, 0, 0, 0},
                                         {1.5, 2, 1, 1},
                                         {2.5, 2, 2, 2},
                                         {-0.5, 0, -1, 0},
                                         {-1.5, -2, -2, -1},
                                         {-2.5, -2, -3, -2},
                                         {2.75, 3, 3, 2},
                                         {-2.75, -3, -3, -2},
                                         {0.49999999999999994, 0, 0, 0},
                                         {-0.49999999999999994, 0, 0, 0},
                                         {-0.5000000000000001, -1, -1, 0},
                                         {5e-324, 0, 0, 0},
                                         {-5e-324, 0, 0, 0},
                                         {6.5, 6, 6, 6},
                                         {-7.5, -8, -8, -7}}) {
    EXPECT_EQ(i4(c.value, Rounding::kNearestEven), c.even) << c.value;
    EXPECT_EQ(i4(c.value, Rounding::kNearestLowerIndex), c.lower) << c.value;
    EXPECT_EQ(i4(c.value, Rounding::kTowardZero), c.toward_zero) << c.value;
  }
}

}  // namespace
}  // namespace subbyte
