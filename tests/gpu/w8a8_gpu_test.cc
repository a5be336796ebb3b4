// W8A8: products of weights in E4M3 by activations that are rounded to E4M3, on the tensor cores
// for 8 bits.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "gpu_linear.h"
#include "kernels/cuda/w8a8.h"
#include "support/compare.h"

namespace subbyte::testing {
namespace {

constexpr int64_t kGroup = 128;

/// Input of code `i` of a row: large_m/w8a8_products.cuh.
int64_t input_of_code(int64_t i) {
  const int64_t j = i % 4;
  return i / 16 * 16 + i % 16 / 4 * 2 + j / 2 + 8 * (j % 2);
}

/// A matrix of E4M3 on the device, inputs, and what run_w8a8() makes of them.
class Product {
 public:
  Product(Format scale, int64_t rows, int64_t cols, int64_t m, cuda::Number number)
      : rows_(rows), cols_(cols), m_(m), number_(number) {
    const uint64_t seed = rows + cols + m;
    matrix_ = random_matrix({Format::kE4M3, scale, Zero::kNone, kGroup}, rows, cols,
                            Contents::kReal, seed);
    matrix_.view.tensor_scale = 1.0 / 64;  // sums are within f16
    packed_ = std::make_unique<PackedOnDevice>(matrix_.view);
    x_ = to_numbers(random_inputs(m, cols, Contents::kReal, seed + 1), number);
    bias_ = to_numbers(random_inputs(1, rows, Contents::kReal, seed + 2), number);
  }

  std::vector<uint16_t>& x() { return x_; }
  cuda::Problem problem() const { return {packed_->format(), number_, m_}; }

  /// All candidates, and each once more with a single cluster for all tiles.
  std::vector<cuda::Plan> plans() const {
    std::vector<cuda::Plan> plans = cuda::w8a8_candidates(problem(), this_device());
    for (std::size_t i = 0, count = plans.size(); i < count; ++i) {
      if (plans[i].ctas == plans[i].cluster) continue;
      plans.push_back(plans[i]);
      plans.back().ctas = plans[i].cluster;
    }
    return plans;
  }

  std::vector<float> run(const cuda::Plan& plan) {
    const DeviceBytes x(bytes_of(x_));
    const DeviceBytes y(m_ * rows_ * 2);
    const DeviceBytes bias(bytes_of(bias_));
    const DeviceBytes workspace(plan.workspace_bytes);
    cuda::LinearCall call;
    call.weights = packed_->arguments(number_);
    call.format = &packed_->format();
    call.x = x.data();
    call.x_stride = cols_;
    call.y = y.data();
    call.y_stride = rows_;
    call.bias = bias.data();
    call.m = m_;
    const Status status = cuda::run_w8a8(plan, call, number_, workspace.data(), nullptr);
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
    expect_ok(cudaDeviceSynchronize());
    for (const DeviceBytes* buffer : {&x, &y, &bias, &workspace}) {
      EXPECT_TRUE(buffer->canaries_are_whole());
    }
    EXPECT_TRUE(packed_->bytes().canaries_are_whole());
    read_activations(workspace.read());
    std::vector<uint16_t> numbers(m_ * rows_);
    std::memcpy(numbers.data(), y.read().data(), numbers.size() * 2);
    return to_floats(numbers, number_);
  }

  /// Of the last run: inputs as their codes and factors say, in the order of the columns.
  const std::vector<double>& rounded() const { return rounded_; }
  double factor(int64_t token, int64_t group) const {
    return factors_[group * ((m_ + kGroup - 1) / kGroup * kGroup) + token];
  }

  struct Expected {
    std::vector<double> y;
    std::vector<double> bound;
  };

  /// Of inputs [m][cols]. Of the 33 numbers that a tensor core for 8 bits adds for 32 inputs, the
  /// sum before and the products, each is cut below 2^-13 of the largest. What follows are, in
  /// binary32, the product of factor and scale, an FMA and the partials of at most four parts of K
  /// for each group, then gain, bias and the rounding of the result.
  Expected expected(const std::vector<double>& inputs) const {
    std::vector<double> weights(rows_ * cols_);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] = weight_at(matrix_.view, i / cols_, i % cols_);
    }
    const std::vector<float> bias = to_floats(bias_, number_);
    Expected all;
    for (int64_t token = 0; token < m_; ++token) {
      for (int64_t n = 0; n < rows_; ++n) {
        add(weights.data() + n * cols_, inputs.data() + token * cols_, bias[n], all);
      }
    }
    return all;
  }

 private:
  void add(const double* weights, const double* x, double bias, Expected& all) const {
    double y = 0, cut = 0, magnitude = 0;
    for (int64_t group = 0; group < cols_; group += kGroup) {
      double sum = 0;
      for (int64_t begin = group; begin < group + kGroup; begin += 32) {
        double largest = std::fabs(sum);
        for (int64_t k = begin; k < begin + 32; ++k) {
          const double product = weights[k] * x[k];
          largest = std::max(largest, std::fabs(product));
          magnitude += std::fabs(product);
          sum += product;
        }
        cut += 33 * 0x1p-13 * largest;
      }
      y += sum;
    }
    const double roundings = static_cast<double>(cols_ / kGroup + 2 + 4 + 3);
    const double bound = cut + rounding_bound(roundings) * (magnitude + cut + std::fabs(bias));
    all.y.push_back(y + bias);
    all.bound.push_back(bound + 1.01 * unit_of(number_) * (std::fabs(y + bias) + bound) + 0x1p-25);
  }

  void read_activations(const std::vector<std::byte>& workspace) {
    const cuda::RowsInE4M3 at = cuda::rows_in_e4m3(m_, cols_);
    factors_.resize(cols_ / kGroup * at.stride);
    std::memcpy(factors_.data(), workspace.data() + at.factors_begin, factors_.size() * 4);
    rounded_.resize(m_ * cols_);
    const FormatInfo& e4m3 = info(Format::kE4M3);
    for (int64_t i = 0; i < m_ * cols_; ++i) {
      const int64_t token = i / cols_;
      const int64_t k = input_of_code(i % cols_);
      rounded_[token * cols_ + k] =
          e4m3.decode(static_cast<uint32_t>(workspace[i])) * factor(token, k / kGroup);
    }
  }

  int64_t rows_, cols_, m_;
  cuda::Number number_;
  RandomMatrix matrix_;
  std::unique_ptr<PackedOnDevice> packed_;
  std::vector<uint16_t> x_, bias_;
  std::vector<float> factors_;
  std::vector<double> rounded_;
};

bool is_hopper() {
  return this_device().compute_capability == 90;
}

/// Half of the spacing of E4M3 at a number of that magnitude.
double half_step(double value) {
  const int exponent = std::max(std::ilogb(value), -6);
  return std::ldexp(0.5, exponent - 3);
}

TEST(GpuW8A8, inputs_are_rounded_to_the_nearest_with_a_factor_for_128) {
  if (!is_hopper()) GTEST_SKIP() << "products in 8 bits need compute capability 9.0";
  constexpr int64_t kCols = 1152, kTokens = 131;
  for (const cuda::Number number : kNumbers) {
    Product product(Format::kF32, 128, kCols, kTokens, number);
    for (int64_t k = 0; k < kGroup; ++k) {  // zeros, and numbers that only their group has
      product.x()[2 * kCols + k] = 0;
      product.x()[3 * kCols + k] = to_numbers({k == 77 ? 1000.0f : 1e-3f}, number)[0];
    }
    product.run(product.plans().front());
    const std::vector<float> x = to_floats(product.x(), number);
    for (int64_t token = 0; token < kTokens; ++token) {
      for (int64_t k = 0; k < kCols; ++k) {
        const float* const group = x.data() + token * kCols + k / kGroup * kGroup;
        double largest = 0x1p-100;
        for (int64_t i = 0; i < kGroup; ++i)
          largest = std::max<double>(largest, std::fabs(group[i]));
        const double factor = product.factor(token, k / kGroup);
        ASSERT_NEAR(factor, largest / 448, 0x1p-22 * largest / 448);
        const double value = x[token * kCols + k];
        // Of binary32 are the factor, its inverse and the product with that.
        const double bound = factor * half_step(value / factor) + 0x1p-21 * std::fabs(value);
        ASSERT_NEAR(product.rounded()[token * kCols + k], value, bound) << token << ", " << k;
      }
    }
  }
}

TEST(GpuW8A8, is_within_the_bound_of_the_double_oracle_for_each_plan) {
  if (!is_hopper()) GTEST_SKIP() << "products in 8 bits need compute capability 9.0";
  struct Shape {
    int64_t rows, cols, m;
  };
  for (const Format scale : {Format::kF32, Format::kBF16, Format::kE8M0}) {
    for (const Shape& shape : {Shape{1, 128, 1}, Shape{128, 128, 128}, Shape{272, 1152, 300},
                               Shape{1000, 512, 129}, Shape{40, 8704, 200}, Shape{528, 256, 700}}) {
      for (const cuda::Number number : kNumbers) {
        Product product(scale, shape.rows, shape.cols, shape.m, number);
        const std::vector<cuda::Plan> plans = product.plans();
        ASSERT_FALSE(plans.empty());
        product.run(plans.front());
        const Product::Expected expected = product.expected(product.rounded());
        double worst = 0;
        for (const cuda::Plan& plan : plans) {
          const std::vector<float> found = product.run(plan);
          const Comparison comparison = compare_matmul(found, expected.y, expected.bound);
          ASSERT_TRUE(comparison) << comparison.message << "\n"
                                  << to_string(product.problem(), plan) << " " << plan.ctas
                                  << " CTAs";
          worst = std::max(worst, comparison.worst_ratio);
          EXPECT_EQ(product.run(plan), found);  // the same bits
        }
        RecordProperty("worst_" + std::to_string(shape.rows), std::to_string(worst));
        EXPECT_GT(worst, 1e-3) << "the bound is too wide to show anything";
      }
    }
  }
}

TEST(GpuW8A8, results_are_those_of_rounded_inputs) {
  if (!is_hopper()) GTEST_SKIP() << "products in 8 bits need compute capability 9.0";
  Product product(Format::kF32, 256, 512, 256, cuda::Number::kF16);
  const std::vector<float> found = product.run(product.plans().front());
  const std::vector<float> x = to_floats(product.x(), cuda::Number::kF16);
  const Product::Expected exact = product.expected({x.begin(), x.end()});
  int64_t others = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    others += std::fabs(found[i] - exact.y[i]) > exact.bound[i];
  }
  EXPECT_GT(others, std::ssize(found) / 8) << "inputs are not rounded";
}

TEST(GpuW8A8, a_group_with_nan_or_infinity_is_nan_and_no_other_token) {
  if (!is_hopper()) GTEST_SKIP() << "products in 8 bits need compute capability 9.0";
  constexpr int64_t kCols = 256, kRows = 128;
  Product product(Format::kF32, kRows, kCols, 140, cuda::Number::kF16);
  product.x()[5 * kCols + 200] = 0x7c00;
  product.x()[9 * kCols] = 0x7e00;
  const std::vector<float> found = product.run(product.plans().front());
  for (int64_t i = 0; i < std::ssize(found); ++i) {
    const int64_t token = i / kRows;
    EXPECT_EQ(std::isnan(found[i]), token == 5 || token == 9) << token;
  }
}

TEST(GpuW8A8, there_are_no_plans_for_other_weights_and_rows) {
  const RandomMatrix rows =
      random_matrix({Format::kE4M3, Format::kF32, Zero::kNone, 0}, 128, 256, Contents::kReal, 1);
  const PackedOnDevice packed(rows.view);
  EXPECT_FALSE(cuda::has_w8a8_products(packed.format()));
  const auto plan = cuda::plan_w8a8({packed.format(), cuda::Number::kF16, 128}, this_device());
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, "cuda.kernel");
}

}  // namespace
}  // namespace subbyte::testing
