#pragma once
// Routers of mixtures of experts in double precision, one token after the other, and random ones
// with ties, biases and groups.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/routing.h"

namespace subbyte::testing {

struct RouterProblem {
  std::string name;
  Routing rule;
  int64_t experts = 0;
  int64_t top_k = 0;
  std::vector<float> biases = {}, factors = {};  // [experts], or empty

  bool operator==(const RouterProblem&) const = default;
};

struct ReferenceRoute {
  int32_t expert = 0;
  double weight = 0;
};

/// The scores of a token's logits.
inline std::vector<double> scores_of(const Routing& rule, std::span<const float> logits) {
  std::vector<double> scores;
  double sum = 0;
  const double largest = *std::ranges::max_element(logits);
  for (const float logit : logits) {
    const bool is_softmax = rule.scores == Routing::Scores::kSoftmax;
    scores.push_back(is_softmax ? std::exp(logit - largest) : 1 / (1 + std::exp(-double{logit})));
    sum += scores.back();
  }
  for (double& score : scores) score /= rule.scores == Routing::Scores::kSoftmax ? sum : 1;
  return scores;
}

/// The numbers of `of`, the largest first, the lower index on ties.
inline std::vector<int64_t> best_of(const std::vector<double>& of) {
  std::vector<int64_t> order(of.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return of[a] > of[b]; });
  return order;
}

inline std::vector<ReferenceRoute> reference_routes(const RouterProblem& router,
                                                    std::span<const float> logits) {
  const Routing& rule = router.rule;
  const std::vector<double> scores = scores_of(rule, logits);
  std::vector<double> numbers = scores;
  for (std::size_t e = 0; e < router.biases.size(); ++e) numbers[e] += router.biases[e];
  const std::size_t size = numbers.size() / static_cast<std::size_t>(rule.groups);
  std::vector<double> of_groups;
  for (std::size_t first = 0; first < numbers.size(); first += size) {
    std::vector<double> group(numbers.begin() + first, numbers.begin() + first + size);
    std::ranges::sort(group, std::greater<>());
    of_groups.push_back(rule.groups_by_two && size > 1 ? group[0] + group[1] : group[0]);
  }
  std::vector<bool> is_kept(of_groups.size(), false);
  for (int32_t i = 0; i < rule.top_groups; ++i) is_kept[best_of(of_groups)[i]] = true;
  std::vector<ReferenceRoute> routes;
  double sum = 0;
  for (const int64_t expert : best_of(numbers)) {
    if (std::ssize(routes) == router.top_k || !is_kept[expert / size]) continue;
    routes.push_back({static_cast<int32_t>(expert), scores[expert]});
    sum += scores[expert];
  }
  const double divisor =
      rule.normalises ? std::max(sum + rule.added, double{rule.smallest_sum}) : 1;
  for (ReferenceRoute& route : routes) {
    route.weight *= rule.factor / divisor;
    if (!router.factors.empty()) route.weight *= router.factors[route.expert];
  }
  return routes;
}

/// Logits of tokens: of every other token the second half of the experts has those of the first, so
/// that experts and groups have ties; of the rest many are equal.
inline std::vector<float> random_logits(int64_t tokens, int64_t experts, Random& random) {
  std::vector<float> logits(tokens * experts);
  for (int64_t t = 0; t < tokens; ++t) {
    float* const row = logits.data() + t * experts;
    for (int64_t e = 0; e < experts; ++e) {
      row[e] = 0.25f * (static_cast<float>(random.below(33)) - 16);
      if (t % 2 == 0 && e >= experts / 2) row[e] = row[e % (experts / 2)];
    }
  }
  return logits;
}

/// Routers as families have them. Biases of the second half are those of the first.
inline std::vector<RouterProblem> router_problems(uint64_t seed) {
  constexpr auto kSigmoid = Routing::Scores::kSigmoid;
  Random random(seed);
  const auto numbers = [&](int64_t experts) {
    std::vector<float> all(experts);
    for (float& number : all) number = static_cast<float>(random.normal());
    std::copy_n(all.begin(), experts / 2, all.begin() + experts / 2);
    return all;
  };
  const auto by_two = [&](int64_t experts, int32_t groups, int32_t top_groups) {
    const Routing rule = {.scores = kSigmoid,
                          .added = 1e-20f,
                          .factor = 2.5f,
                          .groups = groups,
                          .top_groups = top_groups,
                          .groups_by_two = true};
    return RouterProblem{"two best of " + std::to_string(groups), rule, experts, 4,
                         numbers(experts)};
  };
  const Routing by_best = {.normalises = false, .factor = 16, .groups = 8, .top_groups = 3};
  return {{"softmax of the chosen", {}, 8, 2},
          {"softmax of all", {.normalises = false}, 60, 4},
          {"groups by their best", by_best, 160, 6},
          {"sigmoid", {.scores = kSigmoid, .added = 1e-6f}, 32, 4},
          {"sigmoid with biases", {.scores = kSigmoid, .factor = 2.5f}, 256, 8, numbers(256)},
          {"sigmoid of one", {.scores = kSigmoid, .normalises = false}, 16, 1},
          {"softmax with biases", {.smallest_sum = 0.5f}, 64, 6, numbers(64)},
          {"many", {.scores = kSigmoid}, 1000, 32, numbers(1000)},
          {"factors of experts", {}, 128, 8, {}, numbers(128)},
          by_two(256, 2, 1),
          by_two(256, 8, 4),
          by_two(64, 32, 3),
          by_two(16, 16, 5)};
}

}  // namespace subbyte::testing
