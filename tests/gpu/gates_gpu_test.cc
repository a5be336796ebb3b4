// Sigmoid gates and ranges of columns on the GPU.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/cuda/elementwise/columns.h"
#include "kernels/cuda/elementwise/gates.h"
#include "ops_gpu.h"

namespace subbyte::testing {
namespace {

using Numbers = std::vector<float>;

struct GateProblem {
  int64_t cols = 0;
  bool is_of_row = false;
  bool has_base = false;
  Element gate_element = Element::kF16;
};

void expect_gated(const GateProblem& problem, Element element) {
  constexpr int64_t kRows = 5;
  const int64_t size = kRows * problem.cols;
  const Numbers x = rounded(normals(size, 2, 31), element);
  Numbers gate = rounded(normals(problem.is_of_row ? kRows : size, 5, 32), problem.gate_element);
  gate[0] = -200;  // e^200 is infinite: nothing is left
  gate[1] = 200;
  const Numbers base = rounded(normals(size, 1, 33), element);
  const DeviceNumbers x_device(x, element);
  const DeviceNumbers gate_device(gate, problem.gate_element);
  const DeviceNumbers base_device(base, element);
  cuda::SigmoidGateCall call;
  call.x = x_device.data();
  call.gate = gate_device.data();
  if (problem.has_base) call.base = base_device.data();
  call.element = element;
  call.gate_element = problem.gate_element;
  call.is_of_row = problem.is_of_row;
  call.rows = kRows;
  call.cols = problem.cols;
  cuda::run_sigmoid_gate(call, nullptr);
  expect_ran();
  std::vector<double> expected;
  std::vector<double> bounds;
  for (int64_t i = 0; i < size; ++i) {
    const double of = gate[problem.is_of_row ? i / problem.cols : i];
    const double gated = x[i] / (1 + std::exp(-of));
    const double added = problem.has_base ? double{base[i]} : 0;
    expected.push_back(gated + added);
    // expf is within two units in the last place, four u; sum, quotient, and the sum with the base.
    const double error =
        rounding_bound(6) * std::fabs(gated) + rounding_bound(1) * std::fabs(added);
    bounds.push_back(rounded_bound(element, expected.back(), error));
  }
  expect_within(x_device.read(), expected, bounds,
                std::to_string(problem.cols) + " " + name_of(element));
}

TEST(GpuGates, sigmoid_is_the_formula_with_a_gate_for_each_number_or_for_a_row) {
  for (const Element element : kHalves) {
    for (const int64_t cols : {2, 37, 64, 6144}) {
      for (const bool is_of_row : {false, true}) {
        for (const bool has_base : {false, true}) {
          expect_gated({cols, is_of_row, has_base, element}, element);
          expect_gated({cols, is_of_row, has_base, Element::kF32}, element);
        }
      }
    }
  }
}

/// Ranges of `count` numbers, every second one, and a longer one at the end.
void expect_columns(int64_t count, int64_t ranges, int64_t rows) {
  const int64_t x_cols = (2 * ranges + 3) * count;
  std::vector<cuda::ColumnRange> all;
  for (int64_t i = 0; i < ranges; ++i) {
    all.push_back({static_cast<int32_t>((2 * i + 1) * count), static_cast<int32_t>(count)});
  }
  all.push_back({static_cast<int32_t>(2 * ranges * count), static_cast<int32_t>(3 * count)});
  const int64_t y_cols = (ranges + 3) * count;
  const Numbers x = rounded(normals(rows * x_cols, 1, 34), Element::kF16);
  const DeviceNumbers x_device(x, Element::kF16);
  const DeviceNumbers y(rows * y_cols, Element::kF16);
  cuda::run_columns({y.data(), x_device.data(), rows, y_cols, x_cols}, all, nullptr);
  expect_ran();
  Numbers expected;
  for (int64_t row = 0; row < rows; ++row) {
    for (const cuda::ColumnRange& range : all) {
      const auto first = x.begin() + row * x_cols + range.first;
      expected.insert(expected.end(), first, first + range.count);
    }
  }
  EXPECT_EQ(y.read(), expected) << count << " numbers of " << ranges << " ranges";
}

TEST(GpuColumns, are_those_of_the_ranges_one_after_the_other) {
  for (const int64_t count : {1, 7, 8, 100, 256}) {
    for (const int64_t ranges : {1, 24, 63, 64, 150}) {
      for (const int64_t rows : {1, 5, 33}) expect_columns(count, ranges, rows);
    }
  }
}

}  // namespace
}  // namespace subbyte::testing
