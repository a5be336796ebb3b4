// Mixture of experts against the formula in double precision, one token after the other.

#include "cpu_backend/experts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/quantized_blocks.h"
#include "support/isa_test.h"
#include "support/random_matrix.h"

namespace subbyte {
namespace {

using subbyte::testing::Contents;
using subbyte::testing::random_matrix;
using subbyte::testing::RandomMatrix;

std::vector<Route> route(const std::vector<float>& logits, int64_t experts, int64_t top_k,
                         const Routing& rule = {}) {
  std::vector<Route> routes(logits.size() / experts * top_k);
  route_top_k(routes, logits, experts, top_k, {rule});
  return routes;
}

TEST(RouteTopK, softmax_runs_over_the_chosen_alone) {
  const auto routes = route({1, 4, -2, 3}, 4, 2);
  ASSERT_EQ(routes.size(), 2u);
  EXPECT_EQ(routes[0].expert, 1);
  EXPECT_EQ(routes[1].expert, 3);
  EXPECT_FLOAT_EQ(routes[0].weight, static_cast<float>(1 / (1 + std::exp(-1.0))));
  EXPECT_FLOAT_EQ(routes[1].weight, static_cast<float>(1 / (1 + std::exp(1.0))));
}

TEST(RouteTopK, softmax_may_run_over_all_experts) {
  const auto routes = route({1, 4, -2, 3, 0, 0, 0, 0}, 4, 2, {.normalises = false});
  const double all = std::exp(-3.0) + 1 + std::exp(-6.0) + std::exp(-1.0);
  EXPECT_EQ(routes[0].expert, 1);
  EXPECT_EQ(routes[1].expert, 3);
  EXPECT_FLOAT_EQ(routes[0].weight, static_cast<float>(1 / all));
  EXPECT_FLOAT_EQ(routes[1].weight, static_cast<float>(std::exp(-1.0) / all));
  EXPECT_EQ(routes[2].weight, 0.25f);
  EXPECT_EQ(routes[3].weight, 0.25f);
}

TEST(RouteTopK, each_token_has_its_own_routes) {
  const auto routes = route({5, 0, 0, 9, 1, 1}, 3, 1);
  EXPECT_EQ(routes[0].expert, 0);
  EXPECT_EQ(routes[1].expert, 0);
  EXPECT_EQ(routes[0].weight, 1);
  EXPECT_EQ(route({0, 1, 2, 2, 1, 0}, 3, 1)[0].expert, 2);
}

TEST(RouteTopK, ties_go_to_the_lower_index) {
  const auto routes = route({2, 7, 7, 2, 7, 2}, 6, 4);
  EXPECT_EQ(routes[0].expert, 1);
  EXPECT_EQ(routes[1].expert, 2);
  EXPECT_EQ(routes[2].expert, 4);
  EXPECT_EQ(routes[3].expert, 0);
  EXPECT_EQ(routes[0].weight, routes[2].weight);
}

TEST(RouteTopK, all_experts_may_be_chosen) {
  const auto routes = route({0, -1, 3}, 3, 3);
  float sum = 0;
  for (const Route& one : routes) sum += one.weight;
  EXPECT_FLOAT_EQ(sum, 1);
  EXPECT_EQ(routes[2].expert, 1);
}

TEST(RouteTopK, large_logits_do_not_overflow) {
  const auto routes = route({1e30f, -1e30f, 1e30f}, 3, 2);
  EXPECT_EQ(routes[0].weight, 0.5f);
  EXPECT_EQ(routes[1].weight, 0.5f);
}

TEST(RouteTopK, nan_is_not_dropped_in_silence) {
  const auto routes = route({1, 2, NAN, 4, 1, 2, 3, 4}, 4, 2);
  EXPECT_TRUE(std::isnan(routes[0].weight));
  EXPECT_TRUE(std::isnan(routes[1].weight));
  for (const Route& one : routes) {
    EXPECT_GE(one.expert, 0);
    EXPECT_LT(one.expert, 4);
  }
  EXPECT_NE(routes[0].expert, routes[1].expert);
  EXPECT_EQ(routes[2].expert, 3);  // the next token is not touched
  EXPECT_FALSE(std::isnan(routes[2].weight));
}

constexpr int64_t kHidden = 64;
constexpr int64_t kInner = 96;
constexpr int64_t kExperts = 6;

struct TestExperts {
  std::vector<RandomMatrix> owners;
  std::vector<Matrix> gate_up, down;
  std::vector<float> gate_up_bias, down_bias;
  SwiGLU swiglu = {1.702f, 7, 1};

  ExpertMatrices matrices(int64_t top_k) const {
    return {gate_up, gate_up_bias, down, down_bias, top_k, Gate::kSilu, swiglu};
  }
};

TestExperts random_experts(uint64_t seed) {
  const WeightFormat format = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};
  TestExperts experts;
  for (int64_t e = 0; e < kExperts; ++e) {
    experts.owners.push_back(
        random_matrix(format, 2 * kInner, kHidden, Contents::kExact, seed + 2 * e));
    experts.gate_up.push_back({experts.owners.back().view, {}});
    experts.owners.push_back(
        random_matrix(format, kHidden, kInner, Contents::kExact, seed + 2 * e + 1));
    experts.down.push_back({experts.owners.back().view, {}});
  }
  // Outputs of ordinary size: scales of 1/32 and 1/64 instead of about 1.
  for (std::size_t i = 0; i < experts.owners.size(); ++i) {
    for (std::byte& scale : experts.owners[i].scales->span()) scale = std::byte(i % 2 ? 120 : 122);
  }
  Random random(seed + 100);
  experts.gate_up_bias.resize(kExperts * 2 * kInner);
  experts.down_bias.resize(kExperts * kHidden);
  for (float& bias : experts.gate_up_bias) bias = static_cast<float>(random.normal());
  for (float& bias : experts.down_bias) bias = static_cast<float>(random.normal());
  return experts;
}

double bias_at(const std::vector<float>& bias, int64_t i) {
  return bias.empty() ? 0 : bias[i];
}

/// The output of one expert for one token, element by element.
std::vector<double> run_expert(const TestExperts& experts, int64_t e, std::span<const float> x,
                               std::vector<double>* largest = nullptr) {
  std::vector<double> h(kInner), out(kHidden);
  const bool apart = experts.gate_up.size() == 2 * experts.down.size();
  const auto row = [&](int64_t i, int64_t is_up) {
    double sum = bias_at(experts.gate_up_bias,
                         e * 2 * kInner + (apart ? is_up * kInner + i : 2 * i + is_up));
    const MatrixView& view = experts.gate_up[apart ? 2 * e + is_up : e].view;
    const int64_t n = apart ? i : 2 * i + is_up;
    for (int64_t k = 0; k < kHidden; ++k) sum += weight_at(view, n, k) * x[k];
    return sum;
  };
  for (int64_t i = 0; i < kInner; ++i) {
    const auto& [alpha, limit, up_offset] = experts.swiglu;
    const double g = std::fmin(row(i, 0), limit);
    const double u = std::fmin(std::fmax(row(i, 1), -limit), limit);
    h[i] = g / (1 + std::exp(-alpha * g)) * (u + up_offset);
  }
  if (largest != nullptr) {
    std::vector<float> rounded(h.begin(), h.end());
    round_to_mxfp8(rounded);
    h.assign(rounded.begin(), rounded.end());
    largest->assign(kHidden, 0);
    for (int64_t i = 0; i < kHidden * kInner; ++i) {
      const double part = weight_at(experts.down[e].view, i / kInner, i % kInner) * h[i % kInner];
      (*largest)[i / kInner] = std::fmax((*largest)[i / kInner], std::fabs(part));
    }
  }
  for (int64_t n = 0; n < kHidden; ++n) {
    out[n] = bias_at(experts.down_bias, e * kHidden + n);
    for (int64_t k = 0; k < kInner; ++k) out[n] += weight_at(experts.down[e].view, n, k) * h[k];
  }
  return out;
}

std::vector<float> random_tokens(int64_t tokens, uint64_t seed) {
  return subbyte::testing::random_inputs(tokens, kHidden, Contents::kReal, seed);
}

class Moe : public subbyte::testing::IsaTest {
 protected:
  static std::vector<float> run(const TestExperts& experts, std::span<const float> x,
                                std::span<const Route> routes, int64_t top_k, int threads) {
    std::vector<float> y(x.size(), NAN);
    EXPECT_TRUE(moe(execution(threads), y, x, routes, experts.matrices(top_k)).ok());
    return y;
  }

  /// With 1, 2 and 8 threads.
  static void expect_formula(const TestExperts& experts, std::span<const float> x,
                             std::span<const Route> routes, int64_t top_k) {
    const std::vector<float> y = run(experts, x, routes, top_k, 1);
    EXPECT_EQ(y, run(experts, x, routes, top_k, 2));
    EXPECT_EQ(y, run(experts, x, routes, top_k, 8));
    for (int64_t t = 0; t < std::ssize(x) / kHidden; ++t) {
      std::vector<double> expected(kHidden, 0);
      for (int64_t i = 0; i < top_k; ++i) {
        const Route& one = routes[t * top_k + i];
        const auto out = run_expert(experts, one.expert, x.subspan(t * kHidden, kHidden));
        for (int64_t n = 0; n < kHidden; ++n) expected[n] += one.weight * out[n];
      }
      for (int64_t n = 0; n < kHidden; ++n) {
        ASSERT_NEAR(y[t * kHidden + n], expected[n], 2e-4) << "token " << t << ", " << n;
      }
    }
  }

  /// Of tokens with two experts each, which count a half.
  static void expect_formula_of_halves(const TestExperts& experts) {
    for (const int64_t tokens : {1, 3, 40}) {
      std::vector<Route> routes;
      for (int64_t i = 0; i < 2 * tokens; ++i) {
        routes.push_back({static_cast<int32_t>((i * i + i) % kExperts), 0.5f});
      }
      expect_formula(experts, random_tokens(tokens, tokens), routes, 2);
    }
  }
};

TEST_P(Moe, matches_the_formula) {
  const TestExperts experts = random_experts(1);
  // 1 and 3 tokens go through the product for few rows, 40 through the one for many.
  for (const int64_t tokens : {1, 3, 40}) {
    for (const int64_t top_k : {1, 2, 4}) {
      const std::vector<float> x = random_tokens(tokens, tokens + top_k);
      Random random(tokens * 10 + top_k);
      std::vector<float> logits(tokens * kExperts);
      for (float& logit : logits) logit = static_cast<float>(random.normal());
      const std::vector<Route> routes = route(logits, kExperts, top_k);
      expect_formula(experts, x, routes, top_k);
    }
  }
}

TEST_P(Moe, without_bias_and_clamp_matches_the_formula) {
  TestExperts experts = random_experts(7);
  experts.swiglu = {};
  experts.gate_up_bias.clear();
  experts.down_bias.clear();
  expect_formula_of_halves(experts);
}

/// As compressed-tensors, ModelOpt and AutoRound keep them: a factor each, and here a format each.
TEST_P(Moe, gate_and_up_may_be_apart_and_of_other_formats) {
  const WeightFormat nvfp4 = {Format::kE2M1, Format::kE4M3, Zero::kNone, 16};
  const WeightFormat awq = {Format::kU4, Format::kF16, Zero::kU8, 32};
  for (const WeightFormat& of_up : {nvfp4, awq}) {
    TestExperts experts = random_experts(8);
    experts.gate_up.clear();
    for (int64_t e = 0; e < kExperts; ++e) {
      for (const int64_t is_up : {0, 1}) {
        experts.owners.push_back(random_matrix(is_up == 1 ? of_up : nvfp4, kInner, kHidden,
                                               Contents::kExact, 100 + 2 * e + is_up));
        MatrixView& view = experts.owners.back().view;
        view.tensor_scale = (is_up == 1 ? 0.021 : 0.009) + 0.001 * static_cast<double>(e);
        experts.gate_up.push_back({view, {}});
      }
    }
    expect_formula_of_halves(experts);
  }
}

/// The formula on rounded inputs, with what is between rounded, too: that is off by 2^-4 of a
/// number where float32 is on the other side of a border, which the bound allows for one number of
/// each output, the one that counts most.
TEST_P(Moe, in_mxfp8_rounds_the_inputs_of_both_products) {
  const TestExperts experts = random_experts(1);
  ExecutionOptions options = {.num_threads = 2, .isa = GetParam(), .mxfp8_experts = true};
  const auto rounding = Execution::create(options);
  ASSERT_TRUE(rounding.ok());
  for (const int64_t tokens : {1, 40}) {
    std::vector<float> x = random_tokens(tokens, tokens);
    Random random(tokens);
    std::vector<float> logits(tokens * kExperts);
    for (float& logit : logits) logit = static_cast<float>(random.normal());
    const std::vector<Route> routes = route(logits, kExperts, 2);
    std::vector<float> found(x.size(), NAN), again(x.size(), NAN);
    const ExpertMatrices matrices = experts.matrices(2);
    ASSERT_TRUE(moe(**rounding, found, x, routes, matrices).ok());
    round_to_mxfp8(x);
    ASSERT_TRUE(moe(**rounding, again, x, routes, matrices).ok());
    EXPECT_EQ(found, again);                          // the inputs of the first
    EXPECT_NE(found, run(experts, x, routes, 2, 2));  // those of the second
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<double> expected(kHidden, 0), bounds(kHidden, 2e-4);
      for (int64_t i = 0; i < 2; ++i) {
        const Route& one = routes[t * 2 + i];
        std::vector<double> largest;
        const auto out =
            run_expert(experts, one.expert, std::span(x).subspan(t * kHidden, kHidden), &largest);
        for (int64_t n = 0; n < kHidden; ++n) {
          expected[n] += one.weight * out[n];
          bounds[n] += one.weight * largest[n] * 0x1p-4;
        }
      }
      for (int64_t n = 0; n < kHidden; ++n) {
        ASSERT_NEAR(found[t * kHidden + n], expected[n], bounds[n]) << "token " << t << ", " << n;
      }
    }
  }
}

TEST_P(Moe, batches_may_be_of_one_expert_or_of_all) {
  const TestExperts experts = random_experts(5);
  const std::vector<float> x = random_tokens(150, 5);
  std::vector<Route> routes(150, Route{3, 0.5f});  // more rows than a batch
  expect_formula(experts, x, routes, 1);
  for (std::size_t i = 0; i < routes.size(); ++i) {
    // One expert with many rows between others with few, and some with none.
    routes[i].expert = i % 10 == 0 ? 0 : i % 10 == 1 ? 5 : 2;
  }
  expect_formula(experts, x, routes, 1);
}

TEST_P(Moe, one_token_may_go_to_an_expert_twice) {
  const TestExperts experts = random_experts(6);
  const std::vector<Route> routes = {{2, 0.5f}, {4, 0.25f}, {2, 0.25f}};
  expect_formula(experts, random_tokens(1, 6), routes, 3);
}

TEST_P(Moe, the_bias_is_inside_the_weight_of_the_route) {
  TestExperts experts = random_experts(2);
  for (RandomMatrix& owner : experts.owners) {
    for (std::byte& code : owner.codes->span()) code = std::byte{0};
  }
  const std::vector<Route> routes = {{1, 0.25f}, {4, 0.5f}};
  const std::vector<float> y = run(experts, random_tokens(1, 1), routes, 2, 1);
  for (int64_t n = 0; n < kHidden; ++n) {
    EXPECT_FLOAT_EQ(
        y[n], 0.25f * experts.down_bias[kHidden + n] + 0.5f * experts.down_bias[4 * kHidden + n]);
  }
}

TEST_P(Moe, does_not_touch_experts_without_tokens) {
  TestExperts experts = random_experts(3);
  const std::vector<Route> routes = {{0, 0.5f}, {3, 0.5f}, {3, 0.75f}, {0, 0.25f}};
  const std::vector<float> x = random_tokens(2, 3);
  const std::vector<float> clean = run(experts, x, routes, 2, 2);
  for (const int64_t e : {1, 2, 4, 5}) {
    // 0xFF is NaN; and reading the codes without their scales faults.
    for (std::byte& scale : experts.owners[2 * e].scales->span()) scale = std::byte{0xFF};
    for (std::byte& scale : experts.owners[2 * e + 1].scales->span()) scale = std::byte{0xFF};
    experts.gate_up[e].view.codes = {};
    experts.down[e].view.codes = {};
  }
  const std::vector<float> y = run(experts, x, routes, 2, 2);
  EXPECT_EQ(y, clean);
  // The inverse: a poisoned expert that is used shows.
  for (std::byte& scale : experts.owners[0].scales->span()) scale = std::byte{0xFF};
  for (const float value : run(experts, x, routes, 2, 1)) EXPECT_TRUE(std::isnan(value));
}

TEST_P(Moe, nan_stays_in_its_token) {
  const TestExperts experts = random_experts(4);
  std::vector<float> x = random_tokens(3, 4);
  x[kHidden + 5] = NAN;
  const std::vector<Route> routes = {{2, 1.0f}, {2, 1.0f}, {2, 1.0f}};
  const std::vector<float> y = run(experts, x, routes, 1, 1);
  for (int64_t i = 0; i < 3 * kHidden; ++i) {
    EXPECT_EQ(std::isnan(y[i]), i / kHidden == 1) << i;
  }
}

SUBBYTE_FOR_EVERY_ISA(Moe);

}  // namespace
}  // namespace subbyte
