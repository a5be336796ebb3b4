// Attention against the textbook formula in double precision.

#include "ops/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/random.h"

namespace subbyte {
namespace {

struct Problem {
  AttentionShape shape;
  int64_t tokens = 1;
  int64_t first_position = 0;
  int64_t capacity = 64;
  std::vector<float> q, keys, values, sinks;

  KvView cache() const { return {keys.data(), values.data(), capacity}; }
};

/// Positions of the cache that no token may see are NaN.
Problem make_problem(const AttentionShape& shape, int64_t tokens, int64_t first_position,
                     bool with_sinks, uint64_t seed) {
  Problem problem;
  problem.shape = shape;
  problem.tokens = tokens;
  problem.first_position = first_position;
  Random random(seed);
  const auto fill = [&](std::vector<float>& values, int64_t size, double scale) {
    values.resize(size);
    for (float& value : values) value = static_cast<float>(scale * random.normal());
  };
  const int64_t cache = shape.kv_heads * problem.capacity * shape.head_dim;
  fill(problem.q, tokens * shape.heads * shape.head_dim, 1);
  fill(problem.keys, cache, 1);
  fill(problem.values, cache, 1);
  if (with_sinks) fill(problem.sinks, shape.heads, 2);
  const int64_t used = first_position + tokens;
  const int64_t seen_from =
      shape.window > 0 ? std::max<int64_t>(0, first_position - shape.window + 1) : 0;
  for (int64_t i = 0; i < cache; ++i) {
    const int64_t position = i / shape.head_dim % problem.capacity;
    if (position >= used || position < seen_from) problem.keys[i] = problem.values[i] = NAN;
  }
  return problem;
}

/// Output element of one token, head and dimension.
double oracle(const Problem& problem, int64_t token, int64_t head, int64_t d) {
  const AttentionShape& shape = problem.shape;
  const int64_t kv_head = head * shape.kv_heads / shape.heads;
  const int64_t position = problem.first_position + token;
  const auto row = [&](int64_t p) { return (kv_head * problem.capacity + p) * shape.head_dim; };
  double numerator = 0;
  double denominator = problem.sinks.empty() ? 0 : std::exp(double(problem.sinks[head]));
  for (int64_t p = 0; p <= position; ++p) {
    if (shape.window > 0 && position - p >= shape.window) continue;
    double score = 0;
    for (int64_t i = 0; i < shape.head_dim; ++i) {
      score += double(problem.q[(token * shape.heads + head) * shape.head_dim + i]) *
               problem.keys[row(p) + i];
    }
    const double weight = std::exp(score * shape.scale);
    numerator += weight * problem.values[row(p) + d];
    denominator += weight;
  }
  return numerator / denominator;
}

std::vector<float> run(const Problem& problem, int threads) {
  auto execution = Execution::create({.num_threads = threads});
  EXPECT_TRUE(execution.ok());
  std::vector<float> out(problem.q.size(), NAN);
  attention(**execution, out, problem.q, problem.cache(), problem.first_position, problem.shape,
            problem.sinks);
  return out;
}

void expect_oracle(const Problem& problem) {
  const std::vector<float> out = run(problem, 1);
  EXPECT_EQ(out, run(problem, 2)) << "threads must not matter";
  const int64_t row = problem.shape.heads * problem.shape.head_dim;
  double worst = 0;
  for (int64_t i = 0; i < problem.tokens * row; ++i) {
    const double expected =
        oracle(problem, i / row, i % row / problem.shape.head_dim, i % problem.shape.head_dim);
    const double error = std::abs(out[i] - expected);
    worst = error <= worst ? worst : error;
  }
  // Values of size 4 at most, weights that sum to 1, scores of size 10 with 128 float32 roundings:
  // exp turns an absolute error of 10 * 130 * 2^-24 of the score into a relative one.
  EXPECT_LE(worst, 2 * 4 * 10 * 130 * 0x1p-24);
}

AttentionShape shape_of(int64_t heads, int64_t kv_heads, int64_t dim, int64_t window = 0) {
  return {heads, kv_heads, dim, 1 / std::sqrt(static_cast<float>(dim)), window};
}

TEST(Attention, matches_the_formula_for_all_groupings) {
  for (const auto& [heads, kv_heads] : {std::pair(1, 1), {4, 4}, {4, 2}, {8, 1}, {6, 2}}) {
    for (const int64_t dim : {2, 8, 20, 64, 128}) {
      expect_oracle(make_problem(shape_of(heads, kv_heads, dim), 5, 0, false, heads * dim));
    }
  }
}

TEST(Attention, continues_behind_what_is_cached) {
  for (const int64_t first : {1, 7, 40}) {
    for (const int64_t tokens : {1, 2, 9}) {
      expect_oracle(make_problem(shape_of(4, 2, 16), tokens, first, false, first + tokens));
    }
  }
}

TEST(Attention, a_window_hides_older_positions) {
  for (const int64_t window : {1, 2, 8, 100}) {
    expect_oracle(make_problem(shape_of(4, 2, 16, window), 12, 0, false, window));
    expect_oracle(make_problem(shape_of(4, 2, 16, window), 3, 20, true, window));
  }
}

TEST(Attention, a_window_of_one_sees_only_itself) {
  const Problem problem = make_problem(shape_of(2, 1, 4, 1), 3, 5, false, 9);
  const std::vector<float> out = run(problem, 1);
  for (int64_t t = 0; t < 3; ++t) {
    for (int64_t i = 0; i < 8; ++i) {
      EXPECT_EQ(out[t * 8 + i], problem.values[(5 + t) * 4 + i % 4]);
    }
  }
}

TEST(Attention, sinks_take_their_share) {
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

TEST(Attention, large_scores_do_not_overflow) {
  Problem problem = make_problem(shape_of(1, 1, 4), 1, 3, true, 13);
  for (float& x : problem.q) x *= 1e4f;
  for (const float sink : {1e5f, -1e5f}) {
    problem.sinks = {sink};
    for (const float y : run(problem, 1)) EXPECT_TRUE(std::isfinite(y));
  }
}

TEST(Attention, nan_stays_in_its_token_and_head) {
  Problem problem = make_problem(shape_of(2, 2, 4), 3, 0, false, 14);
  problem.q[1 * 8 + 2] = NAN;  // token 1, head 0
  const std::vector<float> out = run(problem, 2);
  for (int i = 0; i < 24; ++i) EXPECT_EQ(std::isnan(out[i]), i >= 8 && i < 12) << i;
}

}  // namespace
}  // namespace subbyte
