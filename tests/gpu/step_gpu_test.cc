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
    program.arrived = reinterpret_cast<uint32_t*>(counters.data());
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
    p.linear.weights = arguments;
    p.linear.x = x_.data();
    p.linear.x_stride = format.cols;
    p.linear.m = static_cast<int32_t>(m_);
    p.linear.is_aligned = format.cols % 8 == 0;
    p.one_group = cuda::pair_is_one_group(format) ? 1 : 0;
    p.sum_cols = p.one_group != 0 ? 128 : 64 / format.groups_per_tile;
    if (y != nullptr) p.linear.y = y->data();
    p.linear.y_stride = format.rows;
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

class GpuStep : public ::testing::TestWithParam<WeightFormat> {};

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
        if (!products.run()) continue;
        ++served;
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
}

std::string test_name(const ::testing::TestParamInfo<WeightFormat>& format) {
  std::string text = to_string(format.param);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return !isalnum(c); }, '_');
  return text;
}

INSTANTIATE_TEST_SUITE_P(all, GpuStep, ::testing::ValuesIn(packed_formats()), test_name);

}  // namespace
}  // namespace subbyte::testing
