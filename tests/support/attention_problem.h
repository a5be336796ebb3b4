#pragma once
// Attention in double precision by the textbook formula, and what its tests share.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/float16.h"
#include "base/random.h"
#include "cpu_backend/attention.h"
#include "ops/kv_pool.h"
#include "support/guarded_bytes.h"
#include "support/isa_test.h"
#include "support/kv_e4m3.h"
#include "support/normal_numbers.h"

namespace subbyte::testing {

struct Problem {
  AttentionShape shape;
  int64_t tokens = 1;
  int64_t first_position = 0;
  int64_t capacity = 64;
  std::vector<float> q, keys, values, sinks;  // keys, values: [kv_head][capacity][head_dim]
};

/// The keys and values of a problem in pages that lie in another order, all else being NaN. The
/// last page of the sequence is the last in memory, and the next byte faults.
class PagedCache {
 public:
  explicit PagedCache(const Problem& problem, Element type = Element::kF32)
      : shape_{1, problem.shape.kv_heads, problem.shape.head_dim, type},
        bytes_(static_cast<std::size_t>(kv_pages(problem.capacity) * shape_.page_bytes())) {
    const int64_t count = kv_pages(problem.capacity);
    for (int64_t i = 0; i + 1 < count; ++i) pages_.push_back(static_cast<int32_t>(count - 2 - i));
    pages_.push_back(static_cast<int32_t>(count - 1));
    for (int64_t head = 0; head < shape_.kv_heads; ++head) {
      for (int64_t position = 0; position < count * kPagePositions; ++position) {
        const int64_t from = (head * problem.capacity + position) * shape_.head_dim;
        const bool inside = position < problem.capacity;
        put(head, 0, position, inside ? &problem.keys[from] : nullptr);
        put(head, 1, position, inside ? &problem.values[from] : nullptr);
      }
    }
  }

  std::span<const int32_t> pages() const { return pages_; }
  KvLayer layer() {
    return {reinterpret_cast<std::byte*>(bytes_.data()), shape_.page_bytes(), 0, shape_.run_bytes(),
            shape_.type};
  }

 private:
  /// A key (0) or value (1); nullptr: NaN.
  void put(int64_t head, int64_t kind, int64_t position, const float* values) {
    const int64_t page = pages_[position / kPagePositions];
    const int64_t row = position % kPagePositions;
    std::byte* const run =
        bytes_.data() + page * shape_.page_bytes() + (2 * head + kind) * shape_.run_bytes();
    std::byte* to = run + row * shape_.head_dim * shape_.element_bytes();
    const std::vector<float> nan(shape_.head_dim, NAN);
    const std::span<const float> all(values == nullptr ? nan.data() : values, shape_.head_dim);
    if (shape_.type == Element::kE4M3) {
      const E4M3Run stored = to_e4m3(all);
      std::memcpy(to, stored.elements.data(), stored.elements.size());
      run[shape_.elements_bytes() + row] = static_cast<std::byte>(stored.scale);
      return;
    }
    for (const float value : all) {
      put_element(to, value);
      to += shape_.element_bytes();
    }
  }

  void put_element(std::byte* to, float value) {
    const auto store = [to](auto number) { std::memcpy(to, &number, sizeof number); };
    switch (shape_.type) {
      case Element::kF32:
        return store(value);
      case Element::kF16:
        return store(to_float16(value));
      case Element::kBF16:
        return store(to_bfloat16(value));
      case Element::kE4M3:
        break;  // of runs
    }
  }

  KvShape shape_;
  GuardedBytes bytes_;
  std::vector<int32_t> pages_;
};

/// Positions of the cache that no token may see are NaN.
inline Problem make_problem(const AttentionShape& shape, int64_t tokens, int64_t first_position,
                            bool with_sinks, uint64_t seed, int64_t capacity = 64) {
  Problem problem;
  problem.capacity = capacity;
  problem.shape = shape;
  problem.tokens = tokens;
  problem.first_position = first_position;
  Random random(seed);
  const auto fill = [&](std::vector<float>& values, int64_t size, float scale) {
    values.resize(size);
    for (float& value : values) value = scale * normal_number(random);
  };
  const int64_t cache = shape.kv_heads * problem.capacity * shape.head_dim;
  fill(problem.q, tokens * shape.heads * shape.head_dim, 1);
  fill(problem.keys, cache, 1);
  fill(problem.values, cache, 1);
  if (with_sinks) fill(problem.sinks, shape.heads, 2);
  const int64_t used = first_position + tokens;
  const int64_t seen_from =
      shape.window > 0 ? std::max<int64_t>(0, first_position - shape.window + 1) : 0;
  for (int64_t run = 0; run < cache; run += shape.head_dim) {
    const int64_t position = run / shape.head_dim % problem.capacity;
    if (position < used && position >= seen_from) continue;
    std::fill_n(&problem.keys[run], shape.head_dim, NAN);
    std::fill_n(&problem.values[run], shape.head_dim, NAN);
  }
  return problem;
}

/// What one token and head should give, and how much an element may differ.
struct ExpectedRow {
  std::vector<double> values;
  std::vector<double> bounds;
};

/// The textbook formula. The bounds are those that the kernels state (attention.inl.h,
/// attention_tiles.inl.h), for products of which each is off by `product_error` of itself: an error
/// of the scores makes e^error of it in each weight, and as much in their sum. The 200 roundings
/// are those of the sum of weights in a block, of merging and of dividing.
inline ExpectedRow expect_row(const Problem& problem, int64_t token, int64_t head,
                              double product_error) {
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
  ExpectedRow expected{std::vector<double>(dim), std::vector<double>(dim)};
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

inline double oracle(const Problem& problem, int64_t token, int64_t head, int64_t d) {
  return expect_row(problem, token, head, 0).values[d];
}

inline AttentionShape shape_of(int64_t heads, int64_t kv_heads, int64_t dim, int64_t window = 0) {
  return {heads, kv_heads, dim, 1 / std::sqrt(static_cast<float>(dim)), window};
}

class AttentionTest : public IsaTest {
 protected:
  /// `count` tokens of the problem from `token` on, all of them if it is negative.
  static std::vector<float> run(Execution& execution, const Problem& problem, PagedCache& cache,
                                int64_t token = 0, int64_t count = -1) {
    const int64_t row = problem.shape.q_size();
    if (count < 0) count = problem.tokens;
    std::vector<float> out(count * row, NAN);
    const AttentionPart part = {problem.q.data() + token * row, out.data(), count,
                                problem.first_position + token, cache.pages()};
    attention(execution, {&part, 1}, row, cache.layer(), problem.shape, problem.sinks);
    return out;
  }
  static std::vector<float> run(const Problem& problem, int threads) {
    PagedCache cache(problem);
    return run(execution(threads), problem, cache);
  }

  static void expect_oracle(const Problem& problem, Element type = Element::kF32) {
    PagedCache cache(problem, type);
    const std::vector<float> out = run(execution(1), problem, cache);
    EXPECT_TRUE(same_bits(out, run(execution(2), problem, cache))) << "threads must not matter";
    EXPECT_TRUE(same_bits(out, run(execution(8), problem, cache))) << "threads must not matter";
    // Two bf16 for each number: an error of 2^-16 of both, and the product of the low parts.
    const double product_error = GetParam() == "amx" ? 3 * 0x1p-16 : 0;
    const float* y = out.data();
    int wrong = 0;
    for (int64_t token = 0; token < problem.tokens; ++token) {
      for (int64_t head = 0; head < problem.shape.heads; ++head) {
        const ExpectedRow expected = expect_row(problem, token, head, product_error);
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

}  // namespace subbyte::testing
