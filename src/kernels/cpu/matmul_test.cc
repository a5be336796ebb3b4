// Every kernel of every instruction set that this machine runs, against products in double
// precision. Inputs of a product lie in memory whose next byte faults.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "kernels/cpu/cpu_kernels.h"
#include "support/compare.h"
#include "support/random_matrix.h"

namespace subbyte::cpu {
namespace {

using testing::compare_matmul;
using testing::Comparison;
using testing::Contents;
using testing::multiply_in_double;
using testing::Oracle;
using testing::random_inputs;
using testing::random_matrix;
using testing::RandomMatrix;
using testing::rounding_bound;

constexpr int64_t kMaxM = 17;
constexpr float kCanary = 12345.5F;
constexpr int64_t kGap = 3;  // canaries between the rows of y

/// The roundings of one product: the formulas at the top of gemv.inl.h and gemm.inl.h.
double roundings(const Kernels& kernels, int64_t m, int64_t cols) {
  const double lanes = kernels.lanes;
  const auto k = static_cast<double>(cols);
  const double fma = kernels.lanes == 1 ? 2 : 1;
  const double levels = std::log2(lanes);
  if (m <= kMaxGemvRows) return 18 + 8 * (fma - 1) + fma * std::ceil(k / (8 * lanes)) + levels;
  return 4 + fma * std::ceil(k / lanes) + levels + std::ceil(k / 1024);
}

/// y = W x by one kernel, [m][rows]. Where nothing should be written nothing is.
std::vector<float> multiply(const Kernels& kernels, const MatmulKernel& kernel,
                            const MatrixView& weights, const std::vector<float>& x, int64_t m,
                            const std::vector<int64_t>& splits = {}, const float* bias = nullptr) {
  const int64_t packed = kernels.packed_floats(weights.cols, kernel.order);
  testing::GuardedBytes activations(m * packed * sizeof(float));
  auto* data = reinterpret_cast<float*>(activations.data());
  for (int64_t i = 0; i < m; ++i) {
    kernels.pack(data + i * packed, x.data() + i * weights.cols, nullptr, weights.cols,
                 kernel.order);
  }
  testing::GuardedBytes scratch(kernels.scratch_floats(weights.cols) * sizeof(float));
  const int64_t stride = weights.rows + kGap;
  std::vector<float> y((m + 1) * stride, kCanary);
  float* results = y.data() + kGap;
  for (int64_t i = 0; i < m; ++i) {
    std::fill_n(results + i * stride, weights.rows, std::numeric_limits<float>::quiet_NaN());
  }
  std::vector<int64_t> bounds = {0};
  bounds.insert(bounds.end(), splits.begin(), splits.end());
  bounds.push_back(weights.rows);
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    const MatmulTask task = {.weights = weights_of(weights),
                             .x = {.data = data, .rows = m, .stride = packed},
                             .y = results,
                             .y_stride = stride,
                             .bias = bias,
                             .row_begin = bounds[i],
                             .row_end = bounds[i + 1],
                             .scratch = reinterpret_cast<float*>(scratch.data())};
    (m <= kMaxGemvRows ? kernel.gemv : kernel.gemm)(task);
  }
  std::vector<float> product;
  for (int64_t i = 0; i < static_cast<int64_t>(y.size()); ++i) {
    const bool inside = i >= kGap && (i - kGap) % stride < weights.rows && (i - kGap) / stride < m;
    if (inside) {
      product.push_back(y[i]);
    } else {
      EXPECT_EQ(y[i], kCanary) << "written outside the result, at " << i;
    }
  }
  return product;
}

std::vector<const Kernels*> kernels_of_this_machine() {
  std::vector<const Kernels*> list;
  for (const Kernels* kernels : all_kernels()) {
    if ((kernels->required_features & ~cpu_features()) == 0) list.push_back(kernels);
  }
  return list;
}

struct Case {
  WeightFormat format;
  int64_t rows;
  int64_t cols;
};

/// Shapes around every edge: strips of rows, blocks of inputs, groups that divide neither.
std::vector<Case> all_cases(const MatmulKernel& kernel) {
  const bool dense = kernel.scale == Format::kNone;
  std::vector<int64_t> groups = {0, 8, 16, 32, 40, 64, 96, 128, 256};
  std::vector<int64_t> all_cols = {8, 24, 32, 40, 64, 96, 128, 136, 160, 256, 1160, 2880};
  if (dense) {
    groups = {0};
    all_cols.insert(all_cols.end(), {1, 2, 7, 9, 15, 17, 31, 65, 127, 129, 1025});
  }
  std::vector<Case> cases;
  for (const int64_t cols : all_cols) {
    for (const int64_t group : groups) {
      // Groups need not divide the columns, and one may be longer than the row.
      for (const int64_t rows : {1, 3, 7, 8, 33}) {
        // The other sizes of groups only with the two counts that no strip divides.
        const bool all_rows = cols < 1000 && (group == 0 || group == 32);
        if (!all_rows && rows != 3 && rows != 33) continue;
        cases.push_back({{kernel.element, kernel.scale, kernel.zero, group}, rows, cols});
      }
    }
  }
  return cases;
}

std::string describe(const Kernels& kernels, const Case& test, int64_t m) {
  return std::string(kernels.name) + ", " + to_string(test.format) + ", " +
         std::to_string(test.rows) + " x " + std::to_string(test.cols) + ", M " + std::to_string(m);
}

class Matmul : public ::testing::TestWithParam<MatmulKernel> {};

/// Calls check(kernels, kernel, case, matrix, x, oracle, m) for every instruction set and M.
template <typename Check>
void for_all(const MatmulKernel& param, Contents contents, const Check& check) {
  uint64_t seed = 1;
  for (const Case& test : all_cases(param)) {
    const RandomMatrix matrix = random_matrix(test.format, test.rows, test.cols, contents, ++seed);
    const std::vector<float> x = random_inputs(kMaxM, test.cols, contents, ++seed);
    const Oracle oracle = multiply_in_double(matrix.view, x, kMaxM);
    for (const Kernels* kernels : kernels_of_this_machine()) {
      const MatmulKernel* kernel = find_matmul(*kernels, test.format);
      ASSERT_NE(kernel, nullptr) << describe(*kernels, test, 0);
      for (const int64_t m : {1, 2, 3, 4, 5, 8, 17}) {
        check(*kernels, *kernel, test, matrix.view, x, oracle, m);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST_P(Matmul, products_of_small_integers_are_exact) {
  // Sums stay below 2^24 steps, so no order of additions rounds, and every instruction set must
  // give the very same bits.
  for_all(
      GetParam(), Contents::kExact,
      [](const Kernels& kernels, const MatmulKernel& kernel, const Case& test,
         const MatrixView& weights, const std::vector<float>& x, const Oracle& oracle, int64_t m) {
        const std::vector<float> y = multiply(kernels, kernel, weights, x, m);
        const std::span expected(oracle.y.data(), y.size());
        const std::vector<double> exact(y.size(), 0.0);
        const Comparison result = compare_matmul(y, expected, exact);
        EXPECT_TRUE(result) << describe(kernels, test, m) << ": " << result.message;
      });
}

TEST_P(Matmul, real_products_stay_within_the_documented_bound) {
  double worst = 0;
  for_all(
      GetParam(), Contents::kReal,
      [&](const Kernels& kernels, const MatmulKernel& kernel, const Case& test,
          const MatrixView& weights, const std::vector<float>& x, const Oracle& oracle, int64_t m) {
        const std::vector<float> y = multiply(kernels, kernel, weights, x, m);
        const double g = rounding_bound(roundings(kernels, m, test.cols));
        std::vector<double> bounds(oracle.magnitude.begin(),
                                   oracle.magnitude.begin() + static_cast<int64_t>(y.size()));
        for (double& bound : bounds) bound *= g;
        const std::span expected(oracle.y.data(), y.size());
        const Comparison result = compare_matmul(y, expected, bounds);
        EXPECT_TRUE(result) << describe(kernels, test, m) << ": " << result.message;
        worst = std::max(worst, result.worst_ratio);
      });
  RecordProperty("worst_ratio_to_bound", std::to_string(worst));
  // Far below the bound nothing would be compared: rounding errors must show.
  EXPECT_GT(worst, 1e-3);
}

TEST_P(Matmul, results_do_not_depend_on_how_rows_are_divided) {
  const WeightFormat format = {GetParam().element, GetParam().scale, GetParam().zero, 32};
  const RandomMatrix matrix = random_matrix(format, 37, 1160, Contents::kReal, 5);
  const std::vector<float> x = random_inputs(kMaxM, 1160, Contents::kReal, 6);
  for (const Kernels* kernels : kernels_of_this_machine()) {
    const MatmulKernel& kernel = *find_matmul(*kernels, format);
    for (const int64_t m : {1, 2, 3, 4, 5, 17}) {
      const std::vector<float> whole = multiply(*kernels, kernel, matrix.view, x, m);
      for (const std::vector<int64_t>& splits :
           {std::vector<int64_t>{16}, {1, 2, 3}, {5, 21, 36}, {0, 19, 19}}) {
        const std::vector<float> parts = multiply(*kernels, kernel, matrix.view, x, m, splits);
        for (std::size_t i = 0; i < whole.size(); ++i) {
          ASSERT_EQ(std::bit_cast<uint32_t>(whole[i]), std::bit_cast<uint32_t>(parts[i]))
              << kernels->name << ", M " << m << ", element " << i;
        }
      }
    }
  }
}

TEST_P(Matmul, results_of_a_row_of_activations_do_not_depend_on_the_others) {
  const WeightFormat format = {GetParam().element, GetParam().scale, GetParam().zero, 64};
  const RandomMatrix matrix = random_matrix(format, 19, 1160, Contents::kReal, 7);
  const std::vector<float> x = random_inputs(kMaxM, 1160, Contents::kReal, 8);
  for (const Kernels* kernels : kernels_of_this_machine()) {
    const MatmulKernel& kernel = *find_matmul(*kernels, format);
    // Within one regime: gemv up to M = 4, gemm above.
    const std::vector<float> four = multiply(*kernels, kernel, matrix.view, x, 4);
    const std::vector<float> many = multiply(*kernels, kernel, matrix.view, x, 17);
    for (const int64_t m : {1, 2, 3, 5, 8, 16}) {
      const std::vector<float> some = multiply(*kernels, kernel, matrix.view, x, m);
      const std::vector<float>& all = m <= 4 ? four : many;
      for (std::size_t i = 0; i < some.size(); ++i) {
        ASSERT_EQ(some[i], all[i]) << kernels->name << ", M " << m << ", element " << i;
      }
    }
  }
}

TEST_P(Matmul, bias_is_added_once) {
  const WeightFormat format = {GetParam().element, GetParam().scale, GetParam().zero, 0};
  const RandomMatrix matrix = random_matrix(format, 9, 2080, Contents::kExact, 9);
  const std::vector<float> x = random_inputs(kMaxM, 2080, Contents::kExact, 10);
  const std::vector<float> bias = {1, -2, 3, -4, 5, -6, 7, -8, 9};
  for (const Kernels* kernels : kernels_of_this_machine()) {
    const MatmulKernel& kernel = *find_matmul(*kernels, format);
    for (const int64_t m : {1, 4, 17}) {
      const std::vector<float> without = multiply(*kernels, kernel, matrix.view, x, m);
      const std::vector<float> with =
          multiply(*kernels, kernel, matrix.view, x, m, {4}, bias.data());
      for (std::size_t i = 0; i < with.size(); ++i) {
        ASSERT_EQ(with[i], without[i] + bias[i % 9]) << kernels->name << ", element " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllKernels, Matmul,
                         ::testing::ValuesIn(all_kernels().back()->matmuls.begin(),
                                             all_kernels().back()->matmuls.end()),
                         [](const ::testing::TestParamInfo<MatmulKernel>& param) {
                           std::string name(subbyte::info(param.param.element).name);
                           if (param.param.scale == Format::kNone) return name;
                           name += '_';
                           name += subbyte::info(param.param.scale).name;
                           return name;
                         });

/// One product in which a single thing is wrong must fail the comparison: y comes from the right
/// matrix, the oracle from a damaged copy.
class SeededFaults : public ::testing::Test {
 protected:
  static constexpr int64_t kRows = 8;
  static constexpr int64_t kCols = 264;  // two blocks of AVX-512 and a tail of one lane
  static constexpr WeightFormat kFormat = {Format::kU4, Format::kF16, Zero::kU8, 32};

  RandomMatrix right_ = random_matrix(kFormat, kRows, kCols, Contents::kReal, 11);
  RandomMatrix wrong_ = random_matrix(kFormat, kRows, kCols, Contents::kReal, 11);
  std::vector<float> x_ = random_inputs(kMaxM, kCols, Contents::kReal, 12);

  void expect_found() const {
    for (const Kernels* kernels : kernels_of_this_machine()) {
      for (const int64_t m : {1, 4, 17}) {
        EXPECT_TRUE(compared(*kernels, right_.view, m)) << kernels->name << ", M " << m;
        EXPECT_FALSE(compared(*kernels, wrong_.view, m)) << kernels->name << ", M " << m;
      }
    }
  }

 private:
  Comparison compared(const Kernels& kernels, const MatrixView& oracle_weights, int64_t m) const {
    const std::vector<float> y =
        multiply(kernels, *find_matmul(kernels, kFormat), right_.view, x_, m);
    const Oracle oracle = multiply_in_double(oracle_weights, x_, m);
    std::vector<double> bounds = oracle.magnitude;
    for (double& bound : bounds) bound *= rounding_bound(roundings(kernels, m, kCols));
    return compare_matmul(y, oracle.y, bounds);
  }
};

TEST_F(SeededFaults, the_nibbles_of_one_byte_swapped) {
  for (std::byte& byte : wrong_.codes->span()) {
    if (byte >> 4 == (byte & std::byte{15})) continue;
    byte = (byte << 4) | (byte >> 4);
    break;
  }
  expect_found();
}

TEST_F(SeededFaults, one_code_off_by_one) {
  wrong_.codes->data()[kCols / 2 + 70] ^= std::byte{0x10};
  expect_found();
}

TEST_F(SeededFaults, one_zero_point_off_by_one) {
  std::byte& zero = wrong_.zeros->data()[5];
  zero = static_cast<std::byte>(std::to_integer<int>(zero) + 1);
  expect_found();
}

TEST_F(SeededFaults, the_scale_of_the_neighbouring_group) {
  std::memcpy(wrong_.scales->data() + 2 * 7, right_.scales->data() + 2 * 8, 2);
  expect_found();
}

TEST_F(SeededFaults, the_last_octet_of_a_row_dropped) {
  // A code equal to the zero point is a weight of zero.
  const int64_t row = 3;
  const std::byte zero = wrong_.zeros->data()[row * wrong_.view.groups() + kCols / 32];
  ASSERT_LT(std::to_integer<int>(zero), 16);
  for (int64_t i = 1; i <= 4; ++i) {
    wrong_.codes->data()[(row + 1) * kCols / 2 - i] = zero | (zero << 4);
  }
  expect_found();
}

TEST_F(SeededFaults, two_inputs_exchanged) {
  std::vector<uint32_t> order(kCols);
  for (uint32_t i = 0; i < kCols; ++i) order[i] = i;
  std::swap(order[256], order[257]);
  wrong_.view.input_order = order;
  expect_found();
}

}  // namespace
}  // namespace subbyte::cpu
