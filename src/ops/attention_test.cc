// Attention against the textbook formula in double precision.

#include "ops/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/random.h"
#include "support/guarded_bytes.h"
#include "support/isa_test.h"

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
                     bool with_sinks, uint64_t seed, int64_t capacity = 64) {
  Problem problem;
  problem.capacity = capacity;
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

/// What one token and head should give, and how much an element may differ.
struct Expected {
  std::vector<double> values;
  std::vector<double> bounds;
};

/// The textbook formula. The bounds are those that the kernels state (attention.inl.h,
/// attention_tiles.inl.h), for products of which each is off by `product_error` of itself: an error
/// of the scores makes e^error of it in each weight, and as much in their sum. The 200 roundings
/// are those of the sum of weights in a block, of merging and of dividing.
Expected expect_row(const Problem& problem, int64_t token, int64_t head, double product_error) {
  constexpr double u = 0x1p-24;
  const AttentionShape& shape = problem.shape;
  const int64_t dim = shape.head_dim;
  const int64_t kv_head = head * shape.kv_heads / shape.heads;
  const int64_t position = problem.first_position + token;
  const int64_t first =
      shape.window > 0 ? std::max<int64_t>(0, position - shape.window + 1) : int64_t{0};
  const auto row = [&](int64_t p) { return (kv_head * problem.capacity + p) * dim; };
  const float* q = &problem.q[(token * shape.heads + head) * dim];
  std::vector<double> scores;
  double magnitude = 0;
  for (int64_t p = first; p <= position; ++p) {
    double score = 0;
    double sum = 0;
    for (int64_t i = 0; i < dim; ++i) {
      score += double(q[i]) * problem.keys[row(p) + i];
      sum += std::abs(double(q[i]) * problem.keys[row(p) + i]);
    }
    scores.push_back(score * shape.scale);
    magnitude = std::max(magnitude, sum * std::abs(shape.scale));
  }
  double largest = problem.sinks.empty() ? -INFINITY : double(problem.sinks[head]);
  for (const double score : scores) largest = std::max(largest, score);
  Expected expected{std::vector<double>(dim), std::vector<double>(dim)};
  double denominator = problem.sinks.empty() ? 0 : std::exp(problem.sinks[head] - largest);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const double weight = std::exp(scores[i] - largest);
    denominator += weight;
    for (int64_t d = 0; d < dim; ++d) {
      const double value = problem.values[row(first + static_cast<int64_t>(i)) + d];
      if (weight > 0) expected.values[d] += weight * value;
      if (weight > 0) expected.bounds[d] += weight * std::abs(value);
    }
  }
  const auto n = static_cast<double>(scores.size());
  const double score_error = (product_error + (3.0 * double(dim) + 4) * u) * magnitude;
  const double relative =
      std::expm1(2 * (score_error + (6 + n) * u)) + product_error + (4 * n + 200) * u;
  for (int64_t d = 0; d < dim; ++d) {
    expected.values[d] /= denominator;
    expected.bounds[d] = relative * expected.bounds[d] / denominator + 1e-37;
  }
  return expected;
}

double oracle(const Problem& problem, int64_t token, int64_t head, int64_t d) {
  return expect_row(problem, token, head, 0).values[d];
}

class Attention : public subbyte::testing::IsaTest {
 protected:
  static std::vector<float> run(const Problem& problem, int threads) {
    std::vector<float> out(problem.q.size(), NAN);
    attention(execution(threads), out, problem.q, problem.cache(), problem.first_position,
              problem.shape, problem.sinks);
    return out;
  }

  static void expect_oracle(const Problem& problem) {
    const std::vector<float> out = run(problem, 1);
    EXPECT_TRUE(same_bits(out, run(problem, 2))) << "threads must not matter";
    EXPECT_TRUE(same_bits(out, run(problem, 8))) << "threads must not matter";
    // Two bf16 for each number: an error of 2^-16 of both, and the product of the low parts.
    const double product_error = GetParam() == "amx" ? 3 * 0x1p-16 : 0;
    const float* y = out.data();
    int wrong = 0;
    for (int64_t token = 0; token < problem.tokens; ++token) {
      for (int64_t head = 0; head < problem.shape.heads; ++head) {
        const Expected expected = expect_row(problem, token, head, product_error);
        for (int64_t d = 0; d < problem.shape.head_dim; ++d, ++y) {
          wrong += !(std::abs(*y - expected.values[d]) <= expected.bounds[d]);
        }
      }
    }
    EXPECT_EQ(wrong, 0) << problem.tokens << " tokens from " << problem.first_position << ", head "
                        << problem.shape.head_dim << ", window " << problem.shape.window;
  }

  static bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }
};

AttentionShape shape_of(int64_t heads, int64_t kv_heads, int64_t dim, int64_t window = 0) {
  return {heads, kv_heads, dim, 1 / std::sqrt(static_cast<float>(dim)), window};
}

TEST_P(Attention, matches_the_formula_for_all_groupings) {
  for (const auto& [heads, kv_heads] : {std::pair(1, 1), {4, 4}, {4, 2}, {8, 1}, {6, 2}}) {
    for (const int64_t dim : {2, 8, 20, 64, 128}) {
      expect_oracle(make_problem(shape_of(heads, kv_heads, dim), 5, 0, false, heads * dim));
    }
  }
}

TEST_P(Attention, continues_behind_what_is_cached) {
  for (const int64_t first : {1, 7, 40}) {
    for (const int64_t tokens : {1, 2, 9}) {
      expect_oracle(make_problem(shape_of(4, 2, 16), tokens, first, false, first + tokens));
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

TEST_P(Attention, large_scores_do_not_overflow) {
  Problem problem = make_problem(shape_of(1, 1, 4), 1, 3, true, 13);
  for (float& x : problem.q) x *= 1e4f;
  for (const float sink : {1e5f, -1e5f}) {
    problem.sinks = {sink};
    for (const float y : run(problem, 1)) EXPECT_TRUE(std::isfinite(y));
  }
}

TEST_P(Attention, nan_stays_in_its_token_and_head) {
  Problem problem = make_problem(shape_of(2, 2, 4), 3, 0, false, 14);
  problem.q[1 * 8 + 2] = NAN;  // token 1, head 0
  const std::vector<float> out = run(problem, 2);
  for (int i = 0; i < 24; ++i) EXPECT_EQ(std::isnan(out[i]), i >= 8 && i < 12) << i;
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

TEST_P(Attention, growing_scores_and_falling_ones_meet_every_rescaling) {
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

TEST_P(Attention, reads_nothing_behind_the_cache) {
  for (const int64_t dim : {1, 3, 16, 20, 33}) {
    for (const int64_t tokens : {1, 13}) {
      Problem problem = make_problem(shape_of(4, 2, dim), tokens, 64 - tokens, false, 41);
      const std::size_t bytes = problem.keys.size() * sizeof(float);
      testing::GuardedBytes keys(bytes), values(bytes);
      std::memcpy(keys.data(), problem.keys.data(), bytes);
      std::memcpy(values.data(), problem.values.data(), bytes);
      const KvView cache = {reinterpret_cast<const float*>(keys.data()),
                            reinterpret_cast<const float*>(values.data()), problem.capacity};
      std::vector<float> out(problem.q.size());
      attention(execution(1), out, problem.q, cache, problem.first_position, problem.shape);
      EXPECT_EQ(out, run(problem, 1));
    }
  }
}

TEST_P(Attention, what_comes_later_does_not_show) {
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

TEST_P(Attention, extreme_scores_agree) {
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

TEST_P(Attention, numbers_of_any_size_agree) {
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

TEST_P(Attention, nan_in_a_prompt_stays_in_its_row) {
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

TEST_P(Attention, an_infinite_value_stays_in_its_column) {
  Problem problem = make_problem(shape_of(2, 1, 24), 80, 0, false, 85, 100);
  problem.values[20 * 24 + 9] = -INFINITY;
  const std::vector<float> out = run(problem, 2);
  for (int64_t i = 0; i < std::ssize(out); ++i) {
    const bool sees = i / 48 >= 20 && i % 24 == 9;
    EXPECT_EQ(out[i] == -INFINITY, sees) << i;
    EXPECT_TRUE(sees || std::isfinite(out[i])) << i;
  }
}

TEST_P(Attention, a_token_by_itself_is_the_same_when_batches_must_not_matter) {
  auto execution =
      Execution::create({.num_threads = 2, .isa = GetParam(), .batch_invariant = true});
  ASSERT_TRUE(execution.ok());
  for (const int64_t heads : {2, 40}) {  // that share one: with 40 a token is a tile
    const Problem problem = make_problem(shape_of(heads, 1, 32), 50, 200, true, 86, 300);
    const auto run_some = [&](int64_t token, int64_t count) {
      const int64_t row = heads * 32;
      std::vector<float> out(count * row);
      attention(**execution, out, {&problem.q[token * row], static_cast<std::size_t>(count * row)},
                problem.cache(), 200 + token, problem.shape, problem.sinks);
      return out;
    };
    std::vector<float> one_by_one;
    for (int64_t token = 0; token < 50; ++token) {
      const std::vector<float> out = run_some(token, 1);
      one_by_one.insert(one_by_one.end(), out.begin(), out.end());
    }
    EXPECT_TRUE(same_bits(one_by_one, run_some(0, 50)));
  }
}

TEST_P(Attention, writes_nothing_but_its_results) {
  for (const int64_t dim : {20, 64}) {
    const Problem problem = make_problem(shape_of(4, 2, dim), 45, 9, false, 87);
    std::vector<float> out(problem.q.size() + 64, 12345);
    attention(execution(2), std::span(out).subspan(32, problem.q.size()), problem.q,
              problem.cache(), 9, problem.shape);
    for (std::size_t i = 0; i < 32; ++i) {
      EXPECT_EQ(out[i], 12345);
      EXPECT_EQ(out[out.size() - 1 - i], 12345);
    }
    EXPECT_TRUE(same_bits({out.begin() + 32, out.end() - 32}, run(problem, 1)));
  }
}

TEST_P(Attention, infinite_scores_are_those_of_the_formula) {
  for (const int64_t tokens : {1, 20}) {
    for (const int64_t capacity : {64, 600}) {
      const AttentionShape shape = shape_of(1, 1, 4);
      Problem problem = make_problem(shape, tokens, capacity - tokens, false, 61, capacity);
      for (float& x : problem.q) x = 1;
      const Problem clean = problem;
      // A score of -infinity weighs nothing, even at the start where nothing else was seen.
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

TEST_P(Attention, of_nothing_is_nothing) {
  const Problem problem = make_problem(shape_of(2, 1, 4), 1, 3, false, 1);
  attention(execution(1), {}, {}, problem.cache(), 3, problem.shape);
}

SUBBYTE_FOR_EVERY_ISA(Attention);

}  // namespace
}  // namespace subbyte
