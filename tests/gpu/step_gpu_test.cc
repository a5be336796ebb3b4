// The kernel of a step, for every kind of weights and both types of activations: its products
// against products in double precision on the same bytes. Norms and attention are those of whole
// models (models_gpu_test, engine_gpu_test).

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gpu_linear.h"
#include "kernels/cuda/planning.h"
#include "kernels/cuda/step/layout.h"
#include "kernels/cuda/step/step.h"
#include "support/compare.h"
#include "two_level_factors.h"

namespace subbyte::testing {
namespace {

using cuda::Number;

struct Shape {
  int64_t rows;
  int64_t cols;
};

/// Strips for a part of the multiprocessors and for several each; rows that end in the middle of a
/// unit, of a pair and of a tile.
std::vector<Shape> shapes_for(const WeightFormat& format) {
  const int64_t group = format.group_size == 0 ? 24 : format.group_size;
  return {{1, group}, {17, 5 * group}, {40, 8704}, {1000, 384}, {272, 1152}, {6000, 1024}};
}

/// The same product three times: stored twice, so that its weights follow themselves in the ring,
/// then added to floats.
class ThreeProducts {
 public:
  ThreeProducts(const PackedOnDevice& weights, Number number, const std::vector<uint16_t>& x,
                int64_t m)
      : weights_(weights),
        number_(number),
        m_(m),
        x_(bytes_of(x)),
        y_(m * rows() * 2),
        again_(m * rows() * 2),
        residual_(ones(m * rows())) {}

  /// False: the kernel does not serve it.
  bool run() {
    const cuda::WeightArguments arguments = weights_.arguments(number_);
    std::optional<cuda::StepLayout> layout(std::in_place, this_device(), static_cast<int>(m_));
    for (int i = 0; i < 3 && layout; ++i) {
      layout = layout->with_product(weights_.format(), arguments);
    }
    if (!layout) return false;
    const std::vector<cuda::StepOperation> operations = {product(arguments, &y_, nullptr),
                                                         product(arguments, &again_, nullptr),
                                                         product(arguments, nullptr, &residual_)};
    const std::vector<cuda::StepWeights> strips(3, layout->weights(weights_.format(), arguments));
    const DeviceBytes device_operations(std::as_bytes(std::span(operations)));
    const DeviceBytes device_weights(std::as_bytes(std::span(strips)));
    const DeviceBytes places(m_ * sizeof(cuda::RowPlace));
    const DeviceBytes counters(256, 0);
    cuda::StepProgram program = {};
    program.operations = reinterpret_cast<const cuda::StepOperation*>(device_operations.data());
    program.weights = reinterpret_cast<const cuda::StepWeights*>(device_weights.data());
    program.num_operations = program.num_products = 3;
    program.m = static_cast<int32_t>(m_);
    program.places = reinterpret_cast<const cuda::RowPlace*>(places.data());
    program.arrived_splits = reinterpret_cast<uint32_t*>(counters.data());
    program.shared = layout->shared();
    const Status status =
        cuda::run_step(program, weights_.format(), number_, this_device(), nullptr);
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
    expect_ok(cudaDeviceSynchronize());
    for (const DeviceBytes* buffer : {&x_, &y_, &again_, &residual_, &counters}) {
      EXPECT_TRUE(buffer->canaries_are_whole());
    }
    return true;
  }

  std::vector<uint16_t> stored(bool again) const { return numbers<uint16_t>(again ? again_ : y_); }
  /// With the one that was there before.
  std::vector<float> added() const { return numbers<float>(residual_); }

 private:
  int64_t rows() const { return weights_.format().rows; }
  static std::vector<std::byte> ones(int64_t count) {
    const std::vector<float> values(count, 1.0f);
    const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
    return {bytes.begin(), bytes.end()};
  }

  template <class T>
  static std::vector<T> numbers(const DeviceBytes& from) {
    const std::vector<std::byte> bytes = from.read();
    std::vector<T> numbers(bytes.size() / sizeof(T));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return numbers;
  }

  cuda::StepOperation product(const cuda::WeightArguments& arguments, const DeviceBytes* y,
                              const DeviceBytes* residual) const {
    cuda::StepOperation operation = {};
    cuda::StepProduct& p = operation.product;
    const cuda::PackedFormat& format = weights_.format();
    p.weights = arguments;
    p.x = {x_.data(), format.cols, cuda::StepInput::Kind::kNumbers, 0, format.cols % 2 == 0};
    p.one_group = cuda::pair_is_one_group(format) ? 1 : 0;
    if (y != nullptr) p.y = y->data();
    p.y_stride = format.rows;
    if (residual != nullptr) p.residual = reinterpret_cast<float*>(residual->data());
    return operation;
  }

  const PackedOnDevice& weights_;
  const Number number_;
  const int64_t m_;
  const DeviceBytes x_;
  const DeviceBytes y_;
  const DeviceBytes again_;
  const DeviceBytes residual_;
};

class GpuStep : public ::testing::TestWithParam<WeightFormat> {
 protected:
  /// Hopper and later; others are told that there is none, and models run as launches.
  void SetUp() override {
    const bool has_kernel = this_device().compute_capability >= 90;
    ASSERT_EQ(cuda::StepLayout::supports(this_device(), 1), has_kernel);
    if (!has_kernel) GTEST_SKIP() << "the kernel of a step needs compute capability 9.0";
  }
};

/// Of products with tables, whose values are rounded to 16 bits; sums of 2^13 products at most, in
/// parts of 2^7 by tensor cores, are some 2^7 additions of binary32, each less than 2^-20 of them.
double bound_of(Number number, double magnitude) {
  return (1.01 * unit_of(number) + 0x1p-13) * magnitude;
}

/// Small integers are exact, in whatever order they are added.
TEST_P(GpuStep, products_are_those_of_the_double_oracle) {
  const WeightFormat format = GetParam();
  const Contents contents = has_table(format) ? Contents::kReal : Contents::kExact;
  uint64_t seed = 7;
  int served = 0;
  int small = 0;
  int small_served = 0;
  for (const Shape& shape : shapes_for(format)) {
    const RandomMatrix matrix = random_matrix(format, shape.rows, shape.cols, contents, ++seed);
    const PackedOnDevice packed(matrix.view);
    for (const int64_t m : {1, 3, 8}) {
      for (const Number number : kNumbers) {
        const bool wide = is_offset(format.zero) && info(format.element).bits == 8;
        if (wide && number == Number::kBF16) continue;  // bf16 has 8 bits: not exact
        const std::vector<uint16_t> x =
            to_numbers(random_inputs(m, shape.cols, contents, ++seed), number);
        const Oracle oracle = multiply_in_double(matrix.view, to_floats(x, number), m);
        ThreeProducts products(packed, number, x, m);
        const bool is_small = m * shape.cols <= 4096;  // always fits into the shared memory
        small += is_small ? 1 : 0;
        if (!products.run()) continue;
        ++served;
        small_served += is_small ? 1 : 0;
        const std::vector<uint16_t> first = products.stored(false);
        const std::vector<uint16_t> second = products.stored(true);
        const std::vector<float> sums = products.added();
        ASSERT_EQ(first, second);
        for (std::size_t i = 0; i < first.size(); ++i) {
          const std::string where = to_string(format) + " " + std::to_string(shape.rows) + " x " +
                                    std::to_string(shape.cols) + " M " + std::to_string(m) +
                                    " element " + std::to_string(i);
          if (!has_table(format)) {
            ASSERT_EQ(first[i], info_of(number).encode(oracle.y[i], Rounding::kNearestEven))
                << where;
            ASSERT_EQ(sums[i], static_cast<float>(1 + oracle.y[i])) << where;
            continue;
          }
          const double bound = bound_of(number, oracle.magnitude[i]);
          const double rounding =
              1.01 * unit_of(number) * (std::fabs(oracle.y[i]) + bound) + 0x1p-25;
          ASSERT_NEAR(to_floats(std::span(&first[i], 1), number)[0], oracle.y[i], bound + rounding)
              << where;
          ASSERT_NEAR(sums[i], 1 + oracle.y[i],
                      bound + 0x1p-23 * (1 + std::fabs(oracle.y[i]) + bound))
              << where;
        }
      }
    }
  }
  EXPECT_GT(served, 6) << to_string(format);
  EXPECT_EQ(small_served, small) << to_string(format);
}

/// y = W2 (W1 x), where the second product reads what all CTAs wrote in the first one.
class Chain {
 public:
  Chain(const PackedOnDevice& first, const PackedOnDevice& second, Number number,
        const std::vector<uint16_t>& x, int64_t m)
      : first_(first),
        second_(second),
        number_(number),
        m_(m),
        x_(bytes_of(x)),
        minus_x_(bytes_of(negative(x))),
        between_(m * first.format().rows * 4, 0),
        y_(m * second.format().rows * 2) {}

  /// The n-th run, of x or of -x: tags go on, as the words are not cleared. False: it is not
  /// served.
  bool run(uint32_t n, bool negated = false) {
    const cuda::WeightArguments arguments[2] = {first_.arguments(number_),
                                                second_.arguments(number_)};
    std::optional<cuda::StepLayout> layout(std::in_place, this_device(), static_cast<int>(m_));
    layout = layout->with_product(first_.format(), arguments[0]);
    if (layout) layout = layout->with_product(second_.format(), arguments[1]);
    if (!layout) return false;
    const int64_t middle = first_.format().rows;
    cuda::StepOperation operations[2] = {operation(first_.format(), arguments[0]),
                                         operation(second_.format(), arguments[1])};
    auto* const words = reinterpret_cast<uint32_t*>(between_.data());
    const uint32_t tag = 1;
    operations[0].product.x = {negated ? minus_x_.data() : x_.data(), first_.format().cols,
                               cuda::StepInput::Kind::kNumbers, 0, first_.format().cols % 2 == 0};
    operations[0].product.result = {words, middle, tag};
    operations[1].product.x = {words, middle, cuda::StepInput::Kind::kTagged, tag, middle % 2 == 0};
    operations[1].product.y = y_.data();
    const cuda::StepWeights weights[2] = {layout->weights(first_.format(), arguments[0]),
                                          layout->weights(second_.format(), arguments[1])};
    const DeviceBytes device_operations(std::as_bytes(std::span(operations)));
    const DeviceBytes device_weights(std::as_bytes(std::span(weights)));
    const DeviceBytes places(m_ * sizeof(cuda::RowPlace));
    cuda::StepProgram program = {};
    program.operations = reinterpret_cast<const cuda::StepOperation*>(device_operations.data());
    program.weights = reinterpret_cast<const cuda::StepWeights*>(device_weights.data());
    program.num_operations = program.num_products = 2;
    program.m = static_cast<int32_t>(m_);
    program.places = reinterpret_cast<const cuda::RowPlace*>(places.data());
    program.shared = layout->shared();
    program.base_tag = n - 1;
    const Status status = cuda::run_step(program, first_.format(), number_, this_device(), nullptr);
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
    expect_ok(cudaDeviceSynchronize());
    EXPECT_TRUE(between_.canaries_are_whole() && y_.canaries_are_whole());
    return true;
  }

  std::vector<float> y() const {
    const std::vector<std::byte> bytes = y_.read();
    std::vector<uint16_t> numbers(bytes.size() / 2);
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return to_floats(numbers, number_);
  }

 private:
  static std::vector<uint16_t> negative(std::vector<uint16_t> x) {
    for (uint16_t& code : x) code ^= 0x8000;
    return x;
  }

  cuda::StepOperation operation(const cuda::PackedFormat& format,
                                const cuda::WeightArguments& arguments) const {
    cuda::StepOperation operation = {};
    cuda::StepProduct& p = operation.product;
    p.weights = arguments;
    p.y_stride = format.rows;
    p.one_group = cuda::pair_is_one_group(format) ? 1 : 0;
    return operation;
  }

  const PackedOnDevice& first_;
  const PackedOnDevice& second_;
  const Number number_;
  const int64_t m_;
  const DeviceBytes x_;
  const DeviceBytes minus_x_;
  const DeviceBytes between_;
  const DeviceBytes y_;
};

/// For each token the largest of |values|, as many times as there are columns.
std::vector<float> largest_of_rows(const std::vector<float>& values, int64_t m, double factor,
                                   double more) {
  const int64_t cols = std::ssize(values) / m;
  std::vector<float> largest(values.size());
  for (int64_t t = 0; t < m; ++t) {
    const auto row = values.begin() + t * cols;
    float most = 0;
    for (int64_t i = 0; i < cols; ++i) most = std::max(most, std::fabs(row[i]));
    std::fill_n(largest.begin() + t * cols, cols, static_cast<float>(factor * most + more));
  }
  return largest;
}

/// Inputs of a product become multiples of 2^-14 of the largest of 128 (off by 2^-15), or numbers
/// of 11 or 8 bits: off by less than two units of the numbers of the largest of the row; between
/// the products they are rounded to 16 bits (2^-17) besides. Sums are off by 2^-13 as in
/// bound_of(), and the result is rounded.
void expect_chain(const WeightFormat& format, const WeightFormat& second_format,
                  int64_t middle_rows, int64_t rows) {
  const int64_t group = format.group_size == 0 ? 64 : format.group_size;
  const int64_t cols = 4 * group;
  const int64_t middle = (middle_rows + group - 1) / group * group;
  uint64_t seed = 70;
  RandomMatrix first = random_matrix(format, middle, cols, Contents::kReal, ++seed);
  first.view.tensor_scale = 0x1p-6;  // or results do not fit into f16
  shrink_two_levels(first);
  RandomMatrix second = random_matrix(second_format, rows, middle, Contents::kReal, ++seed);
  shrink_two_levels(second);
  const PackedOnDevice packed_first(first.view);
  const PackedOnDevice packed_second(second.view);
  int served = 0;
  for (const int64_t m : {1, 4, 5}) {
    for (const Number number : kNumbers) {
      const std::vector<uint16_t> x =
          to_numbers(random_inputs(m, cols, Contents::kReal, ++seed), number);
      Chain chain(packed_first, packed_second, number, x, m);
      if (!chain.run(1)) continue;
      ++served;
      const std::vector<float> y = chain.y();
      ASSERT_TRUE(chain.run(2, true));
      std::vector<float> negated = chain.y();
      for (float& value : negated) value = -value;
      ASSERT_EQ(negated, y);  // nothing is left of the first run
      ASSERT_TRUE(chain.run(3));
      ASSERT_EQ(chain.y(), y);
      const double units = 3 * unit_of(number);
      const std::vector<float> inputs = to_floats(x, number);
      const Oracle between = multiply_in_double(first.view, inputs, m);
      const Oracle off =
          multiply_in_double(first.view, largest_of_rows(inputs, m, units + 0x1p-13, 0), m);
      const double max_off = *std::ranges::max_element(off.magnitude);
      const std::vector<float> y1(between.y.begin(), between.y.end());
      const Oracle oracle = multiply_in_double(second.view, y1, m);
      const Oracle bounds =
          multiply_in_double(second.view, largest_of_rows(y1, m, units + 0x1p-13, max_off), m);
      for (std::size_t i = 0; i < y.size(); ++i) {
        const double bound =
            bounds.magnitude[i] + 1.01 * unit_of(number) * std::fabs(oracle.y[i]) + 0x1p-24;
        ASSERT_NEAR(y[i], oracle.y[i], bound) << to_string(format) << " M " << m << " " << i;
      }
    }
  }
  EXPECT_GT(served, 0) << to_string(format);
}

TEST_P(GpuStep, a_product_reads_what_all_ctas_wrote) {
  expect_chain(GetParam(), GetParam(), 3000, 2200);
}

TEST_P(GpuStep, ctas_without_rows_wait_for_nothing) {
  expect_chain(GetParam(), GetParam(), 200, 500);
}

class GpuStepOfTwoTypes : public GpuStep {};

/// Tiles and superblocks of different sizes follow each other in the ring.
TEST_P(GpuStepOfTwoTypes, a_product_reads_what_another_type_wrote) {
  constexpr WeightFormat kTypes[] = {{Format::kU2, Format::kU4, Zero::kOffsetU4, 16},
                                     {Format::kI3, Format::kI6, Zero::kNone, 16},
                                     {Format::kU4, Format::kU6, Zero::kOffsetU6, 32},
                                     {Format::kU5, Format::kU6, Zero::kOffsetU6, 32},
                                     {Format::kI6, Format::kI8, Zero::kNone, 16}};
  for (const WeightFormat& other : kTypes) {
    expect_chain(GetParam(), other, 1024, 700);
    expect_chain(other, GetParam(), 96, 500);
  }
}

INSTANTIATE_TEST_SUITE_P(
    two_levels, GpuStepOfTwoTypes,
    ::testing::Values(WeightFormat{Format::kU4, Format::kU6, Zero::kOffsetU6, 32},
                      WeightFormat{Format::kI6, Format::kI8, Zero::kNone, 16}));

std::string test_name(const ::testing::TestParamInfo<WeightFormat>& format) {
  std::string text = to_string(format.param);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return !isalnum(c); }, '_');
  return text;
}

INSTANTIATE_TEST_SUITE_P(all, GpuStep, ::testing::ValuesIn(packed_formats()), test_name);

}  // namespace
}  // namespace subbyte::testing
