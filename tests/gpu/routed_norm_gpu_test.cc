// Norms that add what experts return, against the kernels that add one after the other.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/cuda/elementwise/gates.h"
#include "kernels/cuda/elementwise/norm.h"
#include "ops_gpu.h"

namespace subbyte::testing {
namespace {

constexpr int64_t kRows = 3;

struct Problem {
  int64_t cols = 0;
  int64_t top_k = 0;
  bool has_gated = false;
  std::vector<int32_t> rows;  // empty: all
};

/// The sum of a residual stream and the normalised rows.
struct Results {
  std::vector<float> x, y;
};

class OnGpu {
 public:
  OnGpu(const Problem& problem, Element element)
      : problem_(problem),
        element_(element),
        outputs_(rounded(normals(kRows * problem.top_k * problem.cols, 1, 1), element), element),
        weights_(normals(kRows * problem.top_k, 0.5, 2), Element::kF32),
        shared_(rounded(normals(kRows * problem.cols, 1, 3), element)),
        gates_(normals(kRows, 1, 4), Element::kF32),
        norm_(normals(problem.cols, 1, 5), Element::kF32),
        rows_(as_bytes(problem.rows)) {}

  Results at_once() const {
    const DeviceNumbers shared(shared_, element_);
    return run([&](cuda::AddNormCall& call) {
      call.routes = routes();
      if (problem_.has_gated) call.gated = {shared.data(), gates_.data<float>()};
    });
  }

  Results one_after_the_other() const {
    const DeviceNumbers sum(kRows * problem_.cols, element_);
    const DeviceNumbers shared(shared_, element_);
    cuda::run_add_routes({sum.data(), routes(), element_, kRows, problem_.cols}, nullptr);
    if (problem_.has_gated) {
      cuda::SigmoidGateCall gate;
      gate.x = shared.data();
      gate.gate = gates_.data();
      gate.base = sum.data();
      gate.element = element_;
      gate.gate_element = Element::kF32;
      gate.is_of_row = true;
      gate.rows = kRows;
      gate.cols = problem_.cols;
      cuda::run_sigmoid_gate(gate, nullptr);
    }
    return run([&](cuda::AddNormCall& call) {
      call.delta = problem_.has_gated ? shared.data() : sum.data();
    });
  }

  int64_t num_rows() const { return problem_.rows.empty() ? kRows : std::ssize(problem_.rows); }

 private:
  cuda::RoutedSum routes() const {
    return {outputs_.data(), weights_.data<float>(), problem_.top_k};
  }

  template <class Change>
  Results run(const Change& change) const {
    const DeviceNumbers x(normals(kRows * problem_.cols, 3, 6), Element::kF32);
    const DeviceNumbers y(num_rows() * problem_.cols, element_);
    cuda::AddNormCall call;
    call.y = y.data();
    call.x = x.data<float>();
    if (!problem_.rows.empty()) call.rows = reinterpret_cast<const int32_t*>(rows_.data());
    call.weight = norm_.data<float>();
    call.num_rows = num_rows();
    call.cols = problem_.cols;
    call.eps = 1e-6f;
    call.factor = 0.5f;
    call.element = element_;
    change(call);
    cuda::run_add_norm(call, nullptr);
    expect_ran();
    return {x.read(), y.read()};
  }

  Problem problem_;
  Element element_;
  DeviceNumbers outputs_, weights_;
  std::vector<float> shared_;
  DeviceNumbers gates_, norm_;
  DeviceBytes rows_;
};

/// The sums have the same bits. Means differ by the order of sums in double precision alone, which
/// may turn a rounding to float32, so results may differ by that and one of their own roundings.
TEST(GpuRoutedNorm, is_that_of_the_sums_one_after_the_other) {
  for (const Element element : kHalves) {
    for (const int64_t cols : {4, 1001, 2040, 2048, 2880, 5120}) {
      for (const int64_t top_k : {1, 8, 9, 10, 11, 17}) {
        for (const bool has_gated : {false, true}) {
          for (const std::vector<int32_t>& rows : {std::vector<int32_t>(), {2, 0}}) {
            const OnGpu on({cols, top_k, has_gated, rows}, element);
            const Results found = on.at_once();
            const Results expected = on.one_after_the_other();
            const std::string what =
                std::to_string(cols) + " of " + std::to_string(top_k) + ", " + name_of(element);
            EXPECT_EQ(found.x, expected.x) << what;
            for (std::size_t i = 0; i < expected.y.size(); ++i) {
              const double y = expected.y[i];
              ASSERT_NEAR(found.y[i], y, 2.02 * unit_of(element) * std::fabs(y) + 0x1p-24) << what;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace subbyte::testing
