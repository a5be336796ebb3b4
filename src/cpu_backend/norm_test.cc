#include "cpu_backend/norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.h"
#include "support/isa_test.h"

namespace subbyte {
namespace {

struct Norm {
  std::span<const float> weight;
  float eps;
};

class RmsNorm : public subbyte::testing::IsaTest {
 protected:
  /// With one thread, after seeing that more give the same bits.
  static void rms_norm(std::span<float> y, std::span<const float> x, const Norm& norm) {
    for (const int threads : {8, 2}) {
      std::vector<float> z(y.size());
      subbyte::rms_norm(execution(threads), z, x, norm.weight, norm.eps);
      std::vector<float> one(y.size());
      subbyte::rms_norm(execution(1), one, x, norm.weight, norm.eps);
      EXPECT_EQ(std::memcmp(z.data(), one.data(), z.size() * sizeof(float)), 0);
    }
    subbyte::rms_norm(execution(1), y, x, norm.weight, norm.eps);
  }
};

struct Case {
  std::vector<float> x, weight;
};

Case random_case(int64_t rows, int64_t size, uint64_t seed) {
  Random random(seed);
  Case made;
  made.x.resize(rows * size);
  made.weight.resize(size);
  for (float& x : made.x) x = static_cast<float>(3 * random.normal());
  for (float& w : made.weight) w = static_cast<float>(1 + 0.3 * random.normal());
  return made;
}

/// x / sqrt(mean(x^2) + eps) of a row in double precision.
std::vector<double> normalised(std::span<const float> row, double eps) {
  double sum = 0;
  for (const float x : row) sum += double(x) * x;
  const double rms = std::sqrt(sum / static_cast<double>(row.size()) + eps);
  std::vector<double> result;
  for (const float x : row) result.push_back(x / rms);
  return result;
}

TEST_P(RmsNorm, is_the_formula) {
  const Case made = random_case(3, 100, 1);
  std::vector<float> y(300, NAN);
  rms_norm(y, made.x, {made.weight, 1e-5f});
  for (int64_t row = 0; row < 3; ++row) {
    const auto expected = normalised(std::span(made.x).subspan(row * 100, 100), 1e-5f);
    for (int64_t i = 0; i < 100; ++i) {
      // Four roundings of 2^-24 each: mean, root, product, product.
      const double value = expected[i] * made.weight[i];
      EXPECT_NEAR(y[row * 100 + i], value, std::abs(value) * 5 * 0x1p-24);
    }
  }
}

TEST_P(RmsNorm, of_columns_is_that_of_rows_of_these_and_leaves_the_others) {
  constexpr int64_t kRows = 5, kStride = 40, kFirst = 6, kSize = 24;
  const Case made = random_case(kRows, kStride, 9);
  const std::span<const float> weight = std::span(made.weight).first(kSize);
  std::vector<float> x = made.x;
  rms_norm_columns(execution(2), x, kStride, kFirst, weight, 1e-5f);
  for (int64_t row = 0; row < kRows; ++row) {
    const auto before = std::span(made.x).subspan(row * kStride, kStride);
    std::vector<float> expected(before.begin(), before.end());
    std::vector<float> part(kSize);
    rms_norm(part, before.subspan(kFirst, kSize), {weight, 1e-5f});
    std::ranges::copy(part, expected.begin() + kFirst);
    EXPECT_TRUE(std::ranges::equal(std::span(x).subspan(row * kStride, kStride), expected)) << row;
  }
}

TEST_P(RmsNorm, sums_without_a_norm_are_the_residual_stream) {
  const Case made = random_case(3, 50, 10);
  const Case other = random_case(3, 50, 11);
  for (const float factor : {1.0f, 0.25f}) {
    std::vector<float> x = made.x;
    std::vector<float> y(150, NAN);
    add(execution(2), y, x, other.x, factor);
    for (int64_t i = 0; i < 150; ++i) {
      EXPECT_EQ(x[i], static_cast<float>(double{made.x[i]} + double{factor} * other.x[i])) << i;
      EXPECT_EQ(y[i], x[i]);
    }
  }
}

TEST_P(RmsNorm, works_in_place) {
  const Case made = random_case(4, 32, 4);
  std::vector<float> y(128);
  std::vector<float> in_place = made.x;
  const Norm norm = {made.weight, 1e-6f};
  rms_norm(y, made.x, norm);
  rms_norm(in_place, in_place, norm);
  EXPECT_EQ(in_place, y);
}

TEST_P(RmsNorm, does_not_overflow_or_divide_by_zero) {
  const std::vector<float> weight(4, 1);
  const std::vector<float> zeros(4, 0);
  std::vector<float> y(4, NAN);
  rms_norm(y, zeros, {weight, 1e-6f});
  EXPECT_EQ(y, zeros);
  // Squares of 1e19 do not fit into float32, but their mean is formed in double.
  const std::vector<float> large = {1e18f, -1e18f, 1e18f, 1e18f};
  rms_norm(y, large, {weight, 1e-6f});
  EXPECT_NEAR(y[1], -1, 1e-6);
}

TEST_P(RmsNorm, nan_stays_in_its_row) {
  std::vector<float> x(8, 1);
  x[2] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> weight(4, 1);
  std::vector<float> y(8);
  rms_norm(y, x, {weight, 1e-6f});
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(std::isnan(y[i]));
  for (int i = 4; i < 8; ++i) EXPECT_NEAR(y[i], 1, 1e-6);
}

TEST_P(RmsNorm, adds_first_when_told) {
  for (const int64_t size : {1, 7, 16, 100, 1030}) {
    const Case made = random_case(20, size, 5);
    const Case other = random_case(20, size, 6);
    const Norm norm = {made.weight, 1e-6f};
    std::vector<float> sum = made.x;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += other.x[i];
    std::vector<float> expected(sum.size());
    rms_norm(expected, sum, norm);
    for (const int threads : {1, 2, 8}) {
      std::vector<float> x = made.x;
      std::vector<float> y(x.size(), NAN);
      add_rms_norm(execution(threads), y, x, other.x, norm.weight, norm.eps);
      EXPECT_EQ(x, sum);
      EXPECT_EQ(y, expected);
    }
  }
}

TEST_P(RmsNorm, is_the_formula_for_every_size) {
  for (int64_t size = 1; size < 70; ++size) {
    const Case made = random_case(2, size, size);
    std::vector<float> y(2 * size, NAN);
    rms_norm(y, made.x, {made.weight, 1e-5f});
    for (int64_t i = 0; i < 2 * size; ++i) {
      const auto row = normalised(std::span(made.x).subspan(i / size * size, size), 1e-5f);
      const double value = row[i % size] * made.weight[i % size];
      EXPECT_NEAR(y[i], value, std::abs(value) * 5 * 0x1p-24) << size;
    }
  }
}

SUBBYTE_FOR_EVERY_ISA(RmsNorm);

}  // namespace
}  // namespace subbyte
