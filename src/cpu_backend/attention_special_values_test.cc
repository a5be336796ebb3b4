// Attention of numbers that are not finite or far from 1: what they may touch, and what not.

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

class AttentionOfSpecialValues : public testing::AttentionTest {};

TEST_P(AttentionOfSpecialValues, large_scores_do_not_overflow) {
  Problem problem = make_problem(shape_of(1, 1, 4), 1, 3, true, 13);
  for (float& x : problem.q) x *= 1e4f;
  for (const float sink : {1e5f, -1e5f}) {
    problem.sinks = {sink};
    for (const float y : run(problem, 1)) EXPECT_TRUE(std::isfinite(y));
  }
}

TEST_P(AttentionOfSpecialValues, nan_stays_in_its_token_and_head) {
  Problem problem = make_problem(shape_of(2, 2, 4), 3, 0, false, 14);
  problem.q[1 * 8 + 2] = NAN;  // token 1, head 0
  const std::vector<float> out = run(problem, 2);
  for (int i = 0; i < 24; ++i) EXPECT_EQ(std::isnan(out[i]), i >= 8 && i < 12) << i;
}

TEST_P(AttentionOfSpecialValues, growing_scores_and_falling_ones_meet_every_rescaling) {
  for (const double slope : {-0.05, 0.05}) {
    Problem problem = make_problem(shape_of(2, 1, 8), 1, 1999, true, 31, 2000);
    for (int64_t i = 0; i < 16; ++i) problem.q[i] = i % 8 == 0 ? 1 : 0;
    // Scores up to 100 * scale with hardly a rounding: the bound above holds as for any other.
    for (int64_t p = 0; p < 2000; ++p) {
      problem.keys[p * 8] = static_cast<float>(slope * static_cast<double>(p));
    }
    expect_oracle(problem);
  }
}

TEST_P(AttentionOfSpecialValues, what_comes_later_does_not_show) {
  // Tokens of a prompt go through together, but NaN and infinities of later ones stay there.
  for (const float poison : {NAN, INFINITY, -INFINITY}) {
    for (const int64_t window : {0, 4}) {
      const Problem clean = make_problem(shape_of(4, 2, 16, window), 30, 5, false, 51);
      const std::vector<float> expected = run(clean, 1);
      Problem problem = clean;
      for (int64_t head = 0; head < 2; ++head) {
        const int64_t at = (head * problem.capacity + 5 + 12) * 16;  // of token 12
        for (int64_t i = 0; i < 16; ++i) problem.keys[at + i] = problem.values[at + i] = poison;
      }
      const std::vector<float> out = run(problem, 2);
      for (int64_t i = 0; i < std::ssize(out); ++i) {
        const int64_t token = i / 64;
        const bool sees = token >= 12 && (window == 0 || token < 12 + window);
        if (!sees) {
          EXPECT_EQ(out[i], expected[i]) << token;
        } else if (std::isnan(poison)) {
          EXPECT_TRUE(std::isnan(out[i])) << token;
        }
      }
    }
  }
}

TEST_P(AttentionOfSpecialValues, extreme_scores_agree) {
  for (const double size : {1e-30, 1e-4, 20.0, 300.0}) {
    Problem problem = make_problem(shape_of(2, 1, 64), 90, 5, true, 81, 100);
    for (float& x : problem.q) x = static_cast<float>(x * size);
    expect_oracle(problem);
    for (float& x : problem.values) x = static_cast<float>(x * 1e30);
    expect_oracle(problem);
  }
  // Scores that rise and fall by more than a block of weights can hold, for each token of its own.
  for (const double slope : {-3.0, -0.1, 0.1, 3.0}) {
    Problem problem = make_problem(shape_of(2, 1, 8), 150, 60, true, 82, 256);
    for (int64_t p = 0; p < 210; ++p) {
      problem.keys[p * 8] = static_cast<float>(slope * static_cast<double>(p));
    }
    expect_oracle(problem);
  }
}

TEST_P(AttentionOfSpecialValues, numbers_of_any_size_agree) {
  // Too large for what tiles hold, of keys, queries and values, and too small.
  Problem problem = make_problem(shape_of(4, 2, 20), 40, 60, true, 83, 128);
  for (const int64_t p : {0, 40, 63, 64, 77}) {
    problem.keys[p * 20 + 3] = 1e25F;
    problem.values[p * 20 + 7] = -1e37F;
    problem.values[p * 20 + 8] = 1e-42F;
  }
  for (std::size_t i = 3; i < problem.q.size(); i += 20) problem.q[i] *= 1e-25F;
  expect_oracle(problem);
  for (std::size_t i = 0; i < 20; ++i) problem.q[9 * 80 + i] *= 1e20F;  // one row
  problem.keys[90 * 20] = 1e-40F;
  expect_oracle(problem);
}

TEST_P(AttentionOfSpecialValues, nan_in_a_prompt_stays_in_its_row) {
  const Problem clean = make_problem(shape_of(4, 2, 32), 70, 3, false, 84, 100);
  const std::vector<float> expected = run(clean, 1);
  for (const float poison : {NAN, INFINITY}) {
    Problem problem = clean;
    problem.q[(33 * 4 + 1) * 32 + 5] = poison;  // token 33, head 1
    const std::vector<float> out = run(problem, 2);
    for (int64_t i = 0; i < std::ssize(out); ++i) {
      if (i / 32 == 33 * 4 + 1) {
        EXPECT_TRUE(std::isnan(out[i])) << i;
      } else {
        EXPECT_EQ(out[i], expected[i]) << i;
      }
    }
  }
}

TEST_P(AttentionOfSpecialValues, an_infinite_value_stays_in_its_column) {
  Problem problem = make_problem(shape_of(2, 1, 24), 80, 0, false, 85, 100);
  problem.values[20 * 24 + 9] = -INFINITY;
  const std::vector<float> out = run(problem, 2);
  for (int64_t i = 0; i < std::ssize(out); ++i) {
    const bool sees = i / 48 >= 20 && i % 24 == 9;
    EXPECT_EQ(out[i] == -INFINITY, sees) << i;
    EXPECT_TRUE(sees || std::isfinite(out[i])) << i;
  }
}

TEST_P(AttentionOfSpecialValues, infinite_scores_are_those_of_the_formula) {
  for (const int64_t tokens : {1, 20}) {
    for (const int64_t capacity : {64, 600}) {
      const AttentionShape shape = shape_of(1, 1, 4);
      Problem problem = make_problem(shape, tokens, capacity - tokens, false, 61, capacity);
      for (float& x : problem.q) x = 1;
      const Problem clean = problem;
      // A score of -infinity has no weight, even at the start where nothing else was seen.
      for (const int64_t p : {0, 1, 33, 40}) problem.keys[p * 4] = -INFINITY;
      const std::vector<float> out = run(problem, 2);
      for (int64_t i = 0; i < std::ssize(out); ++i) {
        EXPECT_NEAR(out[i], oracle(problem, i / 4, 0, i % 4), 4e-4);
      }
      // Nothing but -infinity is no distribution, unless there is a sink.
      for (int64_t p = 0; p < capacity; ++p) problem.keys[p * 4] = -INFINITY;
      for (const float y : run(problem, 2)) EXPECT_TRUE(std::isnan(y));
      problem.sinks = {1};
      for (const float y : run(problem, 2)) EXPECT_EQ(y, 0);
      problem = clean;
      problem.keys[7 * 4] = INFINITY;  // seen by all tokens
      for (const float y : run(problem, 2)) EXPECT_TRUE(std::isnan(y));
      problem = clean;
      for (const float sink : {NAN, INFINITY}) {
        problem.sinks = {sink};
        for (const float y : run(problem, 2)) EXPECT_TRUE(std::isnan(y));
      }
      problem.sinks = {-INFINITY};
      EXPECT_EQ(run(problem, 2), run(clean, 2));
    }
  }
}

SUBBYTE_FOR_EVERY_ISA(AttentionOfSpecialValues);

}  // namespace
}  // namespace subbyte
