// The choice of experts against the same in double precision.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "device_bytes.h"
#include "gpu_linear.h"
#include "kernels/cuda/experts/route.h"
#include "ops_gpu.h"
#include "support/routing_reference.h"

namespace subbyte::testing {
namespace {

constexpr int kTileTokens = 4;

struct FoundRoutes {
  std::vector<int32_t> experts, order, token_of;
  std::vector<cuda::ExpertTile> tiles;
  std::vector<float> weights, of_inputs;
};

template <class T>
std::vector<T> read_as(const DeviceBytes& from) {
  const std::vector<std::byte> bytes = from.read();
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

FoundRoutes route_on_gpu(const RouterProblem& router, const std::vector<float>& logits,
                         bool has_clusters = false) {
  const int64_t tokens = std::ssize(logits) / router.experts;
  const int64_t routes = tokens * router.top_k;
  const DeviceNumbers given(logits, Element::kF32);
  const DeviceNumbers biases(router.biases, Element::kF32), factors(router.factors, Element::kF32);
  const DeviceNumbers weights(routes, Element::kF32), of_inputs(routes, Element::kF32);
  const DeviceBytes experts(routes * 4), order(routes * 4), token_of(routes * 4);
  const DeviceBytes tiles(routes * int64_t{sizeof(cuda::ExpertTile)});
  cuda::RouteCall call;
  call.logits = given.data<float>();
  call.tokens = tokens;
  call.experts = router.experts;
  call.top_k = router.top_k;
  call.tile_tokens = kTileTokens;
  call.num_tiles = routes;
  call.has_clusters = has_clusters;
  call.rule = router.rule;
  if (!router.biases.empty()) call.biases = biases.data<float>();
  if (!router.factors.empty()) call.factors = factors.data<float>();
  call.expert_of = reinterpret_cast<int32_t*>(experts.data());
  call.weights = weights.data<float>();
  if (router.rule.weights_inputs) call.of_inputs = of_inputs.data<float>();
  call.order = reinterpret_cast<int32_t*>(order.data());
  call.token_of = reinterpret_cast<int32_t*>(token_of.data());
  call.tiles = reinterpret_cast<cuda::ExpertTile*>(tiles.data());
  cuda::run_route(call, nullptr);
  expect_ran();
  FoundRoutes found;
  found.experts = read_as<int32_t>(experts);
  found.order = read_as<int32_t>(order);
  found.token_of = read_as<int32_t>(token_of);
  found.tiles = read_as<cuda::ExpertTile>(tiles);
  found.weights = weights.read();
  found.of_inputs = of_inputs.read();
  return found;
}

/// With one kernel of a cluster for choice and order, where there are clusters, and with two.
std::vector<bool> ways() {
  if (this_device().compute_capability != 90) return {false};
  return {false, true};
}

TEST(GpuRouting, is_what_double_precision_says) {
  Random random(1);
  for (const bool has_clusters : ways()) {
    for (const RouterProblem& router : router_problems(2)) {
      for (const int64_t tokens : {1, 3, 40}) {
        const std::vector<float> logits = random_logits(tokens, router.experts, random);
        const FoundRoutes found = route_on_gpu(router, logits, has_clusters);
        for (int64_t t = 0; t < tokens; ++t) {
          const auto of_token = std::span(logits).subspan(t * router.experts, router.experts);
          const auto expected = reference_routes(router, of_token);
          for (int64_t i = 0; i < router.top_k; ++i) {
            const int64_t at = t * router.top_k + i;
            const std::string what = router.name + ", token " + std::to_string(t);
            ASSERT_EQ(found.experts[at], expected[i].expert) << what << ", " << i;
            ASSERT_NEAR(found.weights[at], expected[i].weight, 2e-6 * std::fabs(expected[i].weight))
                << what << ", " << i;
          }
        }
      }
    }
  }
}

/// Logits of -infinity but for expert 2 and the last one.
std::vector<float> two_finite(int64_t experts, float last) {
  std::vector<float> logits(experts, -INFINITY);
  logits[2] = 1;
  logits[experts - 1] = last;
  return logits;
}

/// NaN and infinity are one and come first, -infinity comes before experts that are not there.
TEST(GpuRouting, chooses_among_logits_that_are_not_finite) {
  for (const bool has_clusters : ways()) {
    for (const auto scores : {Routing::Scores::kSoftmax, Routing::Scores::kSigmoid}) {
      for (const int64_t experts : {5, 32, 100, 129, 256, 257, 600}) {
        const auto last = static_cast<int32_t>(experts - 1);
        const RouterProblem router = {"", {.scores = scores}, experts, 4};
        for (const int64_t tokens : {1, 3, 40}) {
          std::vector<float> logits;
          for (int64_t t = 0; t < tokens; ++t) {
            const std::vector<float> row = two_finite(experts, t % 2 == 0 ? NAN : 2);
            logits.insert(logits.end(), row.begin(), row.end());
          }
          const FoundRoutes found = route_on_gpu(router, logits, has_clusters);
          for (int64_t t = 0; t < tokens; ++t) {
            const std::string what = std::to_string(experts) + " experts, token " +
                                     std::to_string(t) + " of " + std::to_string(tokens);
            const std::vector<int32_t> expected = {last, 2, 0, 1};
            for (int64_t i = 0; i < router.top_k; ++i) {
              ASSERT_EQ(found.experts[t * router.top_k + i], expected[i]) << what;
              const float weight = found.weights[t * router.top_k + i];
              ASSERT_EQ(std::isnan(weight), t % 2 == 0) << what;
              if (i >= 2 && t % 2 != 0) ASSERT_EQ(weight, 0) << what;
            }
          }
        }
      }
    }
  }
}

/// Runs of at most kTileTokens routes of one expert, in their order; the rest is empty.
std::vector<cuda::ExpertTile> tiles_of(const std::vector<int32_t>& experts,
                                       const std::vector<int32_t>& order) {
  std::vector<cuda::ExpertTile> tiles;
  for (int32_t place = 0; place < std::ssize(order); ++place) {
    const int32_t expert = experts[order[place]];
    if (tiles.empty() || tiles.back().expert != expert || tiles.back().count == kTileTokens) {
      tiles.push_back({expert, place, 0});
    }
    ++tiles.back().count;
  }
  tiles.resize(order.size());
  return tiles;
}

TEST(GpuRouting, sorts_routes_by_expert_then_by_token) {
  Random random(2);
  for (const bool has_clusters : ways()) {
    for (const RouterProblem& router : router_problems(2)) {
      for (const int64_t tokens : {1, 4, 9, 16, 64, 128, 300}) {
        const std::vector<float> logits = random_logits(tokens, router.experts, random);
        const FoundRoutes found = route_on_gpu(router, logits, has_clusters);
        std::vector<int32_t> order(found.experts.size());
        std::iota(order.begin(), order.end(), 0);
        std::ranges::stable_sort(order, {}, [&](int32_t route) { return found.experts[route]; });
        const std::string what = router.name + ", " + std::to_string(tokens) + " tokens";
        ASSERT_EQ(found.order, order) << what;
        for (int32_t& route : order) route /= static_cast<int32_t>(router.top_k);
        ASSERT_EQ(found.token_of, order) << what;
        const auto tiles = tiles_of(found.experts, found.order);
        for (std::size_t i = 0; i < tiles.size(); ++i) {
          ASSERT_EQ(found.tiles[i].expert, tiles[i].expert) << what << ", tile " << i;
          ASSERT_EQ(found.tiles[i].first, tiles[i].first) << what << ", tile " << i;
          ASSERT_EQ(found.tiles[i].count, tiles[i].count) << what << ", tile " << i;
        }
      }
    }
  }
}

TEST(GpuRouting, weights_of_inputs_are_none_of_results) {
  Random random(3);
  RouterProblem router = router_problems(2).front();
  const std::vector<float> logits = random_logits(5, router.experts, random);
  const FoundRoutes of_results = route_on_gpu(router, logits);
  router.rule.weights_inputs = true;
  const FoundRoutes found = route_on_gpu(router, logits);
  EXPECT_EQ(found.experts, of_results.experts);
  EXPECT_EQ(found.of_inputs, of_results.weights);
  EXPECT_EQ(found.weights, std::vector<float>(found.weights.size(), 1));
}

}  // namespace
}  // namespace subbyte::testing
