#include "kernels/cuda/weight_arguments.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "support/random_matrix.h"

namespace subbyte::cuda {
namespace {

using testing::Contents;
using testing::random_matrix;
using testing::RandomMatrix;

TEST(CudaWeightArguments, tell_the_kernels_where_the_sections_lie) {
  using enum Format;
  RandomMatrix matrix = random_matrix({kU3, kF16, Zero::kU8, 32}, 17, 96, Contents::kReal, 3);
  std::vector<uint32_t> order(96);
  std::iota(order.rbegin(), order.rend(), 0);
  matrix.view.input_order = order;
  const PackedFormat format = *packed_format(matrix.view);
  const std::vector<std::byte> packed(format.bytes);
  const WeightArguments weights = weight_arguments(packed.data(), format, 0.5, Number::kF16);
  // 2 strips x 2 tiles x 32 lanes x 3 words; 2 x 2 x 2 groups x 16 rows.
  const auto* begin = reinterpret_cast<const uint8_t*>(packed.data());
  EXPECT_EQ(weights.codes, begin);
  EXPECT_EQ(weights.scales, begin + 1536);
  EXPECT_EQ(weights.zeros, begin + 1792);
  EXPECT_EQ(reinterpret_cast<const uint8_t*>(weights.gather), begin + 2048);
  EXPECT_EQ(weights.zero_bytes, 1);
  EXPECT_EQ(weights.gain, 0.5F);
}

TEST(CudaWeightArguments, tell_the_kernels_their_sizes_zero_point_and_gain) {
  using enum Format;
  const RandomMatrix i3 =
      random_matrix({kI3, kBF16, Zero::kNone, 128}, 20, 256, Contents::kReal, 4);
  const PackedFormat packed = *packed_format(i3.view);
  const std::byte begin{};
  const WeightArguments weights = weight_arguments(&begin, packed, 3, Number::kBF16);
  EXPECT_EQ(weights.rows, 20);
  EXPECT_EQ(weights.cols, 256);
  EXPECT_EQ(weights.strips, 2);
  EXPECT_EQ(weights.tiles, 4);
  EXPECT_EQ(weights.blocks, 2);
  EXPECT_EQ(weights.blocks_per_tile, 0x80000000u);
  EXPECT_EQ(weights.zero, 4);
  EXPECT_EQ(weights.zeros, nullptr);
  EXPECT_EQ(weights.gather, nullptr);
  EXPECT_EQ(weights.scale.bytes, 2);
  EXPECT_EQ(weights.scale.shift, 16);
  EXPECT_EQ(weights.gain, 3);

  const RandomMatrix fp4 =
      random_matrix({kE2M1, kE4M3, Zero::kNone, 16}, 4, 64, Contents::kReal, 5);
  const PackedFormat format = *packed_format(fp4.view);
  EXPECT_EQ(weight_arguments(nullptr, format, 0.25, Number::kF16).gain, 4096);
  EXPECT_EQ(weight_arguments(nullptr, format, 0.25, Number::kBF16).gain, 0.25F);
}

TEST(CudaWeightArguments, bring_the_largest_weight_of_e4m3_near_the_top_of_f16) {
  using enum Format;
  RandomMatrix fp8 = random_matrix({kE4M3, kF32, Zero::kNone, 128}, 2, 256, Contents::kReal, 6);
  for (const float largest : {0x1.fffffep-20F, 1.0F, 3.0F, 0x1p40F}) {
    const float scales[4] = {largest / 64, largest, largest / 3, largest / 2};
    std::memcpy(fp8.scales->data(), scales, sizeof scales);
    const PackedFormat format = *packed_format(fp8.view);
    const WeightArguments weights = weight_arguments(nullptr, format, 0.25, Number::kF16);
    EXPECT_EQ(weights.gain, 0.25F);
    // The scale is rounded to f16, up, too.
    const uint32_t scale =
        info(kF16).encode(double{largest} * weights.scale_factor, Rounding::kNearestEven);
    EXPECT_LE(448 * info(kF16).decode(scale), 65504) << largest;
    EXPECT_GE(448 * info(kF16).decode(scale), 16384) << largest;
    EXPECT_EQ(weight_arguments(nullptr, format, 0.25, Number::kBF16).scale_factor, 1);
  }
}

TEST(CudaWeightArguments, tell_the_kernels_what_offsets_are) {
  using enum Format;
  for (const Zero zero : {Zero::kF16, Zero::kBF16}) {
    const FormatInfo& number = info(offset_format(zero));
    RandomMatrix matrix = random_matrix({kI4, kF16, zero, 32}, 2, 64, Contents::kExact, 8);
    for (int i = 0; i < 4; ++i) {
      const uint32_t offset = number.encode(i == 2 ? -96 : 1, Rounding::kNearestEven);
      std::memcpy(matrix.zeros->data() + 2 * i, &offset, 2);
    }
    const auto format = packed_format(matrix.view);
    ASSERT_TRUE(format.ok()) << format.error().message;
    EXPECT_EQ(format->largest_scale, 12);  // 8 times that is 96
    EXPECT_EQ(format->zero_bytes, 2);
    const WeightArguments weights = weight_arguments(nullptr, *format, 1, Number::kF16);
    EXPECT_EQ(weights.zero, 8);
    EXPECT_EQ(weights.zero_bytes, 2);
    EXPECT_EQ(weights.zero_kind, zero == Zero::kF16 ? ZeroKind::kF16 : ZeroKind::kBF16);
    // (15 - 8) * 12 and 96 stay below 65504 together.
    EXPECT_LE((7 * 12 + 96) * weights.scale_factor, 65504);
    EXPECT_GE((7 * 12 + 96) * weights.scale_factor, 4096);
  }
  const RandomMatrix u4 = random_matrix({kU4, kF16, Zero::kU8, 32}, 2, 64, Contents::kExact, 8);
  EXPECT_EQ(weight_arguments(nullptr, *packed_format(u4.view), 1, Number::kF16).zero_kind,
            ZeroKind::kInteger);
}

}  // namespace
}  // namespace subbyte::cuda
