#include "formats/weight_format.h"

#include <gtest/gtest.h>

#include "formats/weight_format_text.h"

namespace subbyte {
namespace {

constexpr WeightFormat kMxfp4 = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};
constexpr WeightFormat kAwq = {Format::kU4, Format::kF16, Zero::kU8, 128};
constexpr WeightFormat kQ4K = {Format::kU4, Format::kU6, Zero::kOffsetU6, 32};
constexpr WeightFormat kQ6K = {Format::kI6, Format::kI8, Zero::kNone, 16};

TEST(WeightFormat, counts_bits_with_scales_and_zero_points) {
  EXPECT_EQ(bits_per_weight(kMxfp4, 2880), 4.25);
  EXPECT_EQ(bits_per_weight(kAwq, 4096), 4.1875);
  EXPECT_EQ(bits_per_weight({Format::kE2M1, Format::kE4M3, Zero::kNone, 16}, 4096), 4.5);
  EXPECT_EQ(bits_per_weight({Format::kU8, Format::kF16, Zero::kU16, 32}, 64), 9.0);
  EXPECT_EQ(bits_per_weight({Format::kI4, Format::kF16, Zero::kF16, 32}, 64), 5.0);
  EXPECT_EQ(bits_per_weight({Format::kI4, Format::kF32, Zero::kF32, 32}, 64), 6.0);
  EXPECT_EQ(bits_per_weight({.element = Format::kBF16}, 100), 16);
  EXPECT_EQ(bits_per_weight(kQ4K, 4096), 4 + 2 * (8 * 8 + 16) / 256.0);
  EXPECT_EQ(bits_per_weight(kQ6K, 512), 6 + (16 * 8 + 16) / 256.0);
  EXPECT_EQ(bits_per_weight(kQ6K, 288), 6 + (18 * 8 + 2 * 16) / 288.0);
}

TEST(WeightFormat, counts_a_group_that_is_not_full) {
  EXPECT_EQ(bits_per_weight(kMxfp4, 40), 4 + 2 * 8 / 40.0);
  EXPECT_EQ(bits_per_weight({Format::kU4, Format::kF16, Zero::kNone, INT64_MAX}, 64), 4.25);
  EXPECT_EQ(bits_per_weight(kMxfp4, 0), 4);
}

TEST(WeightFormat, group_size_zero_is_the_row) {
  EXPECT_EQ(bits_per_weight({Format::kI4, Format::kF16, Zero::kNone, 0}, 64), 4.25);
}

TEST(WeightFormat, names_what_it_is) {
  EXPECT_EQ(to_string(kAwq), "u4 g128 scale f16 zero u8");
  EXPECT_EQ(to_string(kMxfp4), "e2m1 g32 scale e8m0");
  EXPECT_EQ(to_string({Format::kU8, Format::kF16, Zero::kU16, 64}), "u8 g64 scale f16 zero u16");
  EXPECT_EQ(to_string({Format::kI4, Format::kBF16, Zero::kNone, 0}), "i4 per row scale bf16");
  EXPECT_EQ(to_string({Format::kI4, Format::kBF16, Zero::kBF16, 32}),
            "i4 g32 scale bf16 offset bf16");
  EXPECT_EQ(to_string({Format::kU2, Format::kF16, Zero::kF16, 64}), "u2 g64 scale f16 offset f16");
  EXPECT_EQ(to_string({Format::kI4, Format::kF32, Zero::kF32, 32}), "i4 g32 scale f32 offset f32");
  EXPECT_EQ(to_string(kQ4K), "u4 g32 scale u6 offset u6 x f16 g256");
  EXPECT_EQ(to_string(kQ6K), "i6 g16 scale i8 x f16 g256");
  EXPECT_EQ(to_string({.element = Format::kBF16}), "bf16");
}

TEST(WeightFormat, is_read_from_its_text) {
  for (const WeightFormat& format :
       {kAwq, kMxfp4, kQ4K, kQ6K, WeightFormat{Format::kU8, Format::kF16, Zero::kU16, 64},
        WeightFormat{Format::kU2, Format::kU4, Zero::kOffsetU4, 16},
        WeightFormat{Format::kU4, Format::kF16, Zero::kOffsetU6, 32},
        WeightFormat{Format::kU3, Format::kI6, Zero::kU8, 16},
        WeightFormat{Format::kI4, Format::kBF16, Zero::kBF16, 0},
        WeightFormat{Format::kI4, Format::kF32, Zero::kF32, int64_t{1} << 24},
        WeightFormat{.element = Format::kBF16}}) {
    EXPECT_EQ(find_weight_format(to_string(format)), format) << to_string(format);
  }
  EXPECT_EQ(find_weight_format("u4"), WeightFormat{.element = Format::kU4});
  for (const char* const text : {"",
                                 "u9",
                                 "none",
                                 "awq",
                                 "u4 ",
                                 " u4",
                                 "u4 g32",
                                 "u4 g0 scale f16",
                                 "u4 g032 scale f16",
                                 "u4 g-1 scale f16",
                                 "u4 g16777217 scale f16",
                                 "u4 g9223372036854775808 scale f16",
                                 "u4 g32 scale",
                                 "u4 g32 scale u4",
                                 "u4 g32 scale e2m1",
                                 "u4 g32 scale u6 x",
                                 "u4 g32 scale u6 x f16",
                                 "u4 g32 scale u6 x f16 g128",
                                 "u4 g32 scale u6 x f16 g256 offset u6",
                                 "u4 g32 scale u6 offset u6",
                                 "u4 g32 scale f16 x f16 g256",
                                 "u4 g32 scale f16 zero u8 x f16 g256",
                                 "u4 g32 scale u6 offset u8 x f16 g256",
                                 "u4 g32 scale f16 ",
                                 "u4  g32 scale f16",
                                 "u4 g32 scale f16 zero u4",
                                 "u4 g32 scale f16 zero u8 zero u8",
                                 "u4 per col scale f16",
                                 "bf16 g32 scale f16",
                                 "u4 g32 scale f16 cols 64"}) {
    EXPECT_EQ(find_weight_format(text), std::nullopt) << text;
  }
}

TEST(WeightFormat, only_a_scale_makes_it_quantized) {
  EXPECT_TRUE(is_dense({.element = Format::kBF16}));
  EXPECT_FALSE(is_dense(kMxfp4));
}

}  // namespace
}  // namespace subbyte
