// Products on the CPU with each epilogue against sums in double precision.

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "support/c_handles.h"
#include "support/random_matrix.h"

namespace subbyte::testing {
namespace {

const WeightFormat kInt4 = {Format::kU4, Format::kF16, Zero::kU8, 32};

/// Numbers of a type, from floats and back.
std::vector<std::byte> to_numbers(const std::vector<float>& values, int32_t number) {
  const FormatInfo& format = info(static_cast<Format>(number));
  const std::size_t width = format.bits / 8;
  std::vector<std::byte> bytes(values.size() * width);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const uint32_t code = format.encode(values[i], Rounding::kNearestEven);
    std::memcpy(&bytes[i * width], &code, width);
  }
  return bytes;
}

double number_at(const std::vector<std::byte>& bytes, int64_t i, int32_t number) {
  const FormatInfo& format = info(static_cast<Format>(number));
  uint32_t code = 0;
  std::memcpy(&code, &bytes[i * format.bits / 8], format.bits / 8);
  return format.decode(code);
}

double gelu(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double silu(double x, double alpha = 1) {
  return x / (1 + std::exp(-alpha * x));
}

/// Value of an output whose sums with bias are `sums` of a row.
double activated(int32_t activation, int32_t order, const std::vector<double>& sums, int64_t n) {
  if (activation == SUBBYTE_LINEAR) return sums[n];
  if (activation == SUBBYTE_RELU) return std::max(sums[n], 0.0);
  if (activation == SUBBYTE_GELU) return gelu(sums[n]);
  const bool pairs = order == SUBBYTE_ROWS_GATE_UP_PAIRS;
  double gate = sums[pairs ? 2 * n : n];
  double up = sums[pairs ? 2 * n + 1 : n + std::ssize(sums) / 2];
  if (activation == SUBBYTE_SILU_GATE) return silu(gate) * up;
  if (activation == SUBBYTE_GELU_GATE) return gelu(gate) * up;
  gate = std::min(gate, 7.0);
  up = std::clamp(up, -7.0, 7.0);
  return silu(gate, 1.702) * (up + 1);
}

struct Case {
  int32_t number = SUBBYTE_F32;
  int32_t activation = SUBBYTE_LINEAR;
  int32_t order = SUBBYTE_ROWS_NATURAL;
  bool has_bias = true;
  bool has_residual = true;
  int64_t batch = 1;
  int64_t spread = 0;  // numbers between rows and, three times as many, between matrices
};

/// Contents are exact, so that sums have no rounding: what is left is that of the activation in
/// float32 and of the result.
void expect_product(const Case& c) {
  SCOPED_TRACE("number " + std::to_string(c.number) + " activation " +
               std::to_string(c.activation) + " order " + std::to_string(c.order));
  constexpr int64_t kRows = 24, kCols = 64, kM = 3;
  const int64_t outputs = c.activation >= SUBBYTE_SILU_GATE ? kRows / 2 : kRows;
  const CContext context = c_context();
  RandomMatrix random = random_matrix(kInt4, kRows, kCols, Contents::kExact, 5);
  random.view.tensor_scale = 0x1p-6;  // so that gates are met on both sides of their bends
  subbyte_weights w = c_weights(random.view);
  w.row_order = c.order;
  const CMatrix matrix = c_matrix(context, w);
  const int64_t x_stride = kCols + c.spread, y_stride = outputs + c.spread;
  const int64_t x_batch = kM * x_stride + 3 * c.spread, y_batch = kM * y_stride + 3 * c.spread;
  std::vector<float> x = random_inputs(c.batch * x_batch, 1, Contents::kExact, 6);
  std::vector<float> bias = random_inputs(1, kRows, Contents::kExact, 7);
  std::vector<float> residual = random_inputs(c.batch * y_batch, 1, Contents::kExact, 8);
  const auto x_bytes = to_numbers(x, c.number), bias_bytes = to_numbers(bias, c.number);
  const auto residual_bytes = to_numbers(residual, c.number);
  std::vector<std::byte> y(residual_bytes.size());
  auto product = c_struct<subbyte_product>();
  product.x = x_bytes.data();
  product.y = y.data();
  product.bias = c.has_bias ? bias_bytes.data() : nullptr;
  product.residual = c.has_residual ? residual_bytes.data() : nullptr;
  product.m = kM;
  product.batch = c.batch;
  product.number = c.number;
  product.activation = c.activation;
  if (c.spread > 0) {
    product.x_stride = x_stride;
    product.y_stride = product.residual_stride = y_stride;
    product.x_batch_stride = x_batch;
    product.y_batch_stride = product.residual_batch_stride = y_batch;
  }
  ASSERT_EQ(subbyte_multiply(matrix.get(), &product), SUBBYTE_OK) << subbyte_last_error();
  const double unit = c.number == SUBBYTE_F32   ? 0x1p-24
                      : c.number == SUBBYTE_F16 ? 0x1p-11
                                                : 0x1p-8;
  for (int64_t i = 0; i < c.batch * kM; ++i) {
    const int64_t x_at = i / kM * x_batch + i % kM * x_stride;
    const int64_t y_at = i / kM * y_batch + i % kM * y_stride;
    std::vector<double> sums(kRows);
    for (int64_t n = 0; n < kRows; ++n) {
      if (c.has_bias) sums[n] = bias[n];
      for (int64_t k = 0; k < kCols; ++k) sums[n] += weight_at(random.view, n, k) * x[x_at + k];
    }
    for (int64_t n = 0; n < outputs; ++n) {
      const double value = activated(c.activation, c.order, sums, n);
      const double expected = value + (c.has_residual ? residual[y_at + n] : 0);
      const double bound = unit * std::fabs(expected) + 0x1p-20 * (std::fabs(value) + 1);
      ASSERT_NEAR(number_at(y, y_at + n, c.number), expected, bound) << i << ' ' << n;
    }
  }
}

TEST(CProducts, have_every_epilogue_in_every_number) {
  for (const int32_t number : {SUBBYTE_F32, SUBBYTE_F16, SUBBYTE_BF16}) {
    for (const int32_t activation : {SUBBYTE_LINEAR, SUBBYTE_RELU, SUBBYTE_GELU}) {
      expect_product({number, activation});
      expect_product({number, activation, SUBBYTE_ROWS_NATURAL, false, false});
    }
    for (const int32_t activation : {SUBBYTE_SILU_GATE, SUBBYTE_GELU_GATE, SUBBYTE_CLAMPED_GATE}) {
      for (const int32_t order : {SUBBYTE_ROWS_GATE_ABOVE_UP, SUBBYTE_ROWS_GATE_UP_PAIRS}) {
        expect_product({number, activation, order});
      }
    }
  }
}

TEST(CProducts, have_a_batch_and_strides) {
  for (const int32_t number : {SUBBYTE_F32, SUBBYTE_BF16}) {
    for (const int64_t spread : {0, 5}) {
      expect_product({number, SUBBYTE_LINEAR, SUBBYTE_ROWS_NATURAL, true, false, 3, spread});
      expect_product({number, SUBBYTE_GELU, SUBBYTE_ROWS_NATURAL, true, true, 2, spread});
      expect_product(
          {number, SUBBYTE_SILU_GATE, SUBBYTE_ROWS_GATE_ABOVE_UP, false, true, 2, spread});
    }
  }
}

TEST(CProducts, take_float_zero_points_and_formats_without_a_kernel) {
  const CContext context = c_context();
  for (const WeightFormat& format :
       {WeightFormat{Format::kI4, Format::kBF16, Zero::kBF16, 32},
        WeightFormat{Format::kU4, Format::kF16, Zero::kF16, 0},
        WeightFormat{Format::kI4, Format::kF32, Zero::kF32, 32}, WeightFormat{Format::kF32},
        WeightFormat{Format::kU6, Format::kF32, Zero::kU8, 12}}) {
    const int64_t cols = format.group_size == 12 ? 60 : 64;
    RandomMatrix random = random_matrix(format, 9, cols, Contents::kExact, 5);
    random.view.tensor_scale = 0.5;
    const CMatrix matrix = c_matrix(context, c_weights(random.view));
    const std::vector<float> x = random_inputs(2, cols, Contents::kExact, 6);
    std::vector<float> y(2 * 9);
    auto product = c_struct<subbyte_product>();
    product.x = x.data();
    product.y = y.data();
    product.m = 2;
    product.number = SUBBYTE_F32;
    ASSERT_EQ(subbyte_multiply(matrix.get(), &product), SUBBYTE_OK) << subbyte_last_error();
    for (int64_t i = 0; i < 18; ++i) {
      double sum = 0;
      for (int64_t k = 0; k < cols; ++k) {
        sum += weight_at(random.view, i % 9, k) * x[i / 9 * cols + k];
      }
      EXPECT_EQ(y[i], sum) << to_string(format);
    }
  }
}

/// A product of one row that may be changed.
struct Small {
  CContext context = c_context();
  RandomMatrix random = random_matrix(kInt4, 8, 64, Contents::kExact, 5);
  CMatrix matrix = c_matrix(context, c_weights(random.view));
  std::vector<float> x = random_inputs(1, 64, Contents::kExact, 6);
  std::vector<float> y = std::vector<float>(8);
  subbyte_product product = c_struct<subbyte_product>();

  Small() {
    product.x = x.data();
    product.y = y.data();
    product.m = 1;
    product.number = SUBBYTE_F32;
  }
};

TEST(CProducts, refuse_what_is_none) {
  Small s;
  const auto code = [&](auto change) {
    subbyte_product product = s.product;
    change(product);
    return code_of(subbyte_multiply(s.matrix.get(), &product));
  };
  EXPECT_EQ(code([](auto&) {}), "ok");
  EXPECT_EQ(code([](auto& p) { p.x = nullptr; }), "c.null");
  EXPECT_EQ(code([](auto& p) { p.y = nullptr; }), "c.null");
  EXPECT_EQ(code([](auto& p) { p.m = -1; }), "c.argument");
  EXPECT_EQ(code([](auto& p) { p.m = int64_t{1} << 62; }), "c.argument");
  EXPECT_EQ(code([](auto& p) { p.batch = -1; }), "c.argument");
  EXPECT_EQ(code([](auto& p) { p.number = 0; }), "c.argument");
  EXPECT_EQ(code([](auto& p) { p.number = SUBBYTE_U4; }), "c.argument");
  EXPECT_EQ(code([](auto& p) { p.activation = 6; }), "c.argument");
  EXPECT_EQ(code([](auto& p) { p.activation = SUBBYTE_SILU_GATE; }), "c.argument");
  EXPECT_NE(std::string(subbyte_last_error()).find("row_order"), std::string::npos);
  EXPECT_EQ(code([](auto& p) { p.m = 2, p.x_stride = 63; }), "c.argument");
  EXPECT_EQ(code([](auto& p) { p.m = 2, p.y_stride = 7; }), "c.argument");
  EXPECT_EQ(code([](auto& p) { p.batch = 2, p.y_batch_stride = 7; }), "c.argument");
  EXPECT_EQ(code([](auto& p) { p.m = 0, p.x = nullptr, p.y = nullptr; }), "ok");
  expect_nulls_refused("multiply", &subbyte_multiply, {}, {s.matrix.get(), &s.product});
  expect_nulls_refused("reserve", &subbyte_product_reserve, {}, {s.matrix.get(), &s.product});
  EXPECT_EQ(subbyte_product_reserve(s.matrix.get(), &s.product), SUBBYTE_OK);
}

TEST(CProducts, may_write_where_they_read) {
  Small s;
  std::vector<float> expected(8);
  subbyte_product product = s.product;
  product.y = expected.data();
  ASSERT_EQ(subbyte_multiply(s.matrix.get(), &product), SUBBYTE_OK);
  product.y = s.x.data();
  ASSERT_EQ(subbyte_multiply(s.matrix.get(), &product), SUBBYTE_OK);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), s.x.begin()));
}

TEST(CProducts, of_threads_are_those_of_one) {
  Small s;
  ASSERT_EQ(subbyte_multiply(s.matrix.get(), &s.product), SUBBYTE_OK);
  std::vector<std::thread> threads;
  std::vector<std::vector<float>> results(8, std::vector<float>(8));
  std::vector<int> failures(8);
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const CContext own = c_context(1);  // and matrices of two contexts at once
      const CMatrix matrix = c_matrix(own, c_weights(s.random.view));
      for (int call = 0; call < 50; ++call) {
        subbyte_product product = s.product;
        product.y = results[i].data();
        const bool is_own = (call + i) % 2 == 0;
        failures[i] += subbyte_multiply(is_own ? matrix.get() : s.matrix.get(), &product) != 0;
        product.activation = 17;
        failures[i] += subbyte_multiply(s.matrix.get(), &product) != SUBBYTE_ARGUMENT;
        failures[i] += std::strcmp(subbyte_last_error_code(), "c.argument") != 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(failures[i], 0);
    EXPECT_EQ(results[i], s.y);
  }
}

TEST(CProducts, of_ten_thousand_calls_keep_no_memory) {
  Small s;
  std::size_t before = 0;
  for (int call = 0; call < 11000; ++call) {
    const CMatrix matrix = c_matrix(s.context, c_weights(s.random.view));
    subbyte_product product = s.product;
    product.activation = call % 2 == 0 ? SUBBYTE_LINEAR : SUBBYTE_GELU;
    ASSERT_EQ(subbyte_multiply(matrix.get(), &product), SUBBYTE_OK);
    product.number = 0;
    ASSERT_EQ(subbyte_multiply(matrix.get(), &product), SUBBYTE_ARGUMENT);
    if (call == 1000) before = mallinfo2().uordblks;
  }
  EXPECT_LE(mallinfo2().uordblks, before + 4096);
}

}  // namespace
}  // namespace subbyte::testing
