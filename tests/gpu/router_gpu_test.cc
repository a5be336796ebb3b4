// The way of one token to its experts as one kernel, against the formulas in double precision.

#include "kernels/cuda/experts/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/cuda/linear.h"
#include "ops_gpu.h"
#include "support/value_of.h"

namespace subbyte::testing {
namespace {

struct Problem {
  int64_t experts = 0;
  int64_t cols = 0;
  int64_t top_k = 0;
  bool has_norm = true;
  bool has_gate = true;
  bool has_bias = false;
  bool weights_of_all = false;
};

template <class T>
std::vector<T> read(const DeviceBytes& bytes) {
  EXPECT_TRUE(bytes.canaries_are_whole());
  const std::vector<std::byte> raw = bytes.read();
  std::vector<T> values(raw.size() / sizeof(T));
  std::memcpy(values.data(), raw.data(), raw.size());
  return values;
}

/// A matrix of 16 bits times a vector, and how far a kernel may be from it.
struct Logits {
  std::vector<double> values;
  double error = 0;

  /// An mma rounds up to 17 addends, and has 16 inputs of a thirty-second of a row and half of
  /// those beside them; then there are sums of eight warps and a bias.
  Logits(const std::vector<float>& weights, const std::vector<float>& bias,
         const std::vector<float>& x) {
    const auto cols = std::ssize(x);
    const double roundings = rounding_bound(17 * double(cols / 256 + 1) + 16);
    for (std::size_t row = 0; row < weights.size() / x.size(); ++row) {
      double sum = bias.empty() ? 0 : bias[row];
      double size = std::fabs(sum);
      for (int64_t k = 0; k < cols; ++k) {
        sum += double(weights[row * cols + k]) * x[k];
        size += std::fabs(double(weights[row * cols + k]) * x[k]);
      }
      values.push_back(sum);
      error = std::max(error, roundings * size);
    }
  }
};

class OnGpu {
 public:
  OnGpu(const Problem& problem, Element weights, Element inputs, uint64_t seed)
      : problem_(problem),
        inputs_(inputs),
        x_(normals(problem.cols, 3, 1)),
        delta_(rounded(normals(problem.cols, 1, 2), inputs)),
        norm_(normals(problem.cols, 1, 3)),
        router_(rounded(normals(problem.experts * problem.cols, 0.05, seed), weights)),
        gate_(rounded(normals(problem.cols, 0.05, 5), Element::kBF16)),
        bias_(problem.has_bias ? normals(problem.experts, 1, 6) : std::vector<float>()),
        routes_(problem.top_k + (problem.has_gate ? 1 : 0)) {
    run(weights);
  }

  /// Says whether two logits are so near that their order may be another one.
  bool has_tie() const {
    const Logits logits(router_, bias_, h_);
    const std::vector<int32_t> best = best_of(logits);
    for (int64_t i = 0; i < problem_.top_k && i + 1 < problem_.experts; ++i) {
      const double step = logits.values[best[i]] - logits.values[best[i + 1]];
      if (step <= 2 * logits.error) return true;
    }
    return false;
  }

  void expect_right(const std::string& what) const {
    expect_sum(what);
    const Logits logits(router_, bias_, h_);
    const std::vector<int32_t> best = best_of(logits);
    const auto top_k = static_cast<std::size_t>(problem_.top_k);
    double sum = 0;
    const std::size_t counted = problem_.weights_of_all ? best.size() : top_k;
    for (std::size_t i = 0; i < counted; ++i) sum += std::exp(logits.values[best[i]]);
    std::vector<int32_t> experts(best.begin(), best.begin() + problem_.top_k);
    std::vector<double> weights;
    for (const int32_t expert : experts) weights.push_back(std::exp(logits.values[expert]) / sum);
    double error = logits.error;
    if (problem_.has_gate) {
      const Logits gate(gate_, {}, h_);
      experts.push_back(static_cast<int32_t>(problem_.experts));
      weights.push_back(1 / (1 + std::exp(-gate.values[0])));
      error = std::max(error, gate.error);
    }
    EXPECT_EQ(expert_of_, experts) << what;
    std::vector<double> bounds;
    for (const double weight : weights) {
      bounds.push_back(weight * (std::expm1(2 * error) + rounding_bound(16)));
    }
    expect_within(weights_, weights, bounds, what);
    expect_sorted(experts, what);
  }

 private:
  std::vector<int32_t> best_of(const Logits& logits) const {
    std::vector<int32_t> best(problem_.experts);
    std::iota(best.begin(), best.end(), 0);
    std::ranges::sort(best,
                      [&](int32_t a, int32_t b) { return logits.values[a] > logits.values[b]; });
    return best;
  }

  void run(Element weights) {
    const DeviceNumbers x(x_, Element::kF32), delta(delta_, inputs_), norm(norm_, Element::kF32);
    const DeviceNumbers router(router_, weights), gate(gate_, Element::kBF16);
    const DeviceNumbers bias(bias_, Element::kF32), h(problem_.cols, inputs_);
    const DeviceNumbers found(routes_, Element::kF32);
    const DeviceBytes experts(routes_ * 4), order(routes_ * 4), tokens(routes_ * 4);
    const DeviceBytes tiles(routes_ * int64_t{sizeof(cuda::ExpertTile)});
    cuda::RouterCall call;
    call.route.tokens = 1;
    call.route.experts = problem_.experts;
    call.route.top_k = problem_.top_k;
    call.route.num_tiles = routes_;
    call.route.has_shared = problem_.has_gate;
    if (problem_.has_gate) call.route.shared_gate = found.data<float>();
    call.route.rule.normalises = !problem_.weights_of_all;
    call.route.expert_of = reinterpret_cast<int32_t*>(experts.data());
    call.route.weights = found.data<float>();
    call.route.order = reinterpret_cast<int32_t*>(order.data());
    call.route.token_of = reinterpret_cast<int32_t*>(tokens.data());
    call.route.tiles = reinterpret_cast<cuda::ExpertTile*>(tiles.data());
    call.cols = problem_.cols;
    call.router = {router.data(), weights, problem_.has_bias ? bias.data<float>() : nullptr};
    call.gate = {gate.data(), Element::kBF16, nullptr};
    call.x = delta.data();
    call.x_element = inputs_;
    if (problem_.has_norm) {
      call.norm.y = h.data();
      call.norm.x = x.data<float>();
      call.norm.delta = delta.data();
      call.norm.weight = norm.data<float>();
      call.norm.num_rows = 1;
      call.norm.cols = problem_.cols;
      call.norm.eps = kEps;
      call.norm.element = inputs_;
    }
    ASSERT_TRUE(cuda::serves_router(call, 90));
    cuda::run_router(call, nullptr);
    expect_ran();
    h_ = problem_.has_norm ? h.read() : delta_;
    sum_ = x.read();
    weights_ = found.read();
    expert_of_ = read<int32_t>(experts);
    order_ = read<int32_t>(order);
    tokens_ = read<int32_t>(tokens);
    tiles_ = read<int32_t>(tiles);
  }

  void expect_sum(const std::string& what) const {
    if (!problem_.has_norm) {
      EXPECT_EQ(sum_, x_) << what;
      return;
    }
    std::vector<float> sum = x_;
    double squares = 0;
    for (int64_t i = 0; i < problem_.cols; ++i) {
      sum[i] += delta_[i];
      squares += double(sum[i]) * sum[i];
    }
    EXPECT_EQ(sum_, sum) << what;
    const double factor = 1 / std::sqrt(squares / double(problem_.cols) + double(kEps));
    std::vector<double> expected, bounds;
    for (int64_t i = 0; i < problem_.cols; ++i) {
      expected.push_back(sum[i] * factor * norm_[i]);
      // As GpuNorm has them.
      bounds.push_back(
          rounded_bound(inputs_, expected.back(), rounding_bound(6) * std::fabs(expected.back())));
    }
    expect_within(h_, expected, bounds, what);
  }

  /// The routes in the order of their experts, each a tile of its own.
  void expect_sorted(const std::vector<int32_t>& experts, const std::string& what) const {
    std::vector<int32_t> order(routes_);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, [&](int32_t a, int32_t b) { return experts[a] < experts[b]; });
    EXPECT_EQ(order_, order) << what;
    EXPECT_EQ(tokens_, std::vector<int32_t>(routes_)) << what;
    std::vector<int32_t> tiles;
    for (int32_t i = 0; i < routes_; ++i) tiles.insert(tiles.end(), {experts[order[i]], i, 1});
    EXPECT_EQ(tiles_, tiles) << what;
  }

  static constexpr float kEps = 1e-6f;

  Problem problem_;
  Element inputs_;
  std::vector<float> x_, delta_, norm_, router_, gate_, bias_;
  int64_t routes_;
  std::vector<float> h_, sum_, weights_;
  std::vector<int32_t> expert_of_, order_, tokens_, tiles_;
};

TEST(GpuRouter, is_the_norm_the_products_and_the_choice) {
  if (value_of(cuda::query_device()).compute_capability != 90) {
    GTEST_SKIP() << "clusters need compute capability 9.0";
  }
  const Problem problems[] = {{256, 2048, 8},
                              {8, 64, 2},
                              {300, 2880, 4, true, false, true},
                              {32, 2880, 4, true, false, true},
                              {512, 4096, 10, false, true, false, true},
                              {1024, 8192, 8},
                              {33, 4128, 12, false, true},
                              {128, 2048, 8, true, false}};
  for (const Element inputs : kHalves) {
    for (const Element weights : kHalves) {
      if (weights == Element::kF16 && inputs == Element::kBF16) continue;
      for (const Problem& problem : problems) {
        const std::string what = std::to_string(problem.experts) + " of " +
                                 std::to_string(problem.cols) + ", " + name_of(weights) + ", " +
                                 name_of(inputs);
        bool is_tested = false;
        for (uint64_t seed = 10; seed < 20 && !is_tested; ++seed) {
          const OnGpu on(problem, weights, inputs, seed);
          is_tested = !on.has_tie();
          if (is_tested) on.expect_right(what);
        }
        EXPECT_TRUE(is_tested) << what << ": all have ties";
      }
    }
  }
}

/// What the kernel cannot have is left to those that can.
TEST(GpuRouter, serves_what_it_has) {
  alignas(16) static std::byte memory[64];
  cuda::RouterCall call;
  call.route.tokens = 1;
  call.route.experts = 8;
  call.route.top_k = 2;
  call.cols = 64;
  call.x = memory;
  call.router.weights = memory;
  EXPECT_TRUE(cuda::serves_router(call, 90));
  EXPECT_FALSE(cuda::serves_router(call, 80));
  const auto serves = [&](const auto& change) {
    cuda::RouterCall other = call;
    change(other);
    return cuda::serves_router(other, 90);
  };
  EXPECT_FALSE(serves([](auto& c) { c.route.tokens = 2; }));
  EXPECT_FALSE(serves([](auto& c) { c.cols = 48; }));
  EXPECT_FALSE(serves([](auto& c) { c.cols = 2 * cuda::kMaxRouterCols; }));
  EXPECT_FALSE(serves([](auto& c) { c.route.experts = cuda::kMaxRouterExperts + 1; }));
  EXPECT_FALSE(serves([](auto& c) { c.router.element = Element::kF32; }));
  EXPECT_FALSE(serves([](auto& c) {
    c.router.element = Element::kF16;
    c.x_element = Element::kBF16;
  })) << "products of these types are not exact";
  EXPECT_FALSE(serves([](auto& c) { c.router.weights = memory + 8; }));
}

}  // namespace
}  // namespace subbyte::testing
