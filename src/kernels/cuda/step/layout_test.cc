#include "kernels/cuda/step/layout.h"

#include <gtest/gtest.h>

#include "kernels/cuda/planning.h"
#include "support/random_matrix.h"

namespace subbyte::cuda {
namespace {

using testing::Contents;
using testing::random_matrix;

/// What a layout needs of a matrix.
struct Packed {
  PackedFormat format;
  WeightArguments arguments;

  Packed(const WeightFormat& source, int64_t rows, int64_t cols)
      : format(*packed_format(random_matrix(source, rows, cols, Contents::kReal, 1).view)),
        arguments(weight_arguments(nullptr, format, 1, Number::kF16)) {}
};

constexpr WeightFormat kAwq = {Format::kU4, Format::kF16, Zero::kU8, 128};

TEST(StepLayout, its_parts_follow_each_other_within_the_shared_memory) {
  const Device device;
  const Packed weights(kAwq, 4096, 1152);
  for (const int m : {1, 4, 8}) {
    auto layout = StepLayout(device, m).with_product(weights.format, weights.arguments);
    ASSERT_TRUE(layout);
    layout = layout->with_attention(4, 128);
    ASSERT_TRUE(layout);
    const StepShared s = layout->shared();
    EXPECT_LE(s.scale_values + kScaleValuesBytes, s.operations);
    EXPECT_LE(s.operations + 2 * static_cast<int>(sizeof(StepOperation)), s.weights);
    EXPECT_LE(s.weights + static_cast<int>(sizeof(StepWeights)), s.places);
    EXPECT_GE(s.x_scales_stride, 5 * 2 * 4);
    EXPECT_GE(s.x_sums_stride, 5 * 4 * 4);
    EXPECT_LE(s.x_scales + m * s.x_scales_stride, s.x_sums);
    EXPECT_LE(s.x_sums + m * s.x_sums_stride, s.x_squares);
    EXPECT_LE(s.x_squares + 2 * m * kStepWarps * 4, s.partials);
    EXPECT_LE(s.partials + 2 * kStepWarps * m * kPartialStride * 4, s.x);
    EXPECT_LE(s.x + m * s.x_stride, s.barriers);
    EXPECT_LE(s.barriers + s.stages * 16, s.ring);
    EXPECT_EQ(s.x_stride, 2 * (5 * kUnitCols + 64));
    EXPECT_GE(s.stages, 2);
    EXPECT_GE(s.stage_scales, kStepWarps * 4 * tile_bytes(4));
    EXPECT_GE(s.stage_zeros, s.stage_scales + kStepWarps * 2 * 32);
    EXPECT_GE(s.stage_bytes, s.stage_zeros + kStepWarps * 2 * 16);
    EXPECT_EQ(s.stage_bytes % 128, 0);
    EXPECT_EQ(s.bytes, s.ring + s.stages * s.stage_bytes);
    EXPECT_LE(s.bytes, device.shared_bytes);
    EXPECT_EQ(s.clears_from, s.stage_scales);  // the fifth unit of a strip has two tiles
  }
}

TEST(StepLayout, clears_codes_that_may_be_nan_where_units_are_short) {
  const Device device;
  const WeightFormat fp8 = {Format::kE4M3, Format::kF32, Zero::kNone, 128};
  const auto shared_of = [&](const WeightFormat& format, int64_t cols) {
    const Packed weights(format, 256, cols);
    return StepLayout(device, 1).with_product(weights.format, weights.arguments)->shared();
  };
  EXPECT_EQ(shared_of(fp8, 384).clears_from, 0);
  const StepShared whole = shared_of(fp8, 512);
  EXPECT_EQ(whole.clears_from, whole.stage_bytes);
}

TEST(StepLayout, says_what_the_ring_copies) {
  const Device device;
  const Packed weights(kAwq, 4096, 1152);
  const auto layout = StepLayout(device, 1).with_product(weights.format, weights.arguments);
  ASSERT_TRUE(layout);
  const StepWeights w = layout->weights(weights.format, weights.arguments);
  EXPECT_EQ(w.tiles, 18);
  EXPECT_EQ(w.units, 5);
  EXPECT_EQ(w.last_tiles, 2);
  EXPECT_EQ(w.blocks, 9);
  EXPECT_EQ(w.blocks_of_unit, 2);
  EXPECT_EQ(w.last_blocks, 1);
  EXPECT_EQ(w.per_block, 0u);
  EXPECT_EQ(w.pair_blocks, 1);
  EXPECT_EQ(w.block_scales, 32u);
  EXPECT_EQ(w.block_zeros, 16u);
}

TEST(StepLayout, units_may_share_a_scale_block) {
  const Device device;
  const Packed weights({Format::kU4, Format::kF16, Zero::kU8, 512}, 256, 2048);
  const auto layout = StepLayout(device, 1).with_product(weights.format, weights.arguments);
  ASSERT_TRUE(layout);
  const StepWeights w = layout->weights(weights.format, weights.arguments);
  EXPECT_EQ(w.units, 8);
  EXPECT_EQ(w.blocks_of_unit, 1);
  EXPECT_EQ(w.per_block, per_of(2));
  EXPECT_EQ(w.pair_blocks, 0);
}

TEST(StepLayout, joins_only_what_one_kernel_decodes) {
  const Device device;
  const Packed awq(kAwq, 256, 512);
  const auto layout = StepLayout(device, 1).with_product(awq.format, awq.arguments);
  ASSERT_TRUE(layout);
  for (const WeightFormat& other : {WeightFormat{Format::kU8, Format::kF16, Zero::kU8, 128},
                                    WeightFormat{Format::kU4, Format::kF16, Zero::kU8, 32},
                                    WeightFormat{Format::kU4, Format::kBF16, Zero::kU8, 128}}) {
    const Packed packed(other, 256, 512);
    EXPECT_TRUE(StepLayout(device, 1).with_product(packed.format, packed.arguments));
    EXPECT_FALSE(layout->with_product(packed.format, packed.arguments)) << to_string(other);
  }
  const Packed groups_of_three_tiles({Format::kU4, Format::kF16, Zero::kU8, 192}, 256, 1536);
  EXPECT_FALSE(StepLayout(device, 1).with_product(groups_of_three_tiles.format,
                                                  groups_of_three_tiles.arguments));
  const Packed long_rows(kAwq, 256, 14336);
  EXPECT_TRUE(StepLayout(device, 1).with_product(long_rows.format, long_rows.arguments));
  EXPECT_FALSE(StepLayout(device, 8).with_product(long_rows.format, long_rows.arguments));
}

TEST(StepLayout, joins_integers_with_scales_of_two_levels_whatever_their_bits) {
  const Device device;
  const Packed q4_k({Format::kU4, Format::kU6, Zero::kOffsetU6, 32}, 256, 1280);
  const Packed q6_k({Format::kI6, Format::kI8, Zero::kNone, 16}, 256, 1280);
  auto layout = StepLayout(device, 1).with_product(q4_k.format, q4_k.arguments);
  ASSERT_TRUE(layout);
  layout = layout->with_product(q6_k.format, q6_k.arguments);
  ASSERT_TRUE(layout);
  const StepShared s = layout->shared();
  EXPECT_EQ(s.stage_scales, kStepWarps * 4 * tile_bytes(6));
  EXPECT_GE(s.stage_bytes, s.stage_scales + kStepWarps * 320);  // superblocks of Q4_K
  const StepWeights w = layout->weights(q4_k.format, q4_k.arguments);
  EXPECT_EQ(w.tile_bytes, tile_bytes(4));
  EXPECT_EQ(w.block_scales, 320u);
  EXPECT_EQ(w.blocks_of_unit, 1);
  EXPECT_EQ(w.block_zeros, 0u);
  EXPECT_EQ(layout->weights(q6_k.format, q6_k.arguments).block_scales, 288u);
  for (const WeightFormat& other : {WeightFormat{Format::kIQ4, Format::kI6, Zero::kNone, 32},
                                    WeightFormat{Format::kU4, Format::kF16, Zero::kU8, 32}}) {
    const Packed packed(other, 256, 1280);
    EXPECT_FALSE(layout->with_product(packed.format, packed.arguments)) << to_string(other);
  }
}

TEST(StepLayout, chosen_experts_are_one_matrix) {
  using Order = StackedExperts::Order;
  const Device device;
  const Packed gate_up(kAwq, 1536, 2048);
  const Packed down(kAwq, 2048, 768);
  const StackedExperts rows = {Order::kRows, 128, 8, 4096};
  const StackedExperts cols = {Order::kColumns, 128, 8, 4096};
  const StepLayout none(device, 1);
  auto layout = none.with_product(gate_up.format, gate_up.arguments, rows);
  ASSERT_TRUE(layout);
  layout = layout->with_product(down.format, down.arguments, cols);
  ASSERT_TRUE(layout);
  const StepWeights first = layout->weights(gate_up.format, gate_up.arguments, rows);
  EXPECT_EQ(first.strips.begin(131) + first.strips.size(131), 8 * 96);
  EXPECT_EQ(first.units, 8);
  EXPECT_EQ(first.section_units, 8 * 96);
  EXPECT_EQ(first.chooses, 1);
  EXPECT_EQ(first.expert_bytes, 4096);
  const StepWeights second = layout->weights(down.format, down.arguments, cols);
  EXPECT_EQ(second.strips.begin(131) + second.strips.size(131), 128);
  EXPECT_EQ(second.units, 8 * 3);
  EXPECT_EQ(second.section_units, 3);
  EXPECT_EQ(second.chooses, 0);
  EXPECT_EQ(second.is_regular, 1);
  EXPECT_EQ(rows.all_of(gate_up.arguments).rows, 8 * 1536);
  EXPECT_EQ(cols.all_of(down.arguments).cols, 8 * 768);
  const StepShared s = layout->shared();
  EXPECT_LE(s.experts + static_cast<int>(sizeof(ChosenExperts)) + 128 * 4, s.barriers);
  EXPECT_LE(s.barriers + s.stages * 16, s.choice);
  EXPECT_LE(s.choice + 8, s.ring);
  // Of several tokens, and where a row ends within a unit.
  EXPECT_FALSE(StepLayout(device, 2).with_product(gate_up.format, gate_up.arguments, rows));
  const Packed short_rows(kAwq, 2048, 704);
  EXPECT_FALSE(none.with_product(short_rows.format, short_rows.arguments, cols));
}

TEST(StepLayout, an_expert_that_every_token_goes_to_is_the_last_of_the_chosen) {
  const Device device;
  const Packed gate_up(kAwq, 1024, 2048);
  StackedExperts rows = {StackedExperts::Order::kRows, 256, 9, 1 << 20};
  const StepLayout none(device, 1);
  EXPECT_EQ(none.weights(gate_up.format, gate_up.arguments, rows).shared_number, -1);
  const auto alone = none.with_product(gate_up.format, gate_up.arguments, rows);
  rows.has_shared = true;
  rows.shared_at = -4096;
  const auto layout = none.with_product(gate_up.format, gate_up.arguments, rows);
  ASSERT_TRUE(layout && alone);
  const StepWeights weights = layout->weights(gate_up.format, gate_up.arguments, rows);
  EXPECT_EQ(weights.shared_number, 256);
  EXPECT_EQ(weights.shared_at, -4096);
  EXPECT_EQ(weights.strips.begin(131) + weights.strips.size(131), 9 * 64);
  const StepShared s = layout->shared();
  EXPECT_LE(s.experts + static_cast<int>(sizeof(ChosenExperts)) + 257 * 4, s.barriers);
}

TEST(StepLayout, delta_nets_have_room_and_a_state_where_there_are_some) {
  const Device device;
  const Packed some(kAwq, 1024, 256);
  const auto without = StepLayout(device, 1).with_product(some.format, some.arguments);
  ASSERT_TRUE(without);
  const auto layout = without->with_delta_net();
  ASSERT_TRUE(layout);
  const StepShared s = layout->shared();
  EXPECT_LE(s.state + static_cast<int>(sizeof(StatePart)), s.zeros);
  EXPECT_LE(s.x + (4 * kStepDeltaHead + 2) * 4, s.experts);
  EXPECT_EQ(without->shared().state, without->shared().zeros);
  EXPECT_TRUE(layout->supports({16, 32, 2, 128, 128, 4}));
  EXPECT_FALSE(layout->supports({16, 133, 2, 128, 128, 4}));
  EXPECT_FALSE(layout->supports({16, 32, 2, 128, 256, 4}));
  EXPECT_FALSE(layout->supports({16, 32, 2, 128, 128, 2}));
  EXPECT_FALSE(StepLayout(device, 2).supports({16, 32, 2, 128, 128, 4}));
}

TEST(StepLayout, quotients_come_without_a_division) {
  for (uint32_t d = 1; d < 300; ++d) {
    const uint64_t per = per_of(d);
    for (uint64_t n = 0; n < 20000; ++n) {
      ASSERT_EQ(per == 0 ? n : n * per >> 32, n / d) << n << " / " << d;
    }
  }
}

TEST(StepLayout, is_for_hopper_and_the_heads_that_its_attention_has) {
  Device device;
  EXPECT_TRUE(StepLayout::supports(device, 8));
  EXPECT_FALSE(StepLayout::supports(device, 9));
  device.compute_capability = 80;
  EXPECT_FALSE(StepLayout::supports(device, 1));
  EXPECT_TRUE(StepLayout::supports(32, 8, 128));
  EXPECT_TRUE(StepLayout::supports(16, 2, 80));
  EXPECT_FALSE(StepLayout::supports(32, 8, 256));
  EXPECT_TRUE(StepLayout::supports(32, 8, 256, true));
  EXPECT_FALSE(StepLayout::supports(32, 8, 288, true));
  // Parts of the scores have room where values come later.
  EXPECT_TRUE(StepLayout::supports(16, 8, 256, true));
  EXPECT_FALSE(StepLayout::supports(8, 8, 256, true));
  EXPECT_FALSE(StepLayout::supports(16, 8, 192, true));
  EXPECT_FALSE(StepLayout::supports(16, 8, 128, true));
  EXPECT_TRUE(StepLayout::supports(32, 8, 128, true));
  EXPECT_FALSE(StepLayout::supports(32, 2, 128));
  EXPECT_FALSE(StepLayout::supports(40, 7, 128));
}

}  // namespace
}  // namespace subbyte::cuda
