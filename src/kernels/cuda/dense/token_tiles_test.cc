#include "kernels/cuda/dense/token_tiles.h"

#include <gtest/gtest.h>

namespace subbyte::cuda {
namespace {

constexpr int64_t kMultiprocessors = 132;

int of_two_types(int64_t rows, int64_t tokens, int64_t heads = 1) {
  return dense_token_tile(rows, tokens, heads, true, kMultiprocessors);
}
int of_one_type(int64_t rows, int64_t tokens) {
  return dense_token_tile(rows, tokens, 1, false, kMultiprocessors);
}

TEST(DenseTokenTile, is_small_where_few_multiprocessors_would_have_work) {
  EXPECT_EQ(of_two_types(32, 820), 16);
  EXPECT_EQ(of_one_type(32, 820), 16);
  EXPECT_EQ(of_two_types(32, 4096), 64);
  EXPECT_EQ(of_two_types(2880, 64), 16);
  EXPECT_EQ(of_two_types(128, 4096, 64), 128);  // of as many heads
}

TEST(DenseTokenTile, is_the_smallest_that_has_all_tokens_of_a_matrix_of_many_rows) {
  for (const int64_t tokens : {1, 16}) EXPECT_EQ(of_one_type(151936, tokens), 16);
  EXPECT_EQ(of_one_type(151936, 64), 64);
  EXPECT_EQ(of_two_types(151936, 64), 64);
}

/// Of gpt-oss 20b: 280 and 161 CTAs of 128 tokens leave most multiprocessors without a third and a
/// second one.
TEST(DenseTokenTile, leaves_no_multiprocessor_with_one_cta_more_than_the_rest) {
  EXPECT_EQ(of_two_types(5120, 820), 64);
  EXPECT_EQ(of_two_types(2880, 820), 64);
  EXPECT_EQ(of_two_types(5120, 4096), 128);
  EXPECT_EQ(of_two_types(2880, 4096), 128);
}

TEST(DenseTokenTile, is_larger_where_inputs_are_split) {
  EXPECT_EQ(dense_token_tile(2880, 64, 1, false, kMultiprocessors, 8), 64);
  EXPECT_EQ(dense_token_tile(2880, 16, 1, false, kMultiprocessors, 8), 16);
  EXPECT_EQ(dense_splits(23, 8, kMultiprocessors), 5);
  EXPECT_EQ(dense_splits(1, 8, kMultiprocessors), 8);
  EXPECT_EQ(dense_splits(161, 8, kMultiprocessors), 1);
}

}  // namespace
}  // namespace subbyte::cuda
