#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/plan_test_format.h"

namespace subbyte::cuda {
namespace {

/// Tiles of a distribution of routes over experts.
int64_t tiles_of(const std::vector<int64_t>& routes, int64_t of_tile) {
  int64_t tiles = 0;
  for (const int64_t count : routes) tiles += (count + of_tile - 1) / of_tile;
  return tiles;
}

TEST(ExpertTiles, are_enough_for_every_distribution_of_routes) {
  Random random(1);
  struct Kind {
    bool invariant, has_large_m, has_panel;
  };
  for (const auto& [invariant, has_large_m, has_panel] :
       {Kind{false, false, false}, {true, true, true}, {false, true, false}, {false, true, true}}) {
    for (const int64_t experts : {1, 4, 32, 256}) {
      for (const int64_t top_k : {int64_t{1}, std::min<int64_t>(4, experts)}) {
        for (const int64_t tokens : {1, 7, 8, 9, 16, 100, 1000, 8192}) {
          const ExpertTiles tiles =
              expert_tiles(tokens, {experts, top_k, invariant, has_large_m, has_panel});
          const int64_t of_tile = tokens_of(tiles.kernel);
          EXPECT_TRUE(!invariant || tiles.kernel == KernelKind::kSmallM16);
          for (int64_t used = top_k; used <= experts; used += 1 + used / 2) {
            // No expert twice for a token: the j-th of a token is one of every top_k-th.
            std::vector<int64_t> routes(experts);
            for (int64_t t = 0; t < tokens; ++t) {
              for (int64_t j = 0; j < top_k; ++j) {
                const int64_t choices = (used - j + top_k - 1) / top_k;
                ++routes[j + top_k * static_cast<int64_t>(random.below(choices))];
              }
            }
            EXPECT_LE(tiles_of(routes, of_tile), tiles.count)
                << tokens << " tokens, " << used << " of " << experts << " experts";
          }
        }
      }
    }
  }
  // And not many more.
  EXPECT_EQ(expert_tiles(1, {32, 4}).count, 4);
  EXPECT_EQ(expert_tiles(8, {1, 1}).count, 1);
}

TEST(ExpertTiles, are_of_8_tokens_where_an_expert_has_few) {
  EXPECT_EQ(expert_tiles(64, {128, 8}).kernel, KernelKind::kSmallM8);
  EXPECT_EQ(expert_tiles(81, {128, 8}).kernel, KernelKind::kSmallM16);
  EXPECT_EQ(expert_tiles(64, {32, 4}).kernel, KernelKind::kSmallM16);
  EXPECT_EQ(expert_tiles(8, {1, 1}).kernel, KernelKind::kSmallM8);
  EXPECT_EQ(expert_tiles(64, {128, 8, true}).kernel, KernelKind::kSmallM16);
}

TEST(ExpertTiles, are_panels_of_16_for_few_tokens_of_each_expert) {
  for (const int64_t tokens : {9, 64, 383}) {
    const ExpertTiles tiles = expert_tiles(tokens, {128, 8, false, true, true});
    EXPECT_EQ(tiles.kernel, KernelKind::kPanel16) << tokens;
    EXPECT_FALSE(reads_sorted_rows(tiles));
  }
  EXPECT_EQ(expert_tiles(8, {128, 8, false, true, true}).kernel, KernelKind::kSmallM8);
  EXPECT_EQ(expert_tiles(64, {128, 8, true, true, true}).kernel, KernelKind::kSmallM16);
  EXPECT_EQ(expert_tiles(384, {128, 8, false, true, true}).kernel, KernelKind::kLargeM128);
  EXPECT_EQ(expert_tiles(383, {128, 8, false, false, true}).kernel, KernelKind::kPanel16);
  EXPECT_EQ(expert_tiles(384, {128, 8, false, false, true}).kernel, KernelKind::kSmallM64);
}

std::vector<WeightFormat> formats() {
  using enum Format;
  return {{kE2M1, kE8M0, Zero::kNone, 32}, {kE2M1, kE4M3, Zero::kNone, 16},
          {kU4, kF16, Zero::kU8, 128},     {kU4, kF16, Zero::kU8, 16},
          {kU8, kF16, Zero::kU16, 32},     {kU2, kF16, Zero::kU8, 64},
          {kNF4, kF32, Zero::kNone, 64},   {kNFL5, kF32, Zero::kNone, 32},
          {kBF16, kF16, Zero::kNone, 0}};
}

TEST(ExpertPlans, fit_every_kernel_and_size) {
  for (const Device& device : {Device{}, Device{80, 108, 163 * 1024, 1.41e9, 1.9e12}}) {
    for (const WeightFormat& format : formats()) {
      for (const int64_t rows : {1, 100, 2880, 5760, 14336}) {
        for (const int64_t cols : {33, 2880, 8192}) {
          const PackedFormat packed = format_of(format, rows, cols);
          for (const int64_t tokens : {1, 16, 400, 8192}) {
            const bool large = has_large_m(packed, Number::kF16, device);
            EXPECT_EQ(large, device.compute_capability == 90 && cols % 8 == 0);
            const ExpertTiles tiles = expert_tiles(tokens, {32, 4, false, large});
            EXPECT_EQ(tiles.kernel == KernelKind::kLargeM256, large && tokens == 8192);
            EXPECT_EQ(tiles.kernel == KernelKind::kLargeM128, large && tokens == 400);
            const auto plan = plan_experts(packed, Number::kF16, tiles, device, false);
            ASSERT_TRUE(plan.ok()) << plan.error().message;
            EXPECT_EQ(plan->cluster, reads_sorted_rows(tiles) && rows > 128 ? 2 : 1);
            EXPECT_EQ(plan->kernel, tiles.kernel);
            EXPECT_LT(plan->shared_bytes, device.shared_bytes);
          }
        }
      }
    }
  }
}

constexpr WeightFormat kAwq = {Format::kU4, Format::kF16, Zero::kU8, 128};
constexpr WeightFormat kQ4K = {Format::kU4, Format::kU6, Zero::kOffsetU6, 32};

TEST(ExpertPanels, are_of_integers_whose_inputs_fit) {
  using enum Format;
  const auto has = [](const WeightFormat& format, int64_t rows, int64_t cols) {
    return has_panel(format_of(format, rows, cols), Device{});
  };
  for (const WeightFormat& format : {kAwq,
                                     kQ4K,
                                     WeightFormat{kI6, kI8, Zero::kNone, 16},
                                     {kU8, kF16, Zero::kU16, 32},
                                     {kU4, kF16, Zero::kU8, 64},
                                     {kU4, kF16, Zero::kU8, 256},
                                     {kU4, kF16, Zero::kU8, 0},
                                     {kU2, kF16, Zero::kU8, 16},
                                     {kI8, kF32, Zero::kNone, 0}}) {
    EXPECT_TRUE(has(format, 1536, 2048)) << to_string(format);
    EXPECT_TRUE(has(format, 96, 160)) << to_string(format);
    EXPECT_FALSE(has(format, 1536, 8192)) << to_string(format);
    EXPECT_FALSE(has(format, 100, 2048)) << to_string(format);
    EXPECT_FALSE(has_panel(format_of(format, 1536, 2048), Device{80, 108, 163 * 1024}));
  }
  EXPECT_FALSE(has(kAwq, 1536, 2044));
  EXPECT_FALSE(has({kU4, kF16, Zero::kU8, 192}, 1536, 2048 * 3 / 2));  // batches end in a group
  EXPECT_FALSE(has({kU4, kF16, Zero::kF16, 64}, 1536, 2048));
  EXPECT_FALSE(has({kE2M1, kE8M0, Zero::kNone, 32}, 1536, 2048));
}

/// What lies in shared memory follows each other, and every multiprocessor has units.
TEST(ExpertPanels, have_room_for_all_that_they_keep) {
  for (const WeightFormat& format : {kAwq, kQ4K}) {
    const PackedFormat packed = format_of(format, 1536, 2048);
    const ExpertTiles tiles = expert_tiles(64, {128, 8, false, true, true});
    const ExpertPlan plan = *plan_experts(packed, Number::kF16, tiles, Device{}, false);
    const PanelPartition& p = plan.panel;
    EXPECT_EQ(plan.ctas, 132);
    EXPECT_EQ(p.units * 64, 1536);
    EXPECT_EQ(p.batches * 256, 2048);
    EXPECT_EQ(p.x_sums, kPanelTokens * 2048 * 2);
    EXPECT_EQ(p.heads - p.x_sums, 2048 / (p.one_group != 0 ? 128 : 32) * kPanelTokens * 4);
    EXPECT_EQ(p.rings - p.heads, 3 * 128 * 8 * 4);
    EXPECT_EQ(p.scale_values - p.rings, 16 * 3 * p.slot_bytes);
    EXPECT_GE(plan.shared_bytes, p.table + 1024);
    const PackedFormat small = format_of(format, 64, 256);
    const ExpertTiles few = expert_tiles(9, {4, 2, false, true, true});
    EXPECT_EQ(plan_experts(small, Number::kF16, few, Device{}, false)->ctas, 4);
  }
}

/// A batch has scales of four tiles wherever these have groups of their own.
TEST(ExpertPanels, of_one_tile_have_room_for_the_scales_of_a_batch) {
  const ExpertTiles tiles = expert_tiles(9, {4, 2, false, true, true});
  const auto scales = [&](int64_t group, int64_t cols) {
    const PackedFormat packed = format_of({Format::kU4, Format::kF16, Zero::kU8, group}, 64, cols);
    return plan_experts(packed, Number::kF16, tiles, Device{}, false)->panel.scale_bytes;
  };
  for (const int64_t cols : {64, 72, 256, 512}) {
    EXPECT_EQ(scales(16, cols), 4 * 4 * kStripRows * 2) << cols;
    EXPECT_EQ(scales(32, cols), 4 * 2 * kStripRows * 2) << cols;
  }
  EXPECT_EQ(scales(64, 64), kStripRows * 2);
  EXPECT_EQ(scales(64, 128), 4 * kStripRows * 2);
  EXPECT_EQ(scales(128, 128), kStripRows * 2);
  EXPECT_EQ(scales(0, 512), kStripRows * 2);
}

TEST(ExpertPlans, of_batch_invariant_mode_do_not_depend_on_the_tokens) {
  const PackedFormat format =
      format_of({Format::kE2M1, Format::kE8M0, Zero::kNone, 32}, 5760, 2880);
  const auto plan = [&](int64_t tokens) {
    return *plan_experts(format, Number::kF16, expert_tiles(tokens, {32, 4, true, true}), Device{},
                         true);
  };
  const ExpertPlan one = plan(1);
  for (const int64_t tokens : {2, 17, 300, 8192}) {
    const ExpertPlan other = plan(tokens);
    EXPECT_EQ(other.parts.of_tile(9), one.parts.of_tile(1));
    EXPECT_EQ(other.small_m.chunk_pairs, one.small_m.chunk_pairs);
    EXPECT_EQ(other.kernel, one.kernel);
  }
}

/// Of all numbers of parts that take up to kMaxRounds, the time of the best, in strips.
int64_t best_time_of_parts(const ExpertParts& p, int64_t tiles, int64_t found) {
  int64_t best = INT64_MAX;
  for (int64_t parts = p.least; parts <= p.strips; ++parts) {
    const int64_t rounds = (tiles * parts + p.ctas_at_once - 1) / p.ctas_at_once;
    if (rounds > ExpertParts::kMaxRounds && parts != p.least) continue;
    const int64_t time = rounds * ((p.strips + parts - 1) / parts + p.start);
    if (found == 0 || parts == found) best = std::min(best, time);
  }
  return best;
}

TEST(ExpertParts, are_the_best_for_the_tiles_that_are_used) {
  for (const ExpertParts parts : {ExpertParts{360, 1, 132, 4}, {360, 5, 132, 4}, {7, 1, 108, 0}}) {
    for (int tiles = 1; tiles <= 300; ++tiles) {
      const int found = parts.of_tile(tiles);
      EXPECT_EQ(best_time_of_parts(parts, tiles, found), best_time_of_parts(parts, tiles, 0))
          << tiles << " tiles, " << found << " parts";
      EXPECT_LE(int64_t{tiles} * found, parts.max_ctas(tiles));
      EXPECT_LE(parts.max_ctas(tiles), parts.max_ctas(300));
    }
  }
  EXPECT_EQ((ExpertParts{360, 5, 0, 4}.of_tile(17)), 5);  // batch-invariant
}

}  // namespace
}  // namespace subbyte::cuda
