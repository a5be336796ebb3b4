// The choice of experts against the same in double precision.

#include <gtest/gtest.h>

#include "cpu_backend/experts.h"
#include "support/routing_reference.h"

namespace subbyte {
namespace {

using subbyte::testing::random_logits;
using subbyte::testing::ReferenceRoute;
using subbyte::testing::router_problems;
using subbyte::testing::RouterProblem;

std::vector<Route> route(const RouterProblem& router, std::span<const float> logits) {
  std::vector<Route> routes(std::ssize(logits) / router.experts * router.top_k);
  route_top_k(routes, logits, router.experts, router.top_k,
              {router.rule, router.biases, router.factors});
  return routes;
}

TEST(Routing, is_what_double_precision_says) {
  Random random(1);
  for (const RouterProblem& router : router_problems(2)) {
    constexpr int64_t kTokens = 50;
    const std::vector<float> logits = random_logits(kTokens, router.experts, random);
    const std::vector<Route> found = route(router, logits);
    for (int64_t t = 0; t < kTokens; ++t) {
      const auto expected =
          reference_routes(router, std::span(logits).subspan(t * router.experts, router.experts));
      ASSERT_EQ(std::ssize(expected), router.top_k) << router.name;
      for (int64_t i = 0; i < router.top_k; ++i) {
        const Route& one = found[t * router.top_k + i];
        ASSERT_EQ(one.expert, expected[i].expert) << router.name << ", token " << t << ", " << i;
        ASSERT_NEAR(one.weight, expected[i].weight, 1e-6 * std::fabs(expected[i].weight))
            << router.name << ", token " << t << ", " << i;
      }
    }
  }
}

/// Without what a router has more than logits the choice is another one.
TEST(Routing, each_attribute_changes_what_is_found) {
  Random random(3);
  const auto differs = [&](const RouterProblem& router, const auto& change) {
    RouterProblem other = router;
    change(other);
    const std::vector<float> logits = random_logits(20, router.experts, random);
    const std::vector<Route> with = route(router, logits);
    const std::vector<Route> without = route(other, logits);
    return !std::ranges::equal(with, without, [](const Route& a, const Route& b) {
      return a.expert == b.expert && a.weight == b.weight;
    });
  };
  for (const RouterProblem& router : router_problems(4)) {
    const auto expect = [&](const auto& change, const char* what) {
      RouterProblem other = router;
      change(other);
      if (other == router) return;
      EXPECT_TRUE(differs(router, change)) << router.name << " without " << what;
    };
    expect([](auto& r) { r.biases.clear(); }, "biases");
    expect([](auto& r) { r.factors.clear(); }, "factors");
    const bool has_groups_of_many = router.rule.groups < router.experts;
    if (has_groups_of_many) {
      expect([](auto& r) { r.rule.groups = r.rule.top_groups = 1; }, "groups");
    }
    expect([](auto& r) { r.rule.factor = 1; }, "factor");
    expect([](auto& r) { r.rule.smallest_sum = 0; }, "smallest sum");
    expect([](auto& r) { r.rule.normalises = !r.rule.normalises; }, "sum");
  }
}

TEST(Routing, a_bias_only_chooses) {
  RouterProblem router = {"", {.scores = Routing::Scores::kSigmoid, .normalises = false}, 4, 2};
  router.biases = {0, 0, 9, 9};
  const std::vector<Route> routes = route(router, std::vector<float>{3, 2, 0, 0});
  EXPECT_EQ(routes[0].expert, 2);
  EXPECT_EQ(routes[1].expert, 3);
  EXPECT_EQ(routes[0].weight, 0.5f);
}

TEST(Routing, nan_is_not_dropped_in_silence) {
  for (const RouterProblem& router : router_problems(5)) {
    std::vector<float> logits(router.experts, 0.5f);
    logits.back() = NAN;
    const std::vector<Route> routes = route(router, logits);
    EXPECT_TRUE(std::ranges::any_of(routes, [](const Route& one) {
      return std::isnan(one.weight);
    })) << router.name;
  }
}

}  // namespace
}  // namespace subbyte
