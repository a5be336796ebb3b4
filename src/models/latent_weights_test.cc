#include "models/latent_weights.h"

#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "support/random_matrix.h"

namespace subbyte {
namespace {

constexpr LatentHeads kHeads = {3, 5, 4};
constexpr int64_t kRank = 64;

/// Rounds less than f16 does.
void expect_both_sides(const MatrixView& joined, const LatentMatrices& made, double rounding) {
  const int64_t rows_of_head = kHeads.keys + kHeads.values;
  ASSERT_EQ(made.keys.view.rows, kHeads.count * kRank);
  ASSERT_EQ(made.values.view.rows, kHeads.count * kHeads.values);
  for (int64_t head = 0; head < kHeads.count; ++head) {
    for (int64_t k = 0; k < kRank; ++k) {
      for (int64_t i = 0; i < rows_of_head; ++i) {
        const double expected = weight_at(joined, head * rows_of_head + i, k);
        const double found = i < kHeads.keys ? weight_at(made.keys.view, head * kRank + k, i)
                                             : weight_at(made.values.view,
                                                         head * kHeads.values + i - kHeads.keys, k);
        EXPECT_NEAR(found, expected, rounding * std::abs(expected)) << head << " " << k << " " << i;
      }
    }
  }
}

TEST(LatentMatrices, numbers_stay_as_they_are_and_others_become_f16) {
  ThreadPool pool(2);
  for (const WeightFormat& format :
       {WeightFormat{Format::kF32}, WeightFormat{Format::kF16}, WeightFormat{Format::kBF16},
        WeightFormat{Format::kU4, Format::kF16, Zero::kU8, 32}}) {
    const testing::RandomMatrix joined = testing::random_matrix(
        format, kHeads.count * (kHeads.keys + kHeads.values), kRank, testing::Contents::kReal, 1);
    const LatentMatrices made = latent_matrices(joined.view, kHeads, false, pool);
    EXPECT_EQ(made.keys.view.format, latent_format(format, false));
    EXPECT_EQ(made.values.view.format, latent_format(format, false));
    expect_both_sides(joined.view, made, is_dense(format) ? 0 : std::ldexp(1, -11));
  }
}

TEST(LatentMatrices, what_f16_cannot_hold_becomes_bf16) {
  ThreadPool pool(1);
  testing::RandomMatrix joined = testing::random_matrix(
      {Format::kU4, Format::kF16, Zero::kU8, 32}, kHeads.count * (kHeads.keys + kHeads.values),
      kRank, testing::Contents::kReal, 1);
  joined.view.tensor_scale = 1e6;
  const LatentMatrices made = latent_matrices(joined.view, kHeads, false, pool);
  EXPECT_EQ(made.keys.view.format.element, Format::kBF16);
  expect_both_sides(joined.view, made, std::ldexp(1, -8));
}

}  // namespace
}  // namespace subbyte
