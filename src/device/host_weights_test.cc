// Every format through HostWeights and multiply() against the sum in double precision.

#include "device/host_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "device/host_product.h"
#include "kernels/cpu/execution.h"
#include "support/random_matrix.h"

namespace subbyte::device {
namespace {

using subbyte::testing::Contents;
using subbyte::testing::random_inputs;
using subbyte::testing::random_matrix;
using subbyte::testing::RandomMatrix;

std::unique_ptr<Execution> execution() {
  auto made = Execution::create({.num_threads = 2});
  EXPECT_TRUE(made.ok());
  return std::move(*made);
}

Product product_of(const HostWeights& weights, const std::vector<float>& x,
                   const std::vector<float>& bias, std::vector<float>& y, int64_t m) {
  Product product;
  product.number = Format::kF32;
  product.m = m;
  product.x = x.data();
  product.y = y.data();
  product.bias = bias.empty() ? nullptr : bias.data();
  product.x_stride = weights.main.cols;
  product.y_stride = weights.main.rows;
  return product;
}

/// Products with contents that are exact, so that any order of additions gives the same numbers.
void expect_exact(const MatrixView& view, bool has_offsets) {
  SCOPED_TRACE(to_string(view.format));
  const auto run = execution();
  const auto weights = HostWeights::create(*run, Matrix{view, {}});
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  EXPECT_EQ(weights->has_offsets(), has_offsets);
  for (const int64_t m : {1, 3, 40}) {
    const std::vector<float> x = random_inputs(m, view.cols, Contents::kExact, 3);
    std::vector<float> bias(view.rows);
    std::iota(bias.begin(), bias.end(), -2.0f);
    std::vector<float> y(m * view.rows, NAN);
    ASSERT_TRUE(multiply(*run, *weights, product_of(*weights, x, bias, y, m)).ok());
    for (int64_t i = 0; i < m * view.rows; ++i) {
      double sum = bias[i % view.rows];
      for (int64_t k = 0; k < view.cols; ++k) {
        const int64_t input = view.input_order.empty() ? k : view.input_order[k];
        sum += weight_at(view, i % view.rows, k) * x[i / view.rows * view.cols + input];
      }
      ASSERT_EQ(y[i], static_cast<float>(sum)) << i;
    }
  }
}

TEST(HostWeights, multiplies_offsets_beside_the_kernel_of_the_codes) {
  for (const Format element : {Format::kI4, Format::kU4, Format::kI8, Format::kU8, Format::kI3}) {
    for (const Zero zero : {Zero::kF16, Zero::kBF16}) {
      for (const int64_t group : {32, 128, 0}) {
        const Format scale = offset_format(zero);
        RandomMatrix matrix =
            random_matrix({element, scale, zero, group}, 24, 256, Contents::kExact, 5);
        expect_exact(matrix.view, true);
        matrix.view.tensor_scale = 0.5;
        std::vector<uint32_t> order(256);
        for (uint32_t k = 0; k < 256; ++k) order[k] = 255 - k;
        matrix.view.input_order = order;
        expect_exact(matrix.view, true);
      }
    }
  }
}

TEST(HostWeights, multiplies_what_has_no_kernel_as_floats) {
  for (const WeightFormat& format : {WeightFormat{Format::kU5, Format::kF32, Zero::kU8, 32},
                                     WeightFormat{Format::kI4, Format::kF32, Zero::kF16, 12},
                                     WeightFormat{Format::kU4, Format::kF16, Zero::kU8, 20}}) {
    const int64_t cols = format.group_size % 4 == 0 && format.group_size < 32 ? 60 : 64;
    const RandomMatrix matrix = random_matrix(format, 5, cols, Contents::kExact, 8);

    expect_exact(matrix.view, false);
  }
  const RandomMatrix matrix =
      random_matrix({Format::kNF4, Format::kF16, Zero::kNone, 32}, 5, 64, Contents::kReal, 8);
  const auto run = execution();
  const auto weights = HostWeights::create(*run, Matrix{matrix.view, {}});
  ASSERT_TRUE(weights.ok());
  const std::vector<float> x = random_inputs(1, 64, Contents::kReal, 4);
  std::vector<float> y(5);
  ASSERT_TRUE(multiply(*run, *weights, product_of(*weights, x, {}, y, 1)).ok());
  for (int64_t n = 0; n < 5; ++n) {
    double sum = 0, magnitude = 0;
    for (int64_t k = 0; k < 64; ++k) {
      sum += weight_at(matrix.view, n, k) * x[k];
      magnitude += std::fabs(weight_at(matrix.view, n, k) * x[k]);
    }
    EXPECT_NEAR(y[n], sum, 66 * 0x1p-24 * magnitude);
  }
}

TEST(HostWeights, multiplies_scales_of_two_levels_as_they_are) {
  for (const WeightFormat& format : {WeightFormat{Format::kU2, Format::kU4, Zero::kOffsetU4, 16},
                                     WeightFormat{Format::kI3, Format::kI6, Zero::kNone, 16},
                                     WeightFormat{Format::kU4, Format::kU6, Zero::kOffsetU6, 32},
                                     WeightFormat{Format::kU5, Format::kU6, Zero::kOffsetU6, 32},
                                     WeightFormat{Format::kI6, Format::kI8, Zero::kNone, 16},
                                     WeightFormat{Format::kIQ4, Format::kI6, Zero::kNone, 32}}) {
    const RandomMatrix matrix = random_matrix(format, 24, 512, Contents::kExact, 5);
    expect_exact(matrix.view, false);
    const auto weights = HostWeights::create(*execution(), Matrix{matrix.view, {}});
    ASSERT_TRUE(weights.ok()) << weights.error().message;
    EXPECT_EQ(weights->main.codes.data(), matrix.view.codes.data()) << to_string(format);
  }
  // No kernel has both of these.
  expect_exact(
      random_matrix({Format::kU8, Format::kU6, Zero::kOffsetU6, 32}, 5, 256, Contents::kExact, 8)
          .view,
      false);
}

/// Offsets are floats beside any precision, and in batch-invariant mode a row is the same bits
/// however many there are.
TEST(HostWeights, rows_do_not_depend_on_their_number_nor_offsets_on_the_precision) {
  const RandomMatrix matrix =
      random_matrix({Format::kI4, Format::kF16, Zero::kF16, 32}, 24, 256, Contents::kExact, 5);
  const auto invariant = Execution::create({.num_threads = 2, .batch_invariant = true});
  const auto in_bf16 = Execution::create({.num_threads = 2, .precision = cpu::Precision::kBF16});
  ASSERT_TRUE(invariant.ok() && in_bf16.ok());
  const std::vector<float> real = random_inputs(40, 256, Contents::kReal, 3);
  const auto weights = HostWeights::create(**invariant, Matrix{matrix.view, {}});
  ASSERT_TRUE(weights.ok());
  std::vector<float> all(40 * 24), one(24);
  ASSERT_TRUE(multiply(**invariant, *weights, product_of(*weights, real, {}, all, 40)).ok());
  ASSERT_TRUE(multiply(**invariant, *weights, product_of(*weights, real, {}, one, 1)).ok());
  EXPECT_TRUE(std::equal(one.begin(), one.end(), all.begin()));
  // Small integers, whose products and sums bf16 would round, but not float32.
  std::vector<float> x(40 * 256);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7 == 0 ? 128 : 1);
  ASSERT_TRUE(multiply(**in_bf16, *weights, product_of(*weights, x, {}, all, 40)).ok());
  for (int64_t i = 0; i < 40 * 24; ++i) {
    double sum = 0;
    for (int64_t k = 0; k < 256; ++k) {
      sum += weight_at(matrix.view, i % 24, k) * x[static_cast<std::size_t>(i / 24 * 256 + k)];
    }
    ASSERT_EQ(all[static_cast<std::size_t>(i)], static_cast<float>(sum)) << i;
  }
}

/// A row that is not finite is multiplied by the definition, and its neighbours as ever.
TEST(HostWeights, infinities_and_nan_stay_where_they_belong) {
  RandomMatrix matrix =
      random_matrix({Format::kU4, Format::kF16, Zero::kU8, 32}, 24, 64, Contents::kExact, 5);
  const auto run = execution();
  const auto weights = HostWeights::create(*run, Matrix{matrix.view, {}});
  ASSERT_TRUE(weights.ok());
  std::vector<float> x = random_inputs(3, 64, Contents::kExact, 3);
  x[64 + 7] = INFINITY;
  std::vector<float> y(3 * 24);
  ASSERT_TRUE(multiply(*run, *weights, product_of(*weights, x, {}, y, 3)).ok());
  for (int64_t i = 0; i < 3 * 24; ++i) {
    double sum = 0;
    for (int64_t k = 0; k < 64; ++k) sum += weight_at(matrix.view, i % 24, k) * x[i / 24 * 64 + k];
    const float found = y[static_cast<std::size_t>(i)];
    if (std::isnan(sum)) {
      EXPECT_TRUE(std::isnan(found)) << i;
    } else {
      EXPECT_EQ(found, static_cast<float>(sum)) << i;
    }
  }
}

TEST(HostWeights, refuses_nothing_to_multiply) {
  const auto run = execution();
  EXPECT_EQ(HostWeights::create(*run, Matrix{}).error().code, "linear.unsupported");
}

}  // namespace
}  // namespace subbyte::device
