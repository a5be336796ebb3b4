// Every kernel, for every kind of weights and both types of activations, against products in double
// precision on the same bytes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "decode_on_gpu.h"
#include "gpu_linear.h"
#include "support/compare.h"

namespace subbyte::testing {
namespace {

using cuda::KernelKind;
using cuda::Number;
using cuda::Plan;
using cuda::PlanOptions;

/// Those whose elements 16-bit numbers hold exactly.
std::vector<WeightFormat> exact_formats() {
  std::vector<WeightFormat> formats = packed_formats();
  std::erase_if(formats, has_table);
  return formats;
}

/// Whether those of a group, scaled and with offsets of halves, are: bf16 has 8 bits, as many as
/// halves up to twice 31 and 4 take; of two levels up to 8 times 15 and 8.
bool is_exact(const WeightFormat& format, Number number) {
  const int bits = has_two_levels(format) ? 4 : 5;
  return number == Number::kF16 || !is_offset(format.zero) || info(format.element).bits <= bits;
}

/// Tensor cores cut what they add to 24 bits or more: 17 times for 16 inputs, 2^-23 each.
double tensor_core_bound(int64_t inputs) {
  return 17.0 / 16 * static_cast<double>(inputs) * 0x1p-23;
}

/// How far a kernel may be from the exact product, relative to A = sum |s| (|q - c| + |z - c|) |x|,
/// or sum (|s| |q| + |z|) |x| with offsets z. Sums of `small_m` end with a pair of tiles at the
/// latest, and so do those of `gemv`; what follows are FMAs and additions of binary32, in `gemv` an
/// FMA for each group and an addition for every 256. Each group has one more FMA for its
/// offset, which is multiplied with a sum of inputs as exact as the others. Scales and offsets of
/// two levels are exact there.
double relative_bound(const WeightFormat& format, int64_t cols, KernelKind kernel, Number number) {
  const double table = has_table(format) ? 1.01 * unit_of(number) : 0;
  if (cuda::is_large_m(kernel)) {
    // Scale and product are rounded to 16 bits, or scale, offset and their sum: each part twice.
    // CTAs that split K add their partials, but have one addition less each, as their first
    // product is added to nothing.
    return table + 2.02 * unit_of(number) + tensor_core_bound(cols);
  }
  const int64_t group = format.group_size == 0 ? 128 : std::min<int64_t>(format.group_size, 128);
  const int64_t sums_of_group = is_offset(format.zero) ? 2 : 1;
  const auto sums = static_cast<double>(sums_of_group * (cols / group + 1) + 16 + 8 + 8);
  return table + tensor_core_bound(group) + rounding_bound(sums);
}

/// `small_m` and `gemv` multiply codes of integers as they are, with 128 more in bf16, and add the
/// zero point times the sum of the inputs. So what is added, and the error of that sum, is up to
/// three times this for each scaled input.
double largest_raw_code(const WeightFormat& format, Number number) {
  const bool is_float = format.element == Format::kE2M1 || format.element == Format::kE4M3;
  if (has_table(format) || is_float) return 0;
  const int bits = info(format.element).bits;
  return (number == Number::kF16 || bits == 8 ? 0 : 128) + std::ldexp(1, bits);
}

/// Bounds of all outputs: of the sum, of its rounding to 16 bits, half of f16's smallest step at
/// least, and, for f16 weights of `large_m` so small that they are subnormal there, 2^-25 of the
/// largest scale for each |x| (scale_factor brings the largest products near 2^15).
std::vector<double> bounds_of(const PackedOnDevice& weights, const Oracle& oracle,
                              const std::vector<float>& x, KernelKind kernel, Number number) {
  const cuda::PackedFormat& format = weights.format();
  const bool is_large_m = cuda::is_large_m(kernel);
  const double relative = relative_bound(format.source, format.cols, kernel, number);
  const int64_t group =
      format.source.group_size == 0 ? 128 : std::min<int64_t>(format.source.group_size, 128);
  const double raw =
      is_large_m ? 0 : 3 * largest_raw_code(format.source, number) * tensor_core_bound(group);
  std::vector<double> bounds(oracle.y.size());
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    double sum = relative * oracle.magnitude[i] + raw * oracle.scaled_inputs[i];
    if (is_large_m && number == Number::kF16) {
      const auto row = x.begin() + static_cast<int64_t>(i) / format.rows * format.cols;
      sum += 0x1p-25 * format.largest_scale *
             std::accumulate(row, row + format.cols, 0.0,
                             [](double all, float value) { return all + std::fabs(value); });
    }
    bounds[i] = sum + 1.01 * unit_of(number) * (std::fabs(oracle.y[i]) + sum) + 0x1p-25;
  }
  return bounds;
}

struct Shape {
  int64_t rows;
  int64_t cols;
};

std::vector<Shape> shapes_for(const WeightFormat& format) {
  const int64_t group = format.group_size == 0 ? 24 : format.group_size;
  return {{1, group},  {8, 2 * group}, {17, 5 * group}, {128, 512},
          {272, 1152}, {1000, 384},    {40, 8704}};
}

std::string describe(const WeightFormat& format, const Shape& shape, const Plan& plan, int64_t m,
                     Number number) {
  return to_string(format) + " " + std::to_string(shape.rows) + " x " + std::to_string(shape.cols) +
         " " + std::string(name(plan.kernel)) + " M " + std::to_string(m) + " " +
         std::string(info_of(number).name) + " splits " +
         std::to_string(plan.small_m.splits + plan.large_m.splits) + " ahead " +
         std::to_string(plan.small_m.depth) + " cluster " + std::to_string(plan.cluster) +
         " grid " + std::to_string(plan.ctas) + " batch " + std::to_string(plan.gemv.batch);
}

/// All candidates, and as with matrices that are larger than a GPU: those of `large_m` once more
/// with a single cluster that does all tiles, one after the other, and `gemv` with a single block
/// for all strips, the sums of two of which are kept at a time.
std::vector<Plan> plans_with_few_blocks(const cuda::Problem& problem) {
  std::vector<Plan> plans = cuda::plan_candidates(problem, this_device(), {});
  for (std::size_t i = 0, count = plans.size(); i < count; ++i) {
    if (plans[i].kernel == KernelKind::kGemv && plans[i].gemv.strip_ctas > 1) {
      Plan& plan = plans.emplace_back(plans[i]);
      plan.gemv.strip_ctas = 1;
      plan.gemv.strips = cuda::parts_of(problem.weights.strips, 1);
      plan.gemv.batch = std::min(plan.gemv.batch, 2);
      plan.ctas = plan.gemv.token_tiles;
    }
    if (!cuda::is_large_m(plans[i].kernel) || plans[i].ctas == plans[i].cluster) continue;
    plans.push_back(plans[i]);
    plans.back().ctas = plans[i].cluster;
  }
  return plans;
}

class GpuLinear : public ::testing::TestWithParam<WeightFormat> {};
class ExactGpuLinear : public GpuLinear {};

TEST_P(GpuLinear, is_within_the_bound_of_the_double_oracle) {
  const WeightFormat format = GetParam();
  uint64_t seed = 7;
  double worst[cuda::kKernelKinds] = {};
  for (const Shape& shape : shapes_for(format)) {
    const RandomMatrix matrix =
        random_matrix(format, shape.rows, shape.cols, Contents::kReal, ++seed);
    const PackedOnDevice packed(matrix.view);
    for (const int64_t m : {1, 3, 8, 16, 40, 129}) {
      for (const Number number : kNumbers) {
        const std::vector<uint16_t> x =
            to_numbers(random_inputs(m, shape.cols, Contents::kReal, ++seed), number);
        const std::vector<float> inputs = to_floats(x, number);
        const Oracle oracle = multiply_in_double(matrix.view, inputs, m);
        const GpuProduct product = {&packed, number, x, m};
        const std::vector<double> small_m =
            bounds_of(packed, oracle, inputs, KernelKind::kSmallM8, number);
        const std::vector<double> large_m =
            bounds_of(packed, oracle, inputs, KernelKind::kLargeM64, number);
        for (const Plan& plan : cuda::plan_candidates(product.problem(), this_device(), {})) {
          const Comparison comparison =
              compare_matmul(to_floats(run(product, plan), number), oracle.y,
                             cuda::is_large_m(plan.kernel) ? large_m : small_m);
          double& ratio = worst[static_cast<int>(plan.kernel)];
          ratio = std::max(ratio, comparison.worst_ratio);
          ASSERT_TRUE(comparison) << describe(format, shape, plan, m, number) << "\n"
                                  << comparison.message;
        }
      }
    }
  }
  for (int i = 0; i < cuda::kKernelKinds; ++i) {
    RecordProperty(std::string(name(static_cast<KernelKind>(i))), std::to_string(worst[i]));
  }
}

TEST_P(ExactGpuLinear, products_of_small_integers_are_exact) {
  const WeightFormat format = GetParam();
  uint64_t seed = 77;
  for (const Shape& shape : shapes_for(format)) {
    const RandomMatrix matrix =
        random_matrix(format, shape.rows, shape.cols, Contents::kExact, ++seed);
    const PackedOnDevice packed(matrix.view);
    for (const int64_t m : {2, 9, 70}) {
      for (const Number number : kNumbers) {
        if (!is_exact(format, number)) continue;
        const std::vector<uint16_t> x =
            to_numbers(random_inputs(m, shape.cols, Contents::kExact, ++seed), number);
        const Oracle oracle = multiply_in_double(matrix.view, to_floats(x, number), m);
        const GpuProduct product = {&packed, number, x, m};
        for (const Plan& plan : plans_with_few_blocks(product.problem())) {
          const std::vector<uint16_t> y = run(product, plan);
          for (std::size_t i = 0; i < y.size(); ++i) {
            ASSERT_EQ(y[i], info_of(number).encode(oracle.y[i], Rounding::kNearestEven))
                << describe(format, shape, plan, m, number) << " element " << i;
          }
        }
      }
    }
  }
}

/// As on the CPU, but where no instruction converts codes of E4M3: they read as 480 then.
TEST(GpuLinearOfNaN, is_nan_in_the_row_of_the_code_alone) {
  constexpr int64_t kRows = 40;
  constexpr int64_t kCols = 384;
  constexpr int64_t kRow = 17;
  const WeightFormat format = {Format::kE4M3, Format::kF32, Zero::kNone, 128};
  for (const int64_t col : {int64_t{5}, kCols - 1}) {
    const RandomMatrix matrix = random_matrix(format, kRows, kCols, Contents::kReal, 6);
    matrix.codes->span()[kRow * kCols + col] = std::byte{col == 5 ? 0x7f : 0xff};
    const PackedOnDevice packed(matrix.view);
    for (const int64_t m : {1, 16, 40, 129}) {
      for (const Number number : kNumbers) {
        const std::vector<uint16_t> x =
            to_numbers(random_inputs(m, kCols, Contents::kReal, 7), number);
        const GpuProduct product = {&packed, number, x, m};
        std::set<KernelKind> kernels;
        for (const Plan& plan : cuda::plan_candidates(product.problem(), this_device(), {})) {
          if (!kernels.insert(plan.kernel).second) continue;
          const std::vector<float> y = to_floats(run(product, plan), number);
          for (int64_t i = 0; i < std::ssize(y); ++i) {
            const bool is_nan = i % kRows == kRow && converts_e4m3_on_gpu();
            ASSERT_EQ(std::isnan(y[i]), is_nan)
                << describe(format, {kRows, kCols}, plan, m, number) << " element " << i;
          }
        }
      }
    }
  }
}

std::string test_name(const ::testing::TestParamInfo<WeightFormat>& format) {
  std::string text = to_string(format.param);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return !isalnum(c); }, '_');
  return text;
}

INSTANTIATE_TEST_SUITE_P(all, GpuLinear, ::testing::ValuesIn(packed_formats()), test_name);
INSTANTIATE_TEST_SUITE_P(all, ExactGpuLinear, ::testing::ValuesIn(exact_formats()), test_name);

}  // namespace
}  // namespace subbyte::testing
