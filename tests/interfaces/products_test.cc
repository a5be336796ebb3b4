// C, C++ and the engine multiply to the same bits on the CPU: 20 shapes, 10 formats, M = 1, 7, 64
// and 300. Python and torch are compared with C in python/tests/torch/with_module, and GPUs in
// tests/gpu/device_gpu_test.cc, with the same formats and shapes.

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/random.h"
#include "kernels/cpu/linear.h"
#include "subbyte/products.h"
#include "support/c_handles.h"
#include "support/normal_numbers.h"
#include "support/products_of_interfaces.h"
#include "support/random_matrix.h"

namespace subbyte::testing {
namespace {

constexpr int kThreads = 2;

std::vector<float> multiply_in_c(const CMatrix& matrix, std::span<const float> x, int64_t m,
                                 int64_t rows) {
  std::vector<float> y(static_cast<std::size_t>(m * rows));
  auto product = c_struct<subbyte_product>();
  product.x = x.data();
  product.y = y.data();
  product.m = m;
  product.number = SUBBYTE_F32;
  EXPECT_EQ(subbyte_multiply(matrix.get(), &product), SUBBYTE_OK) << subbyte_last_error();
  return y;
}

std::vector<float> multiply_in_cpp(Cpu& cpu, const PreparedWeights& weights,
                                   std::span<const float> x, int64_t m, int64_t rows) {
  std::vector<float> y(static_cast<std::size_t>(m * rows));
  EXPECT_TRUE(cpu.linear(weights, x, y, m).ok());
  return y;
}

/// As a model's weights are loaded and multiplied.
std::vector<float> multiply_in_the_engine(Execution& execution, const MatrixView& loaded,
                                          std::span<const float> x, int64_t m) {
  std::vector<float> y(static_cast<std::size_t>(m * loaded.rows));
  const LinearProduct product = {.y = y, .x = x, .m = m, .weights = &loaded};
  EXPECT_TRUE(linear_group(execution, {&product, 1}).ok());
  return y;
}

/// Equal to the last bit.
void expect_same_bits(const std::vector<float>& found, const std::vector<float>& expected,
                      const char* interface) {
  ASSERT_EQ(found.size(), expected.size()) << interface;
  EXPECT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)), 0)
      << interface;
}

TEST(Interfaces, multiply_to_the_same_bits_on_the_cpu) {
  const CContext context = c_context(kThreads);
  auto execution = Execution::create({.num_threads = kThreads});
  ASSERT_TRUE(execution.ok());
  Cpu cpu = Cpu::open({.device = "cpu", .num_threads = kThreads}).value();
  int refused = 0;
  for (const WeightFormat& format : kProductFormats) {
    for (const ProductShape& shape : product_shapes()) {
      const RandomMatrix weights =
          random_matrix(format, shape.rows, shape.cols, Contents::kReal, 11);
      const MatrixView& view = weights.view;
      const CMatrix in_c = c_matrix(context, c_weights(view));
      const PreparedWeights in_cpp = cpu.prepare(Matrix::of(view).value()).value();
      const bool is_loaded = check_linear(**execution, view).ok();
      if (!is_loaded) ++refused;
      for (const int64_t m : kProductM) {
        SCOPED_TRACE(to_string(format) + " " + std::to_string(shape.rows) + " x " +
                     std::to_string(shape.cols) + " m " + std::to_string(m));
        Random random(12);
        std::vector<float> x(static_cast<std::size_t>(m * shape.cols));
        for (float& number : x) number = normal_number(random);
        const std::vector<float> y = multiply_in_c(in_c, x, m, shape.rows);
        expect_same_bits(multiply_in_cpp(cpu, in_cpp, x, m, shape.rows), y, "C++");
        if (is_loaded) {
          expect_same_bits(multiply_in_the_engine(**execution, view, x, m), y, "engine");
        }
      }
    }
  }
  // No model has float zero points: its loader refuses them.
  EXPECT_EQ(refused, std::ssize(product_shapes()));
}

}  // namespace
}  // namespace subbyte::testing
