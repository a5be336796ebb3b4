// Every kernel of every instruction set that this machine runs, against products in double
// precision. Inputs of a product lie in memory whose next byte faults.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "matrix/recast.h"
#include "support/compare.h"
#include "support/matmul.h"
#include "support/matmul_bounds.h"
#include "support/random_matrix.h"

namespace subbyte::cpu {
namespace {

using testing::bounds_of;
using testing::compare_matmul;
using testing::Comparison;
using testing::Contents;
using testing::expect;
using testing::Expected;
using testing::format_of;
using testing::kernels_of_this_machine;
using testing::loop_of;
using testing::multiply;
using testing::multiply_in_double;
using testing::Oracle;
using testing::random_inputs;
using testing::random_matrix;
using testing::RandomMatrix;
using testing::variants_of;

constexpr int64_t kMaxM = 37;  // two tiles and a part of one

struct Case {
  WeightFormat format;
  int64_t rows;
  int64_t cols;
};

/// Scales of two levels have groups that are parts of 256.
bool has_kernel(const WeightFormat& format) {
  return find_matmul(*all_kernels().back(), format) != nullptr;
}

/// Shapes around every edge: panels of rows, blocks of inputs, groups that divide neither.
std::vector<Case> all_cases(const MatmulKernel& kernel) {
  const bool dense = kernel.scale == Format::kNone;
  std::vector<int64_t> groups = {0, 8, 16, 32, 40, 64, 96, 128, 256};
  std::vector<int64_t> all_cols = {8, 24, 32, 40, 64, 96, 120, 128, 136, 160, 256, 1160, 2880};
  if (subbyte::info(kernel.element).vector_size > 1) groups = {0, 32, 64, 96, 128, 256};
  if (dense) {
    groups = {0};
    all_cols.insert(all_cols.end(), {1, 2, 7, 9, 15, 17, 31, 65, 127, 129, 1025});
  }
  std::vector<Case> cases;
  for (const int64_t cols : all_cols) {
    for (const int64_t group : groups) {
      // Groups need not divide the columns, and one may be longer than the row.
      for (const int64_t rows : {1, 3, 7, 8, 33}) {
        // The other sizes of groups only with the two counts that no panel divides.
        const bool all_rows = cols < 1000 && (group == 0 || group == 32);
        if (!all_rows && rows != 3 && rows != 33) continue;
        const WeightFormat format = format_of(kernel, group);
        if (has_kernel(format)) cases.push_back({format, rows, cols});
      }
    }
  }
  return cases;
}

std::string describe(const Kernels& kernels, const KernelVariant& variant, const Case& test,
                     int64_t m) {
  return std::string(kernels.name) + ", " + variant.name + ", " + to_string(test.format) + ", " +
         std::to_string(test.rows) + " x " + std::to_string(test.cols) + ", M " + std::to_string(m);
}

class Matmul : public ::testing::TestWithParam<MatmulKernel> {};
class ExactMatmul : public Matmul {};
class ByteMatmul : public Matmul {};

/// Calls check(kernels, variant, m) for every variant that any instruction set has for such
/// weights.
template <typename Check>
void for_all_variants(const MatrixView& weights, std::initializer_list<int64_t> all_m,
                      const Check& check) {
  for (const Kernels* kernels : kernels_of_this_machine()) {
    ASSERT_NE(find_matmul(*kernels, weights.format), nullptr)
        << kernels->name << to_string(weights.format);
    for (const KernelVariant& variant : variants_of(*kernels, weights)) {
      for (const int64_t m : all_m) {
        check(*kernels, variant, m);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

/// Weights with offsets are halves of up to 256 with u4 of two levels, which 8 bits hold; of 512
/// with u5 of two levels, and of 1028 with u8.
bool weights_fit_bf16(const WeightFormat& format) {
  const bool is_wide = format.element == Format::kU8 ||
                       (format.element == Format::kU5 && has_two_levels(format.scale));
  return !is_wide || !is_offset(format.zero);
}

TEST_P(ExactMatmul, products_of_small_integers_are_exact) {
  // Sums stay below 2^24 steps, and every input is a number that bf16 holds: so no order of
  // additions rounds, and every instruction set and variant must give the very same bits. (Bytes
  // have a test of their own: a k8's largest is rarely 127 here.)
  uint64_t seed = 1;
  for (const Case& test : all_cases(GetParam())) {
    const RandomMatrix matrix =
        random_matrix(test.format, test.rows, test.cols, Contents::kExact, ++seed);
    const std::vector<float> x = random_inputs(kMaxM, test.cols, Contents::kExact, ++seed);
    const Oracle oracle = multiply_in_double(matrix.view, x, kMaxM);
    for_all_variants(
        matrix.view, {1, 2, 3, 4, 5, 17, 37},
        [&](const Kernels& kernels, const KernelVariant& variant, int64_t m) {
          if (loop_of(variant).takes_bytes) return;
          if (loop_of(variant).takes_bf16 && !weights_fit_bf16(test.format)) return;
          const std::vector<float> y = multiply(kernels, variant, matrix.view, x, m);
          const std::span expected(oracle.y.data(), y.size());
          const Comparison result = compare_matmul(y, expected, std::vector<double>(y.size(), 0.0));
          EXPECT_TRUE(result) << describe(kernels, variant, test, m) << ": " << result.message;
        });
  }
}

TEST_P(Matmul, real_products_stay_within_the_documented_bound) {
  std::map<std::string, double> worst;  // of each variant
  uint64_t seed = 1000;
  for (const Case& test : all_cases(GetParam())) {
    const RandomMatrix matrix =
        random_matrix(test.format, test.rows, test.cols, Contents::kReal, ++seed);
    const std::vector<float> x = random_inputs(kMaxM, test.cols, Contents::kReal, ++seed);
    const Expected expected = expect(matrix.view, x, kMaxM);
    for_all_variants(
        matrix.view, {1, 2, 4, 8, 37},
        [&](const Kernels& kernels, const KernelVariant& variant, int64_t m) {
          const std::vector<float> y = multiply(kernels, variant, matrix.view, x, m);
          std::vector<double> bounds = bounds_of(kernels, variant, expected, test.cols);
          bounds.resize(y.size());
          const Comparison result =
              compare_matmul(y, std::span(expected.exact.y.data(), y.size()), bounds);
          EXPECT_TRUE(result) << describe(kernels, variant, test, m) << ": " << result.message;
          double& of_variant = worst[std::string(kernels.name) + ", " + variant.name];
          of_variant = std::max(of_variant, result.worst_ratio);
        });
    if (HasFailure()) return;
  }
  // Far below the bound nothing would be compared: rounding errors must show.
  for (const auto& [variant, ratio] : worst) EXPECT_GT(ratio, 1e-3) << variant;
}

/// MXFP4 with a third of its groups zeros, whose scales are `scales` in turns.
RandomMatrix with_groups_of_zeros(std::initializer_list<uint8_t> scales) {
  constexpr int64_t kRows = 70;
  constexpr int64_t kCols = 1160;  // 36 groups and a quarter
  constexpr int64_t kGroups = 37;
  const WeightFormat format = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};
  RandomMatrix matrix = random_matrix(format, kRows, kCols, Contents::kReal, 41);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t group = row % 3; group < kGroups; group += 3) {
      const int64_t begin = group * 16;
      const auto zero_and_minus_zero = std::byte{static_cast<uint8_t>(row % 2 == 0 ? 0x80 : 0x08)};
      std::fill_n(matrix.codes->data() + row * kCols / 2 + begin,
                  std::min<int64_t>(16, kCols / 2 - begin), zero_and_minus_zero);
      matrix.scales->data()[row * kGroups + group] =
          std::byte{scales.begin()[(row + group) % scales.size()]};
    }
  }
  return matrix;
}

void expect_products_within_the_bound(const RandomMatrix& matrix, std::string_view variants) {
  const int64_t cols = matrix.view.cols;
  const std::vector<float> x = random_inputs(kMaxM, cols, Contents::kReal, 42);
  const Expected expected = expect(matrix.view, x, kMaxM);
  for_all_variants(matrix.view, {1, 4, 8, 37},
                   [&](const Kernels& kernels, const KernelVariant& variant, int64_t m) {
                     if (!std::string_view(variant.name).starts_with(variants)) return;
                     const std::vector<float> y = multiply(kernels, variant, matrix.view, x, m);
                     std::vector<double> bounds = bounds_of(kernels, variant, expected, cols);
                     bounds.resize(y.size());
                     const Comparison result =
                         compare_matmul(y, std::span(expected.exact.y.data(), y.size()), bounds);
                     EXPECT_TRUE(result) << kernels.name << ", " << variant.name << ", M " << m
                                         << ": " << result.message;
                   });
}

TEST(MatmulOfMxfp4, groups_of_zeros_may_have_tiny_scales) {
  expect_products_within_the_bound(with_groups_of_zeros({0, 1}), "");
}

/// Others multiply codes that lie around another centre than 0, with an error of that scale.
TEST(MatmulOfMxfp4, groups_of_zeros_may_have_any_scale_where_tiles_take_bytes) {
  expect_products_within_the_bound(with_groups_of_zeros({0, 254, 127, 1}), "few_rows/int8");
}

TEST_P(Matmul, inputs_of_all_magnitudes_stay_within_the_documented_bound) {
  // Each row of activations has its own magnitude, neighbours are far apart, some runs of 8 are
  // zeros, and some largest inputs lie just below a power of two, where scales of runs of 8 change.
  constexpr int64_t kCols = 1160;
  Random random(31);
  std::vector<float> x(kMaxM * kCols);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i / 8 % 11 == 0) continue;
    const int exponent = static_cast<int>(i / kCols * 37 % 120) - 70;
    const double mantissa =
        i % 3 == 0 ? 2 - 0x1p-23 * static_cast<double>(random.below(100000)) : 1 + random.uniform();
    const double value = std::ldexp(mantissa, exponent - static_cast<int>(random.below(24)));
    x[i] = static_cast<float>(i % 2 == 0 ? value : -value);
  }
  for (const int64_t group : {32, 128}) {
    const WeightFormat format = format_of(GetParam(), group);
    const RandomMatrix matrix = random_matrix(format, 9, kCols, Contents::kExact, 30);
    const Expected expected = expect(matrix.view, x, kMaxM);
    for_all_variants(matrix.view, {1, 2, 3, 37},
                     [&](const Kernels& kernels, const KernelVariant& variant, int64_t m) {
                       const std::vector<float> y = multiply(kernels, variant, matrix.view, x, m);
                       std::vector<double> bounds = bounds_of(kernels, variant, expected, kCols);
                       bounds.resize(y.size());
                       const Comparison result =
                           compare_matmul(y, std::span(expected.exact.y.data(), y.size()), bounds);
                       EXPECT_TRUE(result) << kernels.name << ", " << variant.name << ", M " << m
                                           << ", group " << group << ": " << result.message;
                     });
  }
}

TEST_P(Matmul, results_do_not_depend_on_how_rows_are_divided) {
  const std::vector<float> x = random_inputs(kMaxM, 1160, Contents::kReal, 6);
  for (const int64_t group : {32, 128}) {
    const WeightFormat format = format_of(GetParam(), group);
    const RandomMatrix matrix = random_matrix(format, 77, 1160, Contents::kReal, 5);
    for_all_variants(
        matrix.view, {1, 2, 3, 4, 5, 37},
        [&](const Kernels& kernels, const KernelVariant& variant, int64_t m) {
          const std::vector<float> whole = multiply(kernels, variant, matrix.view, x, m);
          for (const std::vector<int64_t>& splits :
               {std::vector<int64_t>{16}, {1, 2, 3}, {5, 21, 36}, {0, 19, 19}, {32, 64}}) {
            const std::vector<float> parts = multiply(kernels, variant, matrix.view, x, m, splits);
            for (std::size_t i = 0; i < whole.size(); ++i) {
              ASSERT_EQ(std::bit_cast<uint32_t>(whole[i]), std::bit_cast<uint32_t>(parts[i]))
                  << kernels.name << ", " << variant.name << ", M " << m << ", element " << i;
            }
          }
        });
  }
}

TEST_P(Matmul, results_of_a_row_of_activations_do_not_depend_on_the_others) {
  for (const int64_t group : {64, 128}) {
    const WeightFormat format = format_of(GetParam(), group);
    const RandomMatrix matrix = random_matrix(format, 19, 1160, Contents::kReal, 7);
    const std::vector<float> x = random_inputs(kMaxM, 1160, Contents::kReal, 8);
    for (const Kernels* kernels : kernels_of_this_machine()) {
      for (const KernelVariant& variant : variants_of(*kernels, matrix.view)) {
        const std::vector<float> all = multiply(*kernels, variant, matrix.view, x, kMaxM);
        for (const int64_t m : {1, 2, 3, 4, 5, 8, 16, 33}) {
          const std::vector<float> some = multiply(*kernels, variant, matrix.view, x, m);
          for (std::size_t i = 0; i < some.size(); ++i) {
            ASSERT_EQ(some[i], all[i])
                << kernels->name << ", " << variant.name << ", M " << m << ", element " << i;
          }
        }
      }
    }
  }
}

TEST_P(Matmul, results_do_not_depend_on_how_many_rows_go_through_together) {
  // More rows of both kinds than any mainloop keeps in a cache, so that it takes them in parts.
  constexpr int64_t kRows = 555;
  constexpr int64_t kCols = 648;
  constexpr int64_t kM = 530;
  const std::vector<float> x = random_inputs(kM, kCols, Contents::kReal, 8);
  for (const int64_t group : {0, 32, 128, 384}) {
    const WeightFormat format = format_of(GetParam(), group);
    if (!has_kernel(format)) continue;
    const RandomMatrix matrix = random_matrix(format, kRows, kCols, Contents::kReal, 7);
    for (const Kernels* kernels : kernels_of_this_machine()) {
      for (const KernelVariant& variant : variants_of(*kernels, matrix.view)) {
        if (loop_of(variant).rows_alone) continue;
        const std::vector<float> all = multiply(*kernels, variant, matrix.view, x, kM);
        for (const int64_t m : {5, 37, 70, 128}) {
          const std::vector<float> some = multiply(*kernels, variant, matrix.view, x, m);
          for (std::size_t i = 0; i < some.size(); ++i) {
            ASSERT_EQ(some[i], all[i]) << kernels->name << ", " << variant.name << ", M " << m
                                       << ", group " << group << ", element " << i;
          }
        }
      }
    }
  }
}

TEST_P(ExactMatmul, bias_is_added_once_and_the_factor_of_the_tensor_multiplies) {
  WeightFormat format = format_of(GetParam(), 0);
  if (!has_kernel(format)) format.group_size = 32;
  RandomMatrix matrix = random_matrix(format, 9, 2080, Contents::kExact, 9);
  const std::vector<float> x = random_inputs(kMaxM, 2080, Contents::kExact, 10);
  const std::vector<float> bias = {1, -2, 3, -4, 5, -6, 7, -8, 9};
  for_all_variants(matrix.view, {1, 4, 37},
                   [&](const Kernels& kernels, const KernelVariant& variant, int64_t m) {
                     matrix.view.tensor_scale = 1;
                     const std::vector<float> without =
                         multiply(kernels, variant, matrix.view, x, m);
                     matrix.view.tensor_scale = 0.25F;
                     const std::vector<float> with =
                         multiply(kernels, variant, matrix.view, x, m, {4}, bias.data());
                     for (std::size_t i = 0; i < with.size(); ++i) {
                       ASSERT_EQ(with[i], without[i] * 0.25F + bias[i % 9])
                           << kernels.name << ", " << variant.name << ", element " << i;
                     }
                   });
}

TEST_P(ByteMatmul, products_of_bytes_are_exact) {
  // The largest of every run of 8 is 127, so that bytes hold the inputs as they are. Every
  // instruction set with such variants must show one for each format of this test.
  for (const int64_t cols : {8, 24, 64, 136, 256}) {
    for (const int64_t group : {0, 8, 32, 128}) {
      const WeightFormat format = format_of(GetParam(), group);
      if (!has_kernel(format)) continue;
      const RandomMatrix matrix = random_matrix(format, 7, cols, Contents::kExact, 20 + cols);
      std::vector<float> x = random_inputs(kMaxM, cols, Contents::kExact, 21 + cols);
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = i % 8 == i / 8 % 8 ? (i % 3 == 0 ? -127.0F : 127.0F) : x[i] * 31;
      }
      const Oracle oracle = multiply_in_double(matrix.view, x, kMaxM);
      for (const Kernels* kernels : kernels_of_this_machine()) {
        bool takes_bytes = false;
        for (const KernelVariant& variant : variants_of(*kernels, matrix.view)) {
          if (!loop_of(variant).takes_bytes) continue;
          takes_bytes = true;
          for (const int64_t m : {1, 2, 3, 4, 5, 37}) {
            const std::vector<float> y = multiply(*kernels, variant, matrix.view, x, m);
            const Comparison result = compare_matmul(y, std::span(oracle.y.data(), y.size()),
                                                     std::vector<double>(y.size(), 0.0));
            ASSERT_TRUE(result) << kernels->name << ", " << variant.name << ", M " << m
                                << ", group " << group << ": " << result.message;
          }
        }
        const Format codes = unsigned_element(format.element);
        const bool short_codes =
            codes == Format::kU2 || codes == Format::kU3 || codes == Format::kU7;
        const bool expected = kernels->name == "avx512vnni" || kernels->name == "avx512bf16" ||
                              kernels->name == "amx" || (kernels->name == "avx2" && !short_codes);
        EXPECT_EQ(takes_bytes, expected) << kernels->name;
      }
    }
  }
}

std::vector<MatmulKernel> kernels_where(bool (*condition)(const MatmulKernel&)) {
  std::vector<MatmulKernel> list;
  for (const MatmulKernel& kernel : all_kernels().back()->matmuls) {
    if (condition(kernel)) list.push_back(kernel);
  }
  return list;
}

std::string kernel_name(const ::testing::TestParamInfo<MatmulKernel>& param) {
  std::string name(subbyte::info(param.param.element).name);
  if (param.param.scale == Format::kNone) return name;
  name += '_';
  name += subbyte::info(param.param.scale).name;
  if (is_offset(param.param.zero)) name += "_offset";
  return name;
}

bool is_codebook(const MatmulKernel& kernel) {
  switch (kernel.element) {
    case Format::kNF4:
    case Format::kNFL2:
    case Format::kNFL3:
    case Format::kNFL4:
    case Format::kNFL5:
      return true;
    default:
      return false;
  }
}

INSTANTIATE_TEST_SUITE_P(
    AllKernels, Matmul,
    ::testing::ValuesIn(kernels_where([](const MatmulKernel&) { return true; })), kernel_name);
INSTANTIATE_TEST_SUITE_P(AllButCodebooks, ExactMatmul,
                         ::testing::ValuesIn(kernels_where([](const MatmulKernel& kernel) {
                           return !is_codebook(kernel);
                         })),
                         kernel_name);
bool has_bytes(const MatmulKernel& kernel) {
  switch (unsigned_element(kernel.element)) {
    case Format::kU2:
    case Format::kU3:
    case Format::kU4:
    case Format::kU5:
    case Format::kU6:
    case Format::kU7:
    case Format::kU8:
    case Format::kE2M1:
    case Format::kIQ4:
      return true;
    default:
      return false;
  }
}
INSTANTIATE_TEST_SUITE_P(WithBytes, ByteMatmul, ::testing::ValuesIn(kernels_where(&has_bytes)),
                         kernel_name);

}  // namespace
}  // namespace subbyte::cpu
