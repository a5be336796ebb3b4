// Attention against the textbook formula in double precision.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/attention_problem.h"

namespace subbyte {
namespace {

using testing::make_problem;
using testing::PagedCache;
using testing::Problem;
using testing::shape_of;

class Attention : public testing::AttentionTest {};

TEST_P(Attention, matches_the_formula_for_all_groupings) {
  for (const auto& [heads, kv_heads] : {std::pair(1, 1), {4, 4}, {4, 2}, {8, 1}, {6, 2}}) {
    for (const int64_t dim : {2, 8, 20, 64, 128}) {
      expect_oracle(make_problem(shape_of(heads, kv_heads, dim), 5, 0, false, heads * dim));
    }
  }
}

TEST_P(Attention, a_window_hides_older_positions) {
  for (const int64_t window : {1, 2, 8, 100}) {
    expect_oracle(make_problem(shape_of(4, 2, 16, window), 12, 0, false, window));
    expect_oracle(make_problem(shape_of(4, 2, 16, window), 3, 20, true, window));
  }
}

TEST_P(Attention, a_window_of_one_sees_only_itself) {
  const Problem problem = make_problem(shape_of(2, 1, 4, 1), 3, 5, false, 9);
  const std::vector<float> out = run(problem, 1);
  for (int64_t t = 0; t < 3; ++t) {
    for (int64_t i = 0; i < 8; ++i) {
      EXPECT_EQ(out[t * 8 + i], problem.values[(5 + t) * 4 + i % 4]);
    }
  }
}

TEST_P(Attention, sinks_take_their_share) {
  expect_oracle(make_problem(shape_of(8, 2, 32), 10, 3, true, 11));
  Problem problem = make_problem(shape_of(2, 2, 4), 1, 0, false, 12);
  // One position with score s and a sink of the same logit: half of the value.
  double score = 0;
  for (int i = 0; i < 4; ++i) score += double(problem.q[i]) * problem.keys[i];
  problem.sinks = {static_cast<float>(score / 2), -1000};
  const std::vector<float> out = run(problem, 1);
  const int64_t second_head = problem.capacity * 4;
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(out[i], problem.values[i] / 2, 1e-6);
    EXPECT_FLOAT_EQ(out[4 + i], problem.values[second_head + i]);
  }
}

TEST_P(Attention, works_for_every_head_dim) {
  for (int64_t dim = 1; dim < 70; ++dim) {
    const auto seed = static_cast<uint64_t>(dim);
    expect_oracle(make_problem(shape_of(2, 1, dim), 1, 9, true, seed));
    expect_oracle(make_problem(shape_of(4, 2, dim), 11, 3, false, seed + 100));
  }
  for (const int64_t dim : {80, 96, 100, 127, 192, 255, 256}) {
    expect_oracle(make_problem(shape_of(3, 1, dim), 7, 0, false, static_cast<uint64_t>(dim)));
  }
}

TEST_P(Attention, any_number_of_heads_may_share_keys) {
  for (const int64_t group : {1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 33, 64, 65, 70, 130}) {
    for (const int64_t tokens : {1, 2}) {
      expect_oracle(make_problem(shape_of(group, 1, 8), tokens, 6, true, group * 10 + tokens));
    }
  }
  expect_oracle(make_problem(shape_of(71 * 3, 71, 4), 1, 40, false, 5));  // no split is wanted
  // All rows see the same positions, and the first block has an odd number of them.
  expect_oracle(make_problem(shape_of(33, 1, 8, 100), 1, 900, true, 6, 901));
}

TEST_P(Attention, prompts_of_every_length_agree) {
  for (int64_t tokens = 1; tokens < 50; ++tokens) {
    const auto seed = static_cast<uint64_t>(tokens);
    expect_oracle(make_problem(shape_of(2, 2, 16), tokens, tokens % 7, false, seed));
    expect_oracle(make_problem(shape_of(6, 2, 16, 5), tokens, tokens % 9, true, seed + 50));
  }
}

TEST_P(Attention, long_contexts_are_cut_up_and_merged) {
  for (const bool sinks : {false, true}) {
    for (const int64_t tokens : {1, 5, 40}) {
      expect_oracle(make_problem(shape_of(4, 2, 16), tokens, 5000 - tokens, sinks, 21, 5000));
      expect_oracle(make_problem(shape_of(4, 2, 16, 128), tokens, 5000 - tokens, sinks, 22, 5001));
      expect_oracle(make_problem(shape_of(4, 1, 16, 1000), tokens, 5000 - tokens, sinks, 23, 5001));
    }
  }
  for (const int64_t first : {126, 127, 128, 255, 256, 383, 700}) {
    expect_oracle(make_problem(shape_of(2, 1, 20), 1, first, true, first, 1000));
    expect_oracle(make_problem(shape_of(2, 1, 20), 129, first, true, first, 1000));
  }
}

TEST_P(Attention, long_prompts_agree) {
  // More rows than a tile has, and numbers of rows and positions that no block divides.
  expect_oracle(make_problem(shape_of(4, 2, 128), 301, 0, false, 71, 301));
  expect_oracle(make_problem(shape_of(3, 1, 64), 403, 17, true, 72, 500));
  expect_oracle(make_problem(shape_of(2, 2, 80), 290, 3, true, 73, 300));
  expect_oracle(make_problem(shape_of(2, 1, 33), 130, 700, false, 74, 900));
  for (const int64_t window : {1, 7, 33, 64, 129}) {
    const auto seed = static_cast<uint64_t>(window);
    expect_oracle(make_problem(shape_of(6, 2, 48, window), 211, 95, true, seed, 400));
  }
}

TEST_P(Attention, prompts_of_many_sharers_agree) {
  for (const int64_t group : {7, 8, 16, 31, 32, 33, 65}) {
    expect_oracle(make_problem(shape_of(group, 1, 40), 21, 50, true, group, 100));
  }
}

SUBBYTE_FOR_EVERY_ISA(Attention);

}  // namespace
}  // namespace subbyte
