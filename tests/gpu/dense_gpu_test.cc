// Products with dense weights against double precision: every mixture of types, both kernels, odd
// sizes and strides.

#include <gtest/gtest.h>

#include "kernels/cuda/dense/dense.h"
#include "ops_gpu.h"

namespace subbyte::testing {
namespace {

using cuda::DenseCall;

struct DenseProblem {
  int64_t m, rows, cols;
  Element weights, x, y;
  bool has_bias = false;
  int64_t extra_stride = 0;
  bool batch_invariant = false;
};

/// Whether dense_16bit.h serves the product.
bool is_16bit(const DenseProblem& p) {
  return (p.m >= cuda::kDense16bitTokens || p.batch_invariant) && p.weights != Element::kF32 &&
         p.cols % 8 == 0 && p.extra_stride % 8 == 0;
}

/// How far the sum of a product is from the exact one, relative to the sum of magnitudes. A lane of
/// the kernel for few tokens makes an FMA for eight inputs of 256, then five sums of lanes follow.
/// Tensor cores cut what they add to 24 bits or more, nine times for eight inputs, 2^-23 each, and
/// twice that where a number is the sum of two; weights of 32 bits are rounded to tf32.
double relative_error(const DenseProblem& p) {
  if (is_16bit(p)) {
    const double cuts = 9.0 / 8 * double((p.cols + 63) / 64 * 64) * 0x1p-23;
    return p.weights == p.x ? cuts : 2 * cuts;
  }
  if (p.m <= cuda::kDenseGemvTokens || p.batch_invariant || cuda::are_few_tiles(p.rows, p.m)) {
    return rounding_bound(8 * double((p.cols + 255) / 256) + 5);
  }
  return 9.0 / 8 * double((p.cols + 31) / 32 * 32) * 0x1p-23 +
         (p.weights == Element::kF32 ? 1.01 * 0x1p-11 : 0);
}

std::vector<float> run_product(const DenseProblem& p, const std::vector<float>& w,
                               const std::vector<float>& x, const std::vector<float>& bias) {
  const int64_t x_stride = p.cols + p.extra_stride;
  const int64_t y_stride = p.rows + p.extra_stride;
  std::vector<float> spread(p.m * x_stride, NAN);
  for (int64_t i = 0; i < p.m; ++i) {
    std::copy_n(&x[i * p.cols], p.cols, &spread[i * x_stride]);
  }
  const DeviceNumbers w_device(w, p.weights);
  const DeviceNumbers x_device(spread, p.x);
  const DeviceNumbers bias_device(bias, Element::kF32);
  const DeviceNumbers y(p.m * y_stride, p.y);
  DenseCall call;
  call.weights = w_device.data();
  call.weights_element = p.weights;
  call.x = x_device.data();
  call.x_element = p.x;
  call.y = y.data();
  call.y_element = p.y;
  if (p.has_bias) call.bias = bias_device.data<float>();
  call.m = p.m;
  call.rows = p.rows;
  call.cols = p.cols;
  call.x_stride = x_stride;
  call.y_stride = y_stride;
  call.batch_invariant = p.batch_invariant;
  cuda::run_dense(call, nullptr);
  expect_ran();
  const std::vector<float> all = y.read();
  std::vector<float> found;
  for (int64_t i = 0; i < p.m; ++i) {
    found.insert(found.end(), all.begin() + i * y_stride, all.begin() + i * y_stride + p.rows);
    for (int64_t j = p.rows; j < y_stride; ++j) EXPECT_TRUE(std::isnan(all[i * y_stride + j]));
  }
  return found;
}

void expect_product(const DenseProblem& p) {
  const std::vector<float> w = rounded(normals(p.rows * p.cols, 0.05, 21), p.weights);
  const std::vector<float> x = rounded(normals(p.m * p.cols, 1, 22), p.x);
  const std::vector<float> bias = normals(p.rows, 1, 23);
  const std::vector<float> found = run_product(p, w, x, bias);
  const double relative = relative_error(p);
  std::vector<double> expected;
  std::vector<double> bounds;
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t n = 0; n < p.rows; ++n) {
      double sum = 0;
      double magnitude = 0;
      for (int64_t k = 0; k < p.cols; ++k) {
        const double product = double(w[n * p.cols + k]) * x[i * p.cols + k];
        sum += product;
        magnitude += std::fabs(product);
      }
      double error = relative * magnitude;
      if (p.has_bias) {
        sum += bias[n];
        error += rounding_bound(1) * (std::fabs(sum) + error);
      }
      expected.push_back(sum);
      bounds.push_back(rounded_bound(p.y, sum, error));
    }
  }
  expect_within(found, expected, bounds,
                std::to_string(p.m) + " x " + std::to_string(p.rows) + " x " +
                    std::to_string(p.cols) + " " + name_of(p.weights) + " " + name_of(p.x));
}

TEST(GpuDense, agrees_with_double_precision) {
  for (const Element weights : kElements) {
    for (const Element x : kHalves) {
      for (const int64_t m : {1, 2, 3, 8, 9, 64, 65, 130}) {
        expect_product({m, 67, 256, weights, x, x});
        expect_product({m, 130, 1096, weights, x, Element::kF32, true});
        expect_product({m, 5, 33, weights, x, x, true, 3});
      }
      expect_product({130, 4200, 456, weights, x, Element::kF32, true});  // 198 tiles of gemm
      expect_product({65, 4230, 200, weights, x, x, false, 8});
      // Tiles of 256 tokens where 132 multiprocessors have them at once, and those of 128 twice.
      expect_product({257, 8400, 328, weights, x, Element::kF32, true, 8});
      expect_product({130, 4200, 33, weights, x, x, true, 3});
    }
  }
}

/// Many rows, as a head has: K is not split over the warps of a CTA.
TEST(GpuDense, agrees_with_double_precision_for_a_head) {
  for (const Element weights : kHalves) {
    for (const Element x : kHalves) {
      for (const int64_t m : {1, 2}) {
        expect_product({m, 32771, 264, weights, x, Element::kF32});
        expect_product({m, 1, 8, weights, x, Element::kF32});
      }
    }
  }
}

TEST(GpuDense, a_token_among_others_has_the_bits_that_it_has_alone) {
  const DenseProblem seven = {7, 100, 520, Element::kF32, Element::kF16, Element::kF32};
  const std::vector<float> w = rounded(normals(seven.rows * seven.cols, 1, 24), seven.weights);
  const std::vector<float> x = rounded(normals(seven.m * seven.cols, 1, 25), seven.x);
  const std::vector<float> together = run_product(seven, w, x, {});
  for (int64_t i = 0; i < seven.m; ++i) {
    DenseProblem one = seven;
    one.m = 1;
    const std::vector<float> row(x.begin() + i * one.cols, x.begin() + (i + 1) * one.cols);
    const std::vector<float> alone = run_product(one, w, row, {});
    EXPECT_EQ(alone, std::vector<float>(together.begin() + i * one.rows,
                                        together.begin() + (i + 1) * one.rows));
  }
}

/// On an H200 1,000 tokens have tiles of 128 (of two types 64), 300 of 64, and fewer of 16; in
/// batch-invariant mode, as clusters divide the inputs of few tiles otherwise.
TEST(GpuDense, mma_in_16_bits_adds_in_one_order_whatever_the_tile) {
  for (const Element weights : kHalves) {
    for (const Element inputs : kHalves) {
      DenseProblem many = {1000, 3000, 1032, weights, inputs, Element::kF32};
      many.batch_invariant = true;
      const std::vector<float> w = rounded(normals(many.rows * many.cols, 1, 28), weights);
      const std::vector<float> x = rounded(normals(many.m * many.cols, 1, 29), inputs);
      const std::vector<float> together = run_product(many, w, x, {});
      for (const int64_t m : {3, 17, 64, 300}) {
        DenseProblem some = many;
        some.m = m;
        const std::vector<float> rows(x.begin(), x.begin() + m * many.cols);
        EXPECT_EQ(run_product(some, w, rows, {}),
                  std::vector<float>(together.begin(), together.begin() + m * many.rows));
      }
    }
  }
}

/// Powers of two times small integers: every sum is exact, the halves of split numbers, too.
TEST(GpuDense, products_that_are_exact_are_exact) {
  for (const Element weights : kHalves) {
    for (const Element inputs : kHalves) {
      DenseProblem p = {33, 257, 520, weights, inputs, Element::kF32};
      std::vector<float> w(p.rows * p.cols), x(p.m * p.cols);
      const int max_w = weights == Element::kF16 ? 2047 : 255;
      const int max_x = inputs == Element::kF16 ? 15 : 3;
      for (std::size_t i = 0; i < w.size(); ++i) {
        w[i] = static_cast<float>(int(i * 7919 % (2 * max_w + 1)) - max_w);
      }
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = static_cast<float>(int(i * 104729 % (2 * max_x + 1)) - max_x);
      }
      const std::vector<float> found = run_product(p, w, x, {});
      for (int64_t i = 0; i < p.m; ++i) {
        for (int64_t n = 0; n < p.rows; ++n) {
          double sum = 0;
          for (int64_t k = 0; k < p.cols; ++k) sum += double(w[n * p.cols + k]) * x[i * p.cols + k];
          ASSERT_EQ(found[i * p.rows + n], sum) << i << " " << n;
        }
      }
    }
  }
}

TEST(GpuDense, batch_invariant_bits_do_not_depend_on_the_number_of_tokens) {
  for (const int64_t cols : {520, 33}) {
    DenseProblem many = {131, 100, cols, Element::kBF16, Element::kF16, Element::kF32};
    many.batch_invariant = true;
    const std::vector<float> w = rounded(normals(many.rows * cols, 1, 26), many.weights);
    const std::vector<float> x = rounded(normals(many.m * cols, 1, 27), many.x);
    const std::vector<float> together = run_product(many, w, x, {});
    for (const int64_t m : {1, 2, 3, 8, 9, 64}) {
      DenseProblem some = many;
      some.m = m;
      const std::vector<float> rows(x.begin(), x.begin() + m * cols);
      EXPECT_EQ(run_product(some, w, rows, {}),
                std::vector<float>(together.begin(), together.begin() + m * many.rows));
    }
    expect_product(many);
  }
}

}  // namespace
}  // namespace subbyte::testing
