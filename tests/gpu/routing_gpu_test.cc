// The choice of experts against the same in double precision.

#include <gtest/gtest.h>

#include "device_bytes.h"
#include "kernels/cuda/experts/route.h"
#include "ops_gpu.h"
#include "support/routing_reference.h"

namespace subbyte::testing {
namespace {

struct FoundRoutes {
  std::vector<int32_t> experts;
  std::vector<float> weights, of_inputs;
};

FoundRoutes route_on_gpu(const RouterProblem& router, const std::vector<float>& logits) {
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
  call.num_tiles = routes;
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
  const std::vector<std::byte> bytes = experts.read();
  found.experts.resize(routes);
  std::memcpy(found.experts.data(), bytes.data(), bytes.size());
  found.weights = weights.read();
  found.of_inputs = of_inputs.read();
  return found;
}

TEST(GpuRouting, is_what_double_precision_says) {
  Random random(1);
  for (const RouterProblem& router : router_problems(2)) {
    for (const int64_t tokens : {1, 3, 40}) {
      const std::vector<float> logits = random_logits(tokens, router.experts, random);
      const FoundRoutes found = route_on_gpu(router, logits);
      for (int64_t t = 0; t < tokens; ++t) {
        const auto expected =
            reference_routes(router, std::span(logits).subspan(t * router.experts, router.experts));
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
