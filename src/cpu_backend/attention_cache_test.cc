// Attention and the cache: pages, its types, several sequences, and memory that is not its own.

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

class AttentionCache : public testing::AttentionTest {};

TEST_P(AttentionCache, continues_after_what_is_cached) {
  for (const int64_t first : {1, 7, 40}) {
    for (const int64_t tokens : {1, 2, 9}) {
      expect_oracle(make_problem(shape_of(4, 2, 16), tokens, first, false, first + tokens));
    }
  }
}

TEST_P(AttentionCache, reads_nothing_after_the_last_page) {
  for (const int64_t dim : {1, 3, 16, 20, 33}) {
    for (const int64_t tokens : {1, 13}) {
      for (const Element type : {Element::kF32, Element::kF16, Element::kBF16}) {
        const int64_t first = kPagePositions - tokens;  // up to the byte before one that faults
        const Problem problem =
            make_problem(shape_of(4, 2, dim), tokens, first, false, 41, kPagePositions);
        PagedCache cache(problem, type);
        for (const float y : run(execution(1), problem, cache)) {
          EXPECT_TRUE(std::isfinite(y));
        }
      }
    }
  }
}

TEST_P(AttentionCache, a_token_by_itself_is_the_same_when_batches_must_not_matter) {
  auto execution =
      Execution::create({.num_threads = 2, .isa = GetParam(), .batch_invariant = true});
  ASSERT_TRUE(execution.ok());
  for (const int64_t heads : {2, 40}) {  // that share one: with 40 a token is a tile
    const Problem problem = make_problem(shape_of(heads, 1, 32), 50, 200, true, 86, 300);
    PagedCache cache(problem);
    std::vector<float> one_by_one;
    for (int64_t token = 0; token < 50; ++token) {
      const std::vector<float> out = run(**execution, problem, cache, token, 1);
      one_by_one.insert(one_by_one.end(), out.begin(), out.end());
    }
    EXPECT_TRUE(same_bits(one_by_one, run(**execution, problem, cache)));
  }
}

TEST_P(AttentionCache, keys_and_values_in_16_bits_are_those_numbers) {
  for (const Element type : {Element::kF16, Element::kBF16}) {
    const auto rounded = [type](Problem problem) {
      const auto round = [type](float x) {
        return type == Element::kF16 ? to_float(to_float16(x)) : to_float(to_bfloat16(x));
      };
      for (float& x : problem.keys) x = round(x);
      for (float& x : problem.values) x = round(x);
      return problem;
    };
    for (const int64_t dim : {1, 5, 16, 20, 64, 80, 128}) {
      for (const int64_t tokens : {1, 4, 30, 200}) {
        expect_oracle(rounded(make_problem(shape_of(4, 2, dim), tokens, 70, true, dim, 300)), type);
      }
      expect_oracle(rounded(make_problem(shape_of(8, 1, dim, 100), 3, 900, true, dim, 1000)), type);
    }
    // What does not fit into tiles, and infinities.
    Problem problem = make_problem(shape_of(4, 2, 20), 40, 60, true, 83, 128);
    for (const int64_t p : {0, 40, 63, 64, 77}) {
      problem.keys[p * 20 + 3] = 6e4F;
      problem.values[p * 20 + 7] = -6e4F;
      problem.values[p * 20 + 8] = 1e-7F;
    }
    for (std::size_t i = 3; i < problem.q.size(); i += 20) problem.q[i] *= 1e-4F;
    expect_oracle(rounded(problem), type);
    problem.values[40 * 20 + 9] = -INFINITY;
    PagedCache cache(problem, type);
    const std::vector<float> out = run(execution(2), problem, cache);
    for (int64_t i = 0; i < std::ssize(out); ++i) {
      const bool sees = i / 80 + 60 >= 40 && i / 20 % 4 < 2 && i % 20 == 9;
      EXPECT_EQ(out[i] == -INFINITY, sees) << i;
    }
  }
}

/// The problem with keys and values that e4m3 holds. Those of a position are of another magnitude
/// than those of its neighbours.
Problem in_e4m3(Problem problem) {
  const int64_t dim = problem.shape.head_dim;
  for (std::vector<float>* all : {&problem.keys, &problem.values}) {
    for (int64_t at = 0; at < std::ssize(*all); at += dim) {
      const std::span<float> run(&(*all)[at], dim);
      const float magnitude = std::ldexp(1.0F, static_cast<int>(at / dim * 7 % 5) - 3);
      for (float& x : run) x *= magnitude;
      const std::vector<float> stored = testing::to_e4m3(run).values;
      std::ranges::copy(stored, run.begin());
    }
  }
  return problem;
}

TEST_P(AttentionCache, keys_and_values_in_e4m3_are_those_numbers) {
  constexpr Element kType = Element::kE4M3;
  for (const int64_t dim : {1, 5, 16, 20, 64, 80, 96, 128, 256}) {
    for (const int64_t tokens : {1, 4, 30, 200}) {
      expect_oracle(in_e4m3(make_problem(shape_of(4, 2, dim), tokens, 70, true, dim, 300)), kType);
    }
    expect_oracle(in_e4m3(make_problem(shape_of(8, 1, dim, 100), 3, 900, true, dim, 1000)), kType);
  }
  expect_oracle(in_e4m3(make_problem(shape_of(2, 1, 32), 700, 0, false, 5, 700)), kType);
}

TEST_P(AttentionCache, an_infinite_element_in_e4m3_is_nan_for_those_that_see_it) {
  for (const int64_t tokens : {3, 40}) {
    Problem problem = make_problem(shape_of(2, 2, 16, 4), tokens, 60, false, 90, 128);
    problem.keys[61 * 16 + 3] = INFINITY;             // head 0
    problem.values[(128 + 62) * 16 + 5] = -INFINITY;  // head 1
    PagedCache cache(problem, Element::kE4M3);
    const std::vector<float> out = run(execution(2), problem, cache);
    for (int64_t i = 0; i < std::ssize(out); ++i) {
      const int64_t last = 60 + i / 32;
      const int64_t infinite = i / 16 % 2 == 0 ? 61 : 62;
      EXPECT_EQ(std::isnan(out[i]), infinite <= last && infinite > last - 4) << i;
    }
  }
}

/// One problem whose cache holds those of all `problems`, each from a page of its own on.
Problem joined(const std::vector<Problem>& problems) {
  const AttentionShape& shape = problems.front().shape;
  const auto positions = [](const Problem& one) { return kv_pages(one.capacity) * kPagePositions; };
  int64_t capacity = 0;
  for (const Problem& problem : problems) capacity += positions(problem);
  Problem all = make_problem(shape, 1, 0, false, 1, capacity);
  int64_t at = 0;
  for (const Problem& problem : problems) {
    const int64_t run = problem.capacity * shape.head_dim;
    for (int64_t head = 0; head < shape.kv_heads; ++head) {
      const int64_t to = (head * capacity + at) * shape.head_dim;
      std::copy_n(&problem.keys[head * run], run, &all.keys[to]);
      std::copy_n(&problem.values[head * run], run, &all.values[to]);
    }
    at += positions(problem);
  }
  return all;
}

/// The queries of all problems in rows of `stride`, with NaN between them.
std::vector<float> strided_queries(const std::vector<Problem>& problems, int64_t stride) {
  std::vector<float> q;
  for (const Problem& problem : problems) {
    const int64_t row = problem.shape.q_size();
    for (int64_t t = 0; t < problem.tokens; ++t) {
      q.insert(q.end(), problem.q.begin() + t * row, problem.q.begin() + (t + 1) * row);
      q.resize(q.size() + stride - row, NAN);
    }
  }
  return q;
}

TEST_P(AttentionCache, parts_together_are_the_same_bits_as_alone) {
  // Prompts, single tokens and long contexts, which are cut up, in one call; the queries have other
  // heads between their rows.
  const AttentionShape shape = shape_of(6, 2, 24, 300);
  struct Case {
    int64_t tokens, first;
  };
  std::vector<Problem> problems;
  for (const auto& [tokens, first] :
       {Case{1, 0}, Case{1, 2500}, Case{70, 0}, Case{1, 130}, Case{9, 4000}, Case{1, 3999}}) {
    problems.push_back(make_problem(shape, tokens, first, true, first + 7, first + tokens));
    problems.back().sinks = problems.front().sinks;
  }
  PagedCache cache(joined(problems));
  const int64_t stride = shape.q_size() + 2 * shape.kv_size();
  const std::vector<float> q = strided_queries(problems, stride);
  std::vector<float> out(q.size() / stride * shape.q_size());
  std::vector<AttentionPart> parts;
  int64_t row = 0;
  int64_t page = 0;
  for (const Problem& problem : problems) {
    const int64_t pages = kv_pages(problem.capacity);
    parts.push_back({&q[row * stride], &out[row * shape.q_size()], problem.tokens,
                     problem.first_position, cache.pages().subspan(page, pages)});
    row += problem.tokens;
    page += pages;
  }
  for (const int threads : {1, 2, 8}) {
    std::ranges::fill(out, NAN);
    attention(execution(threads), parts, stride, cache.layer(), shape, problems.front().sinks);
    const float* together = out.data();
    for (const Problem& problem : problems) {
      const std::vector<float> alone = run(problem, 1);
      EXPECT_TRUE(same_bits(alone, {together, together + alone.size()}))
          << problem.tokens << " tokens from " << problem.first_position;
      together += alone.size();
    }
  }
}

TEST_P(AttentionCache, writes_nothing_but_its_results) {
  for (const int64_t dim : {20, 64}) {
    const Problem problem = make_problem(shape_of(4, 2, dim), 45, 9, false, 87);
    std::vector<float> out(problem.q.size() + 64, 12345);
    PagedCache cache(problem);
    const AttentionPart part = {problem.q.data(), out.data() + 32, 45, 9, cache.pages()};
    attention(execution(2), {&part, 1}, problem.shape.q_size(), cache.layer(), problem.shape);
    for (std::size_t i = 0; i < 32; ++i) {
      EXPECT_EQ(out[i], 12345);
      EXPECT_EQ(out[out.size() - 1 - i], 12345);
    }
    EXPECT_TRUE(same_bits({out.begin() + 32, out.end() - 32}, run(problem, 1)));
  }
}

TEST_P(AttentionCache, of_nothing_is_nothing) {
  const Problem problem = make_problem(shape_of(2, 1, 4), 1, 3, false, 1);
  PagedCache cache(problem);
  attention(execution(1), {}, 8, cache.layer(), problem.shape);
}

SUBBYTE_FOR_EVERY_ISA(AttentionCache);

}  // namespace
}  // namespace subbyte
