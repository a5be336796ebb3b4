// Norms that are one launch, against the kernels that they stand for, one after the other.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/elementwise/gates.h"
#include "kernels/cuda/elementwise/norm.h"
#include "ops_gpu.h"

namespace subbyte::testing {
namespace {

constexpr float kEps = 1e-6f;
constexpr float kFactor = 0.75f;
constexpr int kResults = cuda::JoinedNormsCall::kMaxResults;

struct Problem {
  int64_t cols = 0;
  int64_t top_k = 0;       // 0: the only term has no routes
  bool has_norms = false;  // of the terms, and of their sum
  bool has_scale = false;
  Element element = Element::kF16;
};

/// The sum of the residual stream and the normalised rows.
struct Results {
  std::vector<float> x;
  std::vector<float> y[kResults];
};

/// Terms: routes and a row where there are routes, else a row.
class OnGpu {
 public:
  explicit OnGpu(const Problem& problem)
      : p_(problem),
        row_(rounded(normals(p_.cols, 1, 1), p_.element)),
        outputs_(rounded(normals(std::max<int64_t>(p_.top_k, 1) * p_.cols, 1, 2), p_.element),
                 p_.element),
        route_weights_(normals(std::max<int64_t>(p_.top_k, 1), 0.5, 3), Element::kF32),
        scale_(std::vector<float>{1.25f}, Element::kF32) {
    for (int i = 0; i < kNorms; ++i) norms_.emplace_back(normals(p_.cols, 1, 10 + i));
  }

  Results at_once() const {
    const DeviceNumbers row(row_, p_.element);
    const Weights weights(norms_);
    const Outputs to(p_);
    cuda::JoinedNormsCall call;
    call.terms[0].x = row.data();
    call.terms[0].eps = kEps;
    if (p_.top_k > 0) call.terms[1].routes = routes();
    if (p_.has_norms) {
      call.terms[0].weight = weights[0];
      call.terms[1].weight = p_.top_k > 0 ? weights[1] : nullptr;
      call.terms[1].eps = kEps;
      call.weight = weights[2];
      call.eps = kEps;
    }
    call.x = to.x.data<float>();
    call.factor = kFactor;
    call.scale = p_.has_scale ? scale_.data<float>() : nullptr;
    for (int i = 0; i < kResults; ++i) call.results[i] = {to.y(i), weights[3 + i], kEps};
    call.cols = p_.cols;
    call.element = p_.element;
    EXPECT_TRUE(cuda::serves_joined_norms(call));
    cuda::run_joined_norms(call, nullptr);
    expect_ran();
    return to.read();
  }

  Results one_after_the_other() const {
    const DeviceNumbers row(row_, p_.element);
    const DeviceNumbers sum(p_.cols, p_.element);
    const Weights weights(norms_);
    const Outputs to(p_);
    if (p_.has_norms) normalise(row, weights[0]);
    if (p_.top_k > 0) {
      cuda::run_add_routes({sum.data(), routes(), p_.element, 1, p_.cols}, nullptr);
      if (p_.has_norms) normalise(sum, weights[1]);
      add(row, sum);
    }
    const DeviceNumbers& delta = row;
    if (p_.has_norms) normalise(delta, weights[2]);
    for (int i = 0; i < kResults; ++i) add_norm(i == 0 ? &delta : nullptr, to, i, weights[3 + i]);
    expect_ran();
    return to.read();
  }

 private:
  static constexpr int kNorms = 3 + kResults;

  struct Weights {
    explicit Weights(const std::vector<std::vector<float>>& norms) {
      for (const std::vector<float>& norm : norms) {
        all.push_back(std::make_unique<DeviceNumbers>(norm, Element::kF32));
      }
    }
    const float* operator[](int i) const { return all[i]->data<float>(); }
    std::vector<std::unique_ptr<DeviceNumbers>> all;
  };

  struct Outputs {
    explicit Outputs(const Problem& p) : x(normals(p.cols, 3, 4), Element::kF32) {
      for (auto& one : ys) one.emplace(p.cols, p.element);
    }
    void* y(int i) const { return ys[i]->data(); }
    Results read() const {
      Results results = {x.read(), {}};
      for (int i = 0; i < kResults; ++i) results.y[i] = ys[i]->read();
      return results;
    }
    DeviceNumbers x;
    std::optional<DeviceNumbers> ys[kResults];
  };

  cuda::RoutedSum routes() const {
    return {outputs_.data(), route_weights_.data<float>(), p_.top_k};
  }

  void normalise(const DeviceNumbers& x, const float* weight) const {
    cuda::run_norm({.y = x.data(),
                    .x = x.data(),
                    .weight = weight,
                    .num_rows = 1,
                    .stride = p_.cols,
                    .cols = p_.cols,
                    .eps = kEps,
                    .element = p_.element},
                   nullptr);
  }

  void add(const DeviceNumbers& x, const DeviceNumbers& base) const {
    cuda::SigmoidGateCall gate;
    gate.x = x.data();
    gate.base = base.data();
    gate.element = p_.element;
    gate.rows = 1;
    gate.cols = p_.cols;
    cuda::run_sigmoid_gate(gate, nullptr);
  }

  void add_norm(const DeviceNumbers* delta, const Outputs& to, int i, const float* weight) const {
    cuda::AddNormCall call;
    call.y = to.y(i);
    call.x = to.x.data<float>();
    call.delta = delta != nullptr ? delta->data() : nullptr;
    call.weight = weight;
    call.num_rows = 1;
    call.cols = p_.cols;
    call.eps = kEps;
    call.factor = kFactor;
    call.scale = p_.has_scale ? scale_.data<float>() : nullptr;
    call.element = p_.element;
    cuda::run_add_norm(call, nullptr);
  }

  Problem p_;
  std::vector<float> row_;
  DeviceNumbers outputs_, route_weights_, scale_;
  std::vector<std::vector<float>> norms_;
};

/// Both round at the same places. Squares are added in double precision in another order, which
/// changes a bit of a result where their mean is within 2^-50 of the middle of two floats: none of
/// these is.
void expect_the_same(const Problem& problem) {
  const std::string what = std::to_string(problem.cols) + " of " + std::to_string(problem.top_k) +
                           ", " + name_of(problem.element) +
                           (problem.has_norms ? ", normalised" : "") +
                           (problem.has_scale ? ", scaled" : "");
  const OnGpu on(problem);
  const Results found = on.at_once();
  const Results expected = on.one_after_the_other();
  EXPECT_EQ(found.x, expected.x) << what;
  for (int i = 0; i < kResults; ++i) EXPECT_EQ(found.y[i], expected.y[i]) << what << ", " << i;
}

TEST(GpuJoinedNorms, are_those_one_after_the_other) {
  for (const Element element : kHalves) {
    for (const int64_t cols : {8, 704, 2040, 2816, 4096, 5120, 8192}) {
      for (const int64_t top_k : {0, 1, 8, 17}) {
        for (const bool has_norms : {false, true}) {
          for (const bool has_scale : {false, true}) {
            expect_the_same({cols, top_k, has_norms, has_scale, element});
          }
        }
      }
    }
  }
}

TEST(GpuJoinedNorms, leave_what_they_do_not_have) {
  const DeviceNumbers x(8200, Element::kF32);
  const DeviceNumbers y(8200, Element::kF16);
  const auto serves = [&](int64_t cols, int64_t first, Element element) {
    cuda::JoinedNormsCall call;
    call.x = x.data<float>() + first;
    call.terms[0].x = y.data();
    call.results[0].y = y.data();
    call.cols = cols;
    call.element = element;
    return cuda::serves_joined_norms(call);
  };
  EXPECT_TRUE(serves(8192, 0, Element::kF16));
  EXPECT_FALSE(serves(8200, 0, Element::kF16));
  EXPECT_FALSE(serves(1001, 0, Element::kF16));
  EXPECT_FALSE(serves(1000, 1, Element::kF16));
  EXPECT_FALSE(serves(1000, 0, Element::kF32));
}

}  // namespace
}  // namespace subbyte::testing
