#pragma once
// Positions that heads of an index select, by their definition: of small integers, which all
// machines add up exactly, so that there are ties.

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "ops/attention.h"

namespace subbyte::testing {

struct SelectionProblem {
  AttentionShape shape;
  int64_t tokens = 1;
  int64_t first_position = 0;
  std::vector<float> q, keys, weights;  // [tokens][heads][dim], [positions][dim], [tokens][heads]

  SelectionProblem(const AttentionShape& of, int64_t num_tokens, int64_t first, uint64_t seed)
      : shape(of), tokens(num_tokens), first_position(first) {
    Random random(seed);
    const auto fill = [&](std::vector<float>& numbers, int64_t count, int64_t most) {
      for (int64_t i = 0; i < count; ++i) {
        const auto drawn = static_cast<int64_t>(random.below(static_cast<uint64_t>(2 * most + 1)));
        numbers.push_back(static_cast<float>(drawn - most));
      }
    };
    fill(q, tokens * shape.q_size(), 2);
    fill(keys, (first_position + tokens) * shape.head_dim, 2);
    fill(weights, tokens * shape.heads, 3);
  }

  /// Those of a token, in ascending order.
  std::vector<float> expected(int64_t token) const {
    std::vector<int64_t> scores;
    for (int64_t p = 0; p <= first_position + token; ++p) scores.push_back(score(token, p));
    std::vector<int64_t> order(scores.size());
    std::iota(order.begin(), order.end(), int64_t{0});
    std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return scores[a] > scores[b]; });
    order.resize(std::min<std::size_t>(order.size(), static_cast<std::size_t>(shape.top)));
    std::ranges::sort(order);
    return {order.begin(), order.end()};
  }

 private:
  int64_t score(int64_t token, int64_t position) const {
    int64_t sum = 0;
    for (int64_t head = 0; head < shape.heads; ++head) {
      int64_t product = 0;
      for (int64_t i = 0; i < shape.head_dim; ++i) {
        product += static_cast<int64_t>(q[(token * shape.heads + head) * shape.head_dim + i]) *
                   static_cast<int64_t>(keys[position * shape.head_dim + i]);
      }
      const auto weight = static_cast<int64_t>(weights[token * shape.heads + head]);
      sum += weight * std::max<int64_t>(product, 0);
    }
    return sum;
  }
};

}  // namespace subbyte::testing
