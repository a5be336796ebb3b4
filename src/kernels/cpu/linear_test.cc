#include "kernels/cpu/linear.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "formats/rotation.h"
#include "matrix/codebook.h"
#include "support/compare.h"
#include "support/isa_test.h"
#include "support/matmul_bounds.h"
#include "support/random_matrix.h"

namespace subbyte {
namespace {

using testing::compare_matmul;
using testing::Contents;
using testing::multiply_in_double;
using testing::Oracle;
using testing::random_inputs;
using testing::random_matrix;
using testing::RandomMatrix;

constexpr WeightFormat kU4 = {Format::kU4, Format::kF16, Zero::kU8, 32};
constexpr WeightFormat kMxfp4 = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};
constexpr WeightFormat kBf16 = {Format::kBF16, Format::kNone, Zero::kNone, 0};

std::unique_ptr<Execution> execution(int threads) {
  auto created = Execution::create({.num_threads = threads});
  EXPECT_TRUE(created.ok());
  return std::move(*created);
}

std::vector<float> multiply(Execution& run, const MatrixView& weights, const std::vector<float>& x,
                            int64_t m, std::span<const float> bias = {}) {
  std::vector<float> y(m * weights.rows, std::nanf(""));
  EXPECT_TRUE(linear(run, y, std::span(x).first(m * weights.cols), m, weights, bias).ok());
  return y;
}

TEST(Linear, products_of_small_integers_are_exact_with_any_number_of_threads) {
  for (const WeightFormat& format : {kU4, kMxfp4, kBf16}) {
    const RandomMatrix matrix = random_matrix(format, 101, 264, Contents::kExact, 1);
    const std::vector<float> x = random_inputs(17, 264, Contents::kExact, 2);
    const Oracle oracle = multiply_in_double(matrix.view, x, 17);
    for (const int threads : {1, 2, 8}) {
      const auto run = execution(threads);
      ASSERT_TRUE(check_linear(*run, matrix.view).ok());
      for (const int64_t m : {1, 2, 4, 5, 17}) {
        const std::vector<float> y = multiply(*run, matrix.view, x, m);
        const std::vector<double> exact(y.size());
        const auto result = compare_matmul(y, std::span(oracle.y).first(y.size()), exact);
        EXPECT_TRUE(result) << to_string(format) << ", M " << m << ": " << result.message;
      }
    }
  }
}

TEST(Linear, results_do_not_depend_on_the_number_of_threads) {
  const RandomMatrix matrix = random_matrix(kU4, 333, 1160, Contents::kReal, 3);
  const std::vector<float> x = random_inputs(17, 1160, Contents::kReal, 4);
  const auto one = execution(1);
  for (const int64_t m : {1, 3, 17}) {
    const std::vector<float> expected = multiply(*one, matrix.view, x, m);
    for (const int threads : {2, 8}) {
      const auto run = execution(threads);
      for (int repeat = 0; repeat < 3; ++repeat) {
        const std::vector<float> found = multiply(*run, matrix.view, x, m);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          ASSERT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(expected[i]))
              << threads << " threads, M " << m << ", element " << i;
        }
      }
    }
  }
}

TEST(Linear, act_order_is_the_same_as_permuting_the_inputs) {
  RandomMatrix matrix = random_matrix(kU4, 40, 136, Contents::kReal, 5);
  const std::vector<float> x = random_inputs(5, 136, Contents::kReal, 6);
  std::vector<uint32_t> order(136);
  for (uint32_t i = 0; i < 136; ++i) order[i] = (i * 37 + 11) % 136;  // 37 and 136 are coprime
  std::vector<float> permuted(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) permuted[i] = x[i / 136 * 136 + order[i % 136]];
  const auto run = execution(2);
  const std::vector<float> expected = multiply(*run, matrix.view, permuted, 5);
  const std::vector<float> expected_one = multiply(*run, matrix.view, permuted, 1);
  matrix.view.input_order = order;
  ASSERT_TRUE(check_linear(*run, matrix.view).ok());
  EXPECT_EQ(multiply(*run, matrix.view, x, 5), expected);
  EXPECT_EQ(multiply(*run, matrix.view, x, 1), expected_one);
  EXPECT_NE(multiply(*run, matrix.view, permuted, 5), expected);
}

TEST(Linear, adds_the_bias_of_each_output) {
  const RandomMatrix matrix = random_matrix(kMxfp4, 20, 64, Contents::kExact, 7);
  const std::vector<float> x = random_inputs(6, 64, Contents::kExact, 8);
  std::vector<float> bias(20);
  for (int i = 0; i < 20; ++i) bias[i] = static_cast<float>(100 * i);
  const auto run = execution(2);
  for (const int64_t m : {1, 6}) {
    const std::vector<float> without = multiply(*run, matrix.view, x, m);
    const std::vector<float> with = multiply(*run, matrix.view, x, m, bias);
    for (std::size_t i = 0; i < with.size(); ++i) EXPECT_EQ(with[i], without[i] + bias[i % 20]);
  }
}

TEST(Linear, products_of_different_sizes_share_one_execution) {
  const auto run = execution(2);
  for (const int64_t cols : {2880, 8, 1024, 64}) {
    const RandomMatrix matrix = random_matrix(kU4, 17, cols, Contents::kExact, 9);
    const std::vector<float> x = random_inputs(9, cols, Contents::kExact, 10);
    const Oracle oracle = multiply_in_double(matrix.view, x, 9);
    for (const int64_t m : {9, 1}) {
      const std::vector<float> y = multiply(*run, matrix.view, x, m);
      const std::vector<double> exact(y.size());
      EXPECT_TRUE(compare_matmul(y, std::span(oracle.y).first(y.size()), exact));
    }
  }
}

/// Whether the kernels of this machine multiply in another way than with f32.
bool rounds_to_int8(const MatrixView& matrix, int64_t m) {
  const auto run = execution(1);
  const cpu::Kernels& kernels = run->kernels();
  const auto chosen = [&](cpu::Precision precision) {
    return cpu::choose_variant(kernels, *cpu::find_matmul(kernels, matrix.format),
                               cpu::weights_of(matrix), m, precision, false)
        .multiply;
  };
  return chosen(cpu::Precision::kInt8) != chosen(cpu::Precision::kF32);
}

TEST(Linear, precision_of_the_execution_counts_but_not_where_it_must_be_exact) {
  const WeightFormat format = {Format::kU4, Format::kF16, Zero::kU8, 32};
  const auto matrix = random_matrix(format, 48, 256, Contents::kReal, 31);
  const std::vector<float> x = random_inputs(20, 256, Contents::kReal, 32);
  const auto product = [&](cpu::Precision precision, auto multiply) {
    auto rounding = Execution::create({.num_threads = 1, .precision = precision});
    EXPECT_TRUE(rounding.ok());
    std::vector<float> y(20 * 48, NAN);
    multiply(**rounding, y);
    return y;
  };
  const auto usual = [&](Execution& run, std::span<float> y) {
    ASSERT_TRUE(linear(run, y, x, 20, matrix.view).ok());
  };
  const auto exact = [&](Execution& run, std::span<float> y) {
    ASSERT_TRUE(exact_linear(run, y, x, 20, matrix.view).ok());
  };
  const std::vector<float> expected = product(cpu::Precision::kF32, usual);
  EXPECT_NE(product(cpu::Precision::kInt8, usual) == expected, rounds_to_int8(matrix.view, 20));
  EXPECT_EQ(product(cpu::Precision::kInt8, exact), expected);
  EXPECT_EQ(product(cpu::Precision::kBF16, exact), expected);
}

/// Numbers of x that bf16 holds lose nothing where x_is_bf16 says so, whichever variant serves:
/// what is left are roundings of sums, and of three limbs for 128 inputs. Other weights take no
/// notice.
TEST(Linear, numbers_that_bf16_holds_are_multiplied_as_they_are) {
  constexpr int64_t kRows = 72, kCols = 384;
  std::vector<float> x = random_inputs(40, kCols, Contents::kReal, 33);
  for (float& number : x) {
    number = std::bit_cast<float>(std::bit_cast<uint32_t>(number) & 0xFFFF0000u);
  }
  const std::vector<float> largest = testing::local_maxima(x, kCols, 128);
  for (const std::string& isa : testing::isas_of_this_machine()) {
    const auto created = Execution::create({.num_threads = 2, .isa = isa});
    ASSERT_TRUE(created.ok());
    const std::unique_ptr<Execution>& run = *created;
    for (const WeightFormat& format : {kMxfp4, kBf16, kU4}) {
      const RandomMatrix matrix = random_matrix(format, kRows, kCols, Contents::kReal, 34);
      for (const int64_t m : {1, 4, 10, 40}) {
        std::vector<float> y(m * kRows, NAN);
        LinearProduct product = {y, std::span(x).first(m * kCols), m, &matrix.view};
        product.x_is_bf16 = true;
        ASSERT_TRUE(linear_group(*run, {&product, 1}).ok());
        if (format.element == Format::kU4) {
          EXPECT_EQ(y, multiply(*run, matrix.view, x, m)) << isa;
          continue;
        }
        const Oracle exact = multiply_in_double(matrix.view, x, m);
        const Oracle of_largest = multiply_in_double(matrix.view, largest, m);
        std::vector<double> bounds(y.size());
        for (std::size_t i = 0; i < y.size(); ++i) {
          bounds[i] = testing::rounding_bound(kCols + kCols / 32 + 40) * exact.magnitude[i] +
                      0x1.01p-22 * of_largest.magnitude[i];
        }
        const auto result = compare_matmul(y, exact.y, bounds);
        EXPECT_TRUE(result) << isa << ", " << to_string(format) << ", M " << m << ": "
                            << result.message;
      }
    }
  }
}

/// Products with a codebook that the matrix brings, and inputs in another order, within the bound
/// of the variant that serves.
TEST(Linear, codebook_of_a_matrix) {
  constexpr int64_t kRows = 83, kCols = 416;
  const std::vector<float> values = {-0.75f, -0.5f, -0.125f, 0, 0.0625f, 0.25f, 0.3f, 1.5f};
  RandomMatrix matrix = random_matrix({Format::kNFL3, Format::kE4M4, Zero::kNone, 32}, kRows, kCols,
                                      Contents::kReal, 35);
  matrix.view.codebook = values;
  std::vector<uint32_t> order(kCols);
  for (uint32_t i = 0; i < kCols; ++i) order[i] = (i * 37 + 11) % kCols;
  matrix.view.input_order = order;
  const std::vector<float> x = random_inputs(70, kCols, Contents::kReal, 36);
  const testing::Expected expected = testing::expect(matrix.view, x, 70);
  for (const std::string& isa : testing::isas_of_this_machine()) {
    const auto run = Execution::create({.num_threads = 2, .isa = isa});
    ASSERT_TRUE(run.ok());
    ASSERT_TRUE(check_linear(**run, matrix.view).ok());
    const cpu::Kernels& kernels = (*run)->kernels();
    for (const int64_t m : {1, 5, 20, 70}) {
      const std::vector<float> y = multiply(**run, matrix.view, x, m);
      const cpu::KernelVariant& variant =
          cpu::choose_variant(kernels, *cpu::find_matmul(kernels, matrix.view.format),
                              cpu::weights_of(matrix.view), m, cpu::Precision::kF32, false);
      std::vector<double> bounds = testing::bounds_of(kernels, variant, expected, kCols);
      bounds.resize(y.size());
      const auto result = compare_matmul(y, std::span(expected.exact.y.data(), y.size()), bounds);
      EXPECT_TRUE(result) << isa << ", M " << m << ": " << result.message;
    }
  }
  MatrixView wrong = matrix.view;
  wrong.codebook = std::span(values).first(7);
  EXPECT_EQ(check_linear(*execution(1), wrong).error().code, "linear.unsupported");
  const RandomMatrix integers = random_matrix(kU4, 2, 64, Contents::kReal, 1);
  wrong = integers.view;
  wrong.codebook = values;
  EXPECT_EQ(check_linear(*execution(1), wrong).error().code, "linear.unsupported");
}

/// A matrix that brings the values of its format has the bits that it has without: the same loops
/// serve both. (For nfl2 avx512bf16 has one that is made for the values of the format.)
TEST(Linear, codebook_of_a_matrix_costs_no_other_loop) {
  constexpr int64_t kRows = 67, kCols = 288;
  const std::vector<float> x = random_inputs(40, kCols, Contents::kReal, 43);
  for (const Format element : {Format::kNFL2, Format::kNFL3, Format::kNFL4, Format::kNFL5}) {
    const RandomMatrix matrix =
        random_matrix({element, Format::kE4M4, Zero::kNone, 32}, kRows, kCols, Contents::kReal, 44);
    const std::vector<float> values = default_codebook(element);
    MatrixView own = matrix.view;
    own.codebook = values;
    for (const std::string& isa : testing::isas_of_this_machine()) {
      if (element == Format::kNFL2 && isa == "avx512bf16") continue;
      const auto run = Execution::create({.num_threads = 2, .isa = isa});
      ASSERT_TRUE(run.ok());
      for (const int64_t m : {1, 5, 40}) {
        EXPECT_EQ(multiply(**run, own, x, m), multiply(**run, matrix.view, x, m))
            << isa << ", " << to_string(own.format) << ", M " << m;
      }
    }
  }
}

/// Vectors by the kernels that look them up, and by rows of f32 where groups are no multiples of
/// 32, with the inputs rotated by the definition: within the bound of sums in f32.
TEST(Linear, vectors_and_rotation) {
  constexpr int64_t kRows = 83, kCols = 768;
  for (const WeightFormat& format :
       {WeightFormat{Format::kVQ2, Format::kE4M4, Zero::kNone, 32},
        WeightFormat{Format::kVQ2, Format::kE4M4, Zero::kNone, 16},
        WeightFormat{Format::kVQ2, Format::kE4M4, Zero::kNone, 32, 256},
        WeightFormat{Format::kVQ4, Format::kF16, Zero::kNone, 32, 64},
        WeightFormat{Format::kVQ4, Format::kE4M4, Zero::kNone, 32, 16}}) {
    const RandomMatrix matrix = random_matrix(format, kRows, kCols, Contents::kExact, 37);
    MatrixView stored = matrix.view;
    stored.format.rotation = 0;
    // Multiples of 16, so that rotated ones are integers, too.
    std::vector<float> x = random_inputs(70, kCols, Contents::kExact, 38);
    for (float& input : x) input *= 16;
    std::vector<float> rotated = x;
    if (format.rotation != 0) rotate(rotated.data(), std::ssize(x), format.rotation);
    const Oracle oracle = multiply_in_double(stored, rotated, 70);
    for (const std::string& isa : testing::isas_of_this_machine()) {
      const auto run = Execution::create({.num_threads = 2, .isa = isa});
      ASSERT_TRUE(run.ok());
      ASSERT_TRUE(check_linear(**run, matrix.view).ok());
      for (const int64_t m : {1, 5, 20, 70}) {
        const std::vector<float> y = multiply(**run, matrix.view, x, m);
        std::vector<double> bounds(y.size());
        for (std::size_t i = 0; i < bounds.size(); ++i) {
          bounds[i] = testing::rounding_bound(kCols + 40) * oracle.magnitude[i];
        }
        const auto result = compare_matmul(y, std::span(oracle.y.data(), y.size()), bounds);
        EXPECT_TRUE(result) << isa << ", " << to_string(format) << ", M " << m << ": "
                            << result.message;
      }
    }
  }
}

/// Products with the weights that the file stands for, in double precision: exact where inputs and
/// rotated sums are small integers, within the roundings of f32 else.
TEST(Linear, rotated_weights_are_those_of_the_oracle) {
  constexpr int64_t kRows = 40, kCols = 320;
  const WeightFormat format = {Format::kVQ2, Format::kE4M4, Zero::kNone, 32, 64};
  const auto run = execution(2);
  for (const Contents contents : {Contents::kExact, Contents::kReal}) {
    const RandomMatrix matrix = random_matrix(format, kRows, kCols, contents, 39);
    const std::vector<float> x = random_inputs(9, kCols, contents, 40);
    const Oracle oracle = multiply_in_double(matrix.view, x, 9);
    MatrixView stored = matrix.view;
    stored.format.rotation = 0;
    std::vector<double> bounds(oracle.y.size());
    for (int64_t i = 0; i < std::ssize(bounds) && contents == Contents::kReal; ++i) {
      // A rotated input is a sum of 64 after six roundings; then there are those of a dot product.
      for (int64_t first = 0; first < kCols; first += 64) {
        double inputs = 0;
        double weights = 0;
        for (int64_t k = first; k < first + 64; ++k) {
          inputs += std::fabs(x[i / kRows * kCols + k]) / 8;
          weights += std::fabs(weight_at(stored, i % kRows, k));
        }
        bounds[i] += testing::rounding_bound(kCols + 8) * inputs * weights;
      }
    }
    const auto result = compare_matmul(multiply(*run, matrix.view, x, 9), oracle.y, bounds);
    EXPECT_TRUE(result) << result.message;
  }
}

/// Inputs of one product are rotated, those of another with the same inputs are not.
TEST(Linear, products_that_share_inputs_need_not_share_the_rotation) {
  const WeightFormat plain = {Format::kVQ2, Format::kE4M4, Zero::kNone, 32};
  WeightFormat rotated = plain;
  rotated.rotation = 16;
  const RandomMatrix a = random_matrix(plain, 24, 64, Contents::kReal, 41);
  const RandomMatrix b = random_matrix(rotated, 24, 64, Contents::kReal, 42);
  const std::vector<float> x = random_inputs(3, 64, Contents::kReal, 43);
  const auto run = execution(1);
  std::vector<float> of_a(72), of_b(72);
  const LinearProduct products[] = {{of_a, x, 3, &a.view}, {of_b, x, 3, &b.view}};
  ASSERT_TRUE(linear_group(*run, products).ok());
  EXPECT_EQ(of_a, multiply(*run, a.view, x, 3));
  EXPECT_EQ(of_b, multiply(*run, b.view, x, 3));
}

class CheckLinear : public ::testing::Test {
 protected:
  std::unique_ptr<Execution> run_ = execution(1);
  RandomMatrix matrix_ = random_matrix(kU4, 4, 64, Contents::kReal, 11);
  MatrixView view_ = matrix_.view;

  void SetUp() override { ASSERT_TRUE(check_linear(*run_, view_).ok()); }

  void expect_refused(const std::string& part) {
    const Status status = check_linear(*run_, view_);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, "linear.unsupported");
    EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
    EXPECT_EQ(status.error().message.find('\n'), std::string::npos);
  }
};

TEST_F(CheckLinear, names_what_is_supported) {
  view_.format.zero = Zero::kU16;
  expect_refused(to_string(view_.format));
  expect_refused("u4 scale f16 zero u8, u4 scale bf16 zero u8");
  expect_refused("e2m1 scale e8m0, e2m1 scale e4m3, e4m3 scale f32, e4m3 scale bf16");
  expect_refused("e4m3 scale e8m0, nf4 scale f32, nfl2 scale e4m4");
  expect_refused("nfl5 scale f16, vq2 scale e4m4");
  expect_refused("vq4 scale f16, bf16, f16, f32");
}

TEST_F(CheckLinear, takes_offsets_of_any_type) {
  const std::vector<std::byte> offsets(32);
  for (const Zero zero : {Zero::kF16, Zero::kBF16, Zero::kF32}) {
    view_.format.zero = zero;
    view_.zeros = std::span(offsets).first(static_cast<std::size_t>(8 * zero_bytes(zero)));
    EXPECT_TRUE(check_linear(*run_, view_).ok()) << to_string(view_.format);
  }
}

TEST_F(CheckLinear, refuses_sizes_that_disagree) {
  view_.codes = view_.codes.first(view_.codes.size() - 1);
  expect_refused("expected 128 bytes of codes, found 127");
  view_ = matrix_.view;
  view_.scales = view_.scales.first(14);
  expect_refused("expected 16 bytes of scales, found 14");
  view_ = matrix_.view;
  view_.zeros = {};
  expect_refused("expected 8 bytes of zero points, found 0");
  view_ = matrix_.view;
  view_.format = kMxfp4;
  view_.scales = view_.scales.first(8);
  expect_refused("expected 0 bytes of zero points, found 8");
}

TEST_F(CheckLinear, refuses_shapes_that_no_kernel_reads) {
  view_.cols = 60;
  expect_refused("multiples of 8");
  view_.cols = 0;
  expect_refused("at least one");
  view_ = matrix_.view;
  view_.rows = -1;
  expect_refused("at least one");
  view_ = matrix_.view;
  view_.format.group_size = 12;
  expect_refused("multiple of 8");
  view_.format.group_size = -32;
  expect_refused("multiple of 8");
}

TEST_F(CheckLinear, refuses_vectors_without_a_codebook_and_runs_that_do_not_divide) {
  matrix_ =
      random_matrix({Format::kVQ2, Format::kE4M4, Zero::kNone, 32, 16}, 4, 64, Contents::kReal, 12);
  view_ = matrix_.view;
  ASSERT_TRUE(check_linear(*run_, view_).ok());
  view_.codebook = {};
  expect_refused("codebook: expected 1024 values for 2 bits, found 0");
  view_ = matrix_.view;
  for (const int64_t size : {256, 32, -16}) {
    view_.format.rotation = size;
    expect_refused("expected a rotation of 16, 64 or 256 inputs");
  }
  view_ = matrix_.view;
  std::vector<uint32_t> order(64);
  view_.input_order = order;
  expect_refused("no input order");
}

TEST_F(CheckLinear, does_not_wrap_around_on_absurd_sizes) {
  // rows * row_bytes is 2^64 + 128, which wraps to the 128 bytes that are there.
  view_.rows = (int64_t{1} << 59) + 4;
  expect_refused("codes");
  view_.rows = 4;
  view_.cols = int64_t{1} << 62;
  expect_refused("codes");
}

TEST_F(CheckLinear, refuses_an_input_order_that_points_outside) {
  std::vector<uint32_t> order(64);
  view_.input_order = order;
  EXPECT_TRUE(check_linear(*run_, view_).ok());
  order[63] = 64;
  expect_refused("expected inputs below 64, found 64");
  order[63] = 0;
  view_.input_order = std::span(order).first(63);
  expect_refused("found 63");
}

TEST(Execution, passes_on_what_select_kernels_says) {
  const auto unknown = Execution::create({.num_threads = 1, .isa = "sse9"});
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, "isa.unknown");
  auto scalar = Execution::create({.num_threads = 1, .isa = "scalar"});
  ASSERT_TRUE(scalar.ok());
  EXPECT_EQ((*scalar)->kernels().name, "scalar");
  EXPECT_EQ((*scalar)->pool().size(), 1);
}

TEST(Execution, buffers_are_aligned_and_large_enough) {
  const auto run = execution(1);
  for (const int64_t floats : {1, 100, 1000000, 10}) {
    for (const auto slot : {Execution::Slot::kActivations, Execution::Slot::kScratch}) {
      float* buffer = run->floats(slot, floats);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer) % 64, 0);
      buffer[0] = 1;
      buffer[floats - 1] = 2;
    }
  }
}

}  // namespace
}  // namespace subbyte
