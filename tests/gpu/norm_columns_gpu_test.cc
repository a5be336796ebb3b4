// Norms of some columns, and sums that have none, each against its formula in double precision.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/elementwise/norm.h"
#include "ops_gpu.h"

namespace subbyte::testing {
namespace {

TEST(GpuNorms, of_columns_in_place_leaves_the_others) {
  constexpr int64_t kRows = 3, kStride = 700;
  constexpr float kEps = 1e-5f;
  for (const Element element : kHalves) {
    for (const auto& [first, cols] : {std::pair(0, 700), std::pair(0, 512), std::pair(513, 187)}) {
      const std::vector<float> x = rounded(normals(kRows * kStride, 3, 5), element);
      const std::vector<float> weight = normals(cols, 1, 7);
      const DeviceNumbers values(x, element);
      const DeviceNumbers weight_device(weight, Element::kF32);
      cuda::NormCall call;
      call.y = values.data();
      call.x = values.data();
      call.weight = weight_device.data<float>();
      call.num_rows = kRows;
      call.stride = kStride;
      call.first = first;
      call.cols = cols;
      call.eps = kEps;
      call.element = element;
      cuda::run_norm(call, nullptr);
      expect_ran();
      std::vector<double> expected(x.begin(), x.end());
      std::vector<double> bounds(x.size(), 0);
      for (int64_t row = 0; row < kRows; ++row) {
        double squares = 0;
        const int64_t begin = row * kStride + first;
        for (int64_t i = begin; i < begin + cols; ++i) squares += double(x[i]) * x[i];
        const double factor = 1 / std::sqrt(squares / double(cols) + double(kEps));
        for (int64_t i = 0; i < cols; ++i) {
          double& value = expected[begin + i];
          value *= factor * weight[i];
          bounds[begin + i] = rounded_bound(element, value, rounding_bound(6) * std::fabs(value));
        }
      }
      expect_within(values.read(), expected, bounds, std::to_string(first) + name_of(element));
    }
  }
}

TEST(GpuNorms, sums_without_one_are_the_residual_stream) {
  constexpr int64_t kSize = 1300;
  for (const Element element : kHalves) {
    for (const bool has_delta : {false, true}) {
      std::vector<float> x = normals(kSize, 3, 5);
      const std::vector<float> delta = rounded(normals(kSize, 1, 6), element);
      const DeviceNumbers x_device(x, Element::kF32);
      const DeviceNumbers delta_device(delta, element);
      const DeviceNumbers y(kSize, element);
      cuda::run_add(y.data(), x_device.data<float>(), has_delta ? delta_device.data() : nullptr,
                    0.5f, element, kSize, nullptr);
      expect_ran();
      for (int64_t i = 0; i < kSize && has_delta; ++i) x[i] = std::fma(0.5f, delta[i], x[i]);
      EXPECT_EQ(x_device.read(), x);
      EXPECT_EQ(y.read(), rounded(x, element));
    }
  }
}

}  // namespace
}  // namespace subbyte::testing
