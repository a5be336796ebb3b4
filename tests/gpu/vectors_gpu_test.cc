// Products with vectors of weights, rotated or not, against products in double precision, and their
// packing on both machines.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "formats/rotation.h"
#include "gpu_linear.h"
#include "kernels/cuda/quantize/dequantize.h"
#include "support/compare.h"

namespace subbyte::testing {
namespace {

using cuda::KernelKind;
using cuda::Number;

std::vector<WeightFormat> vector_formats() {
  std::vector<WeightFormat> formats;
  for (const Format element : {Format::kVQ2, Format::kVQ4}) {
    for (const int rotation : {0, 16, 64, 256}) {
      WeightFormat format = {element, rotation == 64 ? Format::kF16 : Format::kE4M4, Zero::kNone,
                             32};
      format.rotation = rotation;
      formats.push_back(format);
    }
  }
  return formats;
}

/// Rotates in double precision.
std::vector<double> rotated(const std::vector<float>& x, int64_t rotation) {
  std::vector<double> made(x.begin(), x.end());
  if (rotation != 0) rotate(made.data(), std::ssize(made), rotation);
  return made;
}

/// Adds what each result may lose: by the tensor cores' sums of groups (linear_gpu_test.cc), by
/// values of the codebook, scaled weights and rotated inputs in 16 bits, and by the sums of a run
/// in float32.
std::vector<double> bounds_of(const MatrixView& weights, const std::vector<float>& x, int64_t m,
                              Number number) {
  MatrixView stored = weights;
  stored.format.rotation = 0;
  const std::vector<double> inputs = rotated(x, weights.format.rotation);
  const double of_input = weights.format.rotation == 0 ? 0 : 1.01 * unit_of(number);
  const double of_weight = 4.04 * unit_of(number);
  const double of_sums = 17.0 / 16 * static_cast<double>(weights.cols) * 0x1p-23 +
                         rounding_bound(static_cast<double>(weights.cols / 32 + 40));
  const auto run = std::max<int64_t>(weights.format.rotation, 1);
  std::vector<double> of_runs(x.size());  // the sum of |x| in the run of each input, / sqrt(run)
  for (std::size_t k = 0; k < x.size(); ++k) {
    const auto first = x.begin() + static_cast<int64_t>(k) / run * run;
    of_runs[k] = k % run != 0 ? of_runs[k - 1]
                              : std::accumulate(first, first + run, 0.0, [](double sum, float v) {
                                  return sum + std::fabs(v);
                                }) / std::sqrt(static_cast<double>(run));
  }
  std::vector<double> bounds(m * weights.rows);
  for (int64_t n = 0; n < weights.rows; ++n) {
    for (int64_t k = 0; k < weights.cols; ++k) {
      const double w = std::fabs(weight_at(stored, n, k));
      for (int64_t i = 0; i < m; ++i) {
        const int64_t at = i * weights.cols + k;
        const double input = std::fabs(inputs[at]);
        bounds[i * weights.rows + n] += (of_input + of_weight + of_sums) * w * input +
                                        (run > 1 ? rounding_bound(9) * w * of_runs[at] : 0) +
                                        0x1p-24 * (1 + w) * input;
      }
    }
  }
  return bounds;
}

class GpuVectors : public ::testing::TestWithParam<WeightFormat> {};

TEST_P(GpuVectors, products_are_within_the_bound_of_the_double_oracle) {
  const WeightFormat format = GetParam();
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{17, 256}, {128, 768}, {24, 4352}}) {
    const RandomMatrix matrix = random_matrix(format, rows, cols, Contents::kReal, 3);
    const PackedOnDevice packed(matrix.view);
    for (const int64_t m : {1, 2, 9, 70}) {
      if (m == 70 && cols > 1000) continue;
      for (const Number number : kNumbers) {
        GpuProduct product;
        product.weights = &packed;
        product.number = number;
        product.m = m;
        product.x = to_numbers(random_inputs(m, cols, Contents::kReal, 4), number);
        const std::vector<float> x = to_floats(product.x, number);
        const Oracle oracle = multiply_in_double(matrix.view, x, m);
        std::vector<double> bounds = bounds_of(matrix.view, x, m, number);
        for (std::size_t i = 0; i < bounds.size(); ++i) {
          bounds[i] += 1.01 * unit_of(number) * (std::fabs(oracle.y[i]) + bounds[i]) + 0x1p-25;
        }
        for (const cuda::Plan& plan : cuda::plan_candidates(product.problem(), this_device(), {})) {
          const auto result =
              compare_matmul(to_floats(run(product, plan), number), oracle.y, bounds);
          EXPECT_TRUE(result) << to_string(format) << ' ' << rows << " x " << cols << " M " << m
                              << ' ' << info_of(number).name << ' ' << name(plan.kernel) << ": "
                              << result.message;
          EXPECT_GT(result.worst_ratio, 1e-4);  // the bound is not that of other numbers
        }
      }
    }
  }
}

TEST_P(GpuVectors, are_packed_on_the_gpu_as_on_the_host) {
  const WeightFormat format = GetParam();
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 256}, {34, 768}, {160, 1280}}) {
    const RandomMatrix matrix = random_matrix(format, rows, cols, Contents::kReal, 8);
    for (const cuda::RowOrder order : {cuda::RowOrder::kNatural, cuda::RowOrder::kGateAboveUp}) {
      if (order != cuda::RowOrder::kNatural && rows % 2 != 0) continue;
      const auto packed = cuda::packed_format(matrix.view, order);
      ASSERT_TRUE(packed.ok()) << packed.error().message;
      std::vector<std::byte> expected(static_cast<std::size_t>(packed->bytes));
      cuda::pack_on_host(expected.data(), matrix.view, *packed);
      const DeviceBytes codes(matrix.view.codes), scales(matrix.view.scales);
      MatrixView there = matrix.view;
      there.codes = {codes.data(), codes.size()};
      there.scales = {scales.data(), scales.size()};
      const DeviceBytes to(expected.size());
      ASSERT_TRUE(cuda::pack_on_device(to.data(), there, *packed, nullptr).ok());
      expect_ok(cudaDeviceSynchronize());
      const std::vector<std::byte> found = to.read();
      const auto codes_end = packed->strips * packed->tiles * gpu::tile_bytes(packed->bits);
      const auto vectors_end = packed->vectors_begin + std::ssize(matrix.codebook) * 4;
      for (int64_t i = 0; i < vectors_end; ++i) {
        ASSERT_EQ(found[i], expected[i]) << i << " of " << packed->bytes << ", codes " << codes_end;
      }
      EXPECT_TRUE(to.canaries_are_whole());
    }
  }
}

/// Each weight within what float32 loses in the products, the sums of its run and the factors.
TEST_P(GpuVectors, are_dequantized_in_the_rows_of_the_matrix) {
  const WeightFormat format = GetParam();
  const int64_t rows = 44, cols = 768;
  RandomMatrix matrix = random_matrix(format, rows, cols, Contents::kReal, 5);
  matrix.view.tensor_scale = 0.7;
  MatrixView stored = matrix.view;
  stored.format.rotation = 0;
  const auto run = std::max<int64_t>(format.rotation, 1);
  for (const cuda::RowOrder order : {cuda::RowOrder::kNatural, cuda::RowOrder::kGateAboveUp}) {
    const PackedOnDevice packed(matrix.view, order);
    const DeviceBytes out(rows * cols * 4);
    const Status status =
        cuda::dequantize(packed.bytes().data(), packed.format(), matrix.view.tensor_scale,
                         Element::kF32, out.data(), nullptr);
    ASSERT_TRUE(status.ok()) << status.error().message;
    expect_ok(cudaDeviceSynchronize());
    EXPECT_TRUE(out.canaries_are_whole());
    const std::vector<std::byte> bytes = out.read();
    for (int64_t n = 0; n < rows; ++n) {
      for (int64_t first = 0; first < cols; first += run) {
        double sum = 0;
        for (int64_t k = first; k < first + run; ++k) sum += std::fabs(weight_at(stored, n, k));
        const double bound =
            rounding_bound(13) * sum / std::sqrt(static_cast<double>(run)) + 0x1p-149;
        for (int64_t k = first; k < first + run; ++k) {
          float found = 0;
          std::memcpy(&found, &bytes[(n * cols + k) * 4], 4);
          ASSERT_NEAR(found, weight_at(matrix.view, n, k), bound) << n << ' ' << k;
        }
      }
    }
  }
}

std::string test_name(const ::testing::TestParamInfo<WeightFormat>& param) {
  return std::string(info(param.param.element).name) + "_rotation_" +
         std::to_string(param.param.rotation);
}

INSTANTIATE_TEST_SUITE_P(all, GpuVectors, ::testing::ValuesIn(vector_formats()), test_name);

}  // namespace
}  // namespace subbyte::testing
