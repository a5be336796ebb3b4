// The CPU for single operations, held to numbers that are worked out here.
#include "subbyte/products.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "subbyte/quantize.h"

namespace {

using namespace subbyte;

std::span<const std::byte> bytes_of(const auto& numbers) {
  return std::as_bytes(std::span(numbers));
}

/// Numbers between -1 and 1 without a pattern.
std::vector<float> some_numbers(int64_t count, uint32_t seed) {
  std::vector<float> numbers(count);
  for (float& number : numbers) {
    seed = seed * 1664525u + 1013904223u;
    number = static_cast<float>(seed >> 8) / static_cast<float>(1 << 23) - 1;
  }
  return numbers;
}

constexpr int64_t kRows = 48;
constexpr int64_t kCols = 128;

class CpuQuantize : public ::testing::TestWithParam<std::string> {};

TEST_P(CpuQuantize, makes_matrices_that_the_cpu_multiplies) {
  const auto weights = some_numbers(kRows * kCols, 1);
  const Matrix w =
      quantize_weights(weights, kRows, kCols, {.format = GetParam()}, make_threads(2)).value();
  std::vector<double> numbers(weights.size());
  ASSERT_TRUE(w.dequantize(0, numbers).ok());
  double noise = 0;
  double signal = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    noise += (numbers[i] - weights[i]) * (numbers[i] - weights[i]);
    signal += double{weights[i]} * weights[i];
  }
  // Half a step of 2^bits levels between -1 and 1, beside a variance of 1/3, with room for scales;
  // e4m3 has three bits of a mantissa, so that each number is off by 2^-4 of itself at most.
  const Format element = w.view.format.element;
  const double most = element == Format::kE4M3 ? 1.0 / 256 : 8 * std::pow(4.0, -bits(element));
  EXPECT_LT(noise / signal, most) << to_string(w.view.format);

  constexpr int64_t kM = 3;
  const auto x = some_numbers(kM * kCols, 2);
  const auto bias = some_numbers(kRows, 3);
  std::vector<float> y(kM * kRows);
  Cpu cpu = Cpu::open({.num_threads = 2}).value();
  ASSERT_TRUE(cpu.check(w.view).ok()) << to_string(cpu.check(w.view).error());
  ASSERT_TRUE(cpu.linear(cpu.prepare(w).value(), x, y, kM, bias).ok());
  for (int64_t m = 0; m < kM; ++m) {
    for (int64_t n = 0; n < kRows; ++n) {
      double sum = bias[n];
      for (int64_t k = 0; k < kCols; ++k) sum += numbers[n * kCols + k] * x[m * kCols + k];
      ASSERT_NEAR(y[m * kRows + n], sum, 1e-3) << m << " " << n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(all, CpuQuantize, ::testing::ValuesIn(weight_quantizations()),
                         [](const auto& test) {
                           std::string text = test.param;
                           std::ranges::replace(text, '-', '_');
                           return text;
                         });

TEST(CpuProducts, several_at_once_are_the_same_bits_as_alone) {
  const auto weights = some_numbers(2 * kRows * kCols, 4);
  Cpu cpu = Cpu::open().value();
  const auto prepared = [&](std::span<const float> numbers, const WeightQuantization& how) {
    return cpu.prepare(quantize_weights(numbers, kRows, kCols, how).value()).value();
  };
  const PreparedWeights a = prepared(std::span(weights).first(kRows * kCols), {});
  const PreparedWeights b =
      prepared(std::span(weights).last(kRows * kCols), {.format = "gptq", .group_size = 32});
  const auto x = some_numbers(kCols, 5);
  std::vector<float> alone(2 * kRows);
  std::vector<float> together(2 * kRows);
  ASSERT_TRUE(cpu.linear(a, x, std::span(alone).first(kRows)).ok());
  ASSERT_TRUE(cpu.linear(b, x, std::span(alone).last(kRows)).ok());
  const Product products[] = {{.weights = a, .x = x, .y = std::span(together).first(kRows)},
                              {.weights = b, .x = x, .y = std::span(together).last(kRows)}};
  ASSERT_TRUE(cpu.linear(products).ok());
  EXPECT_EQ(alone, together);
}

TEST(CpuProducts, multiply_by_formats_that_no_kernel_reads) {
  // tinygemm's float zero points, (q - 8) * s + z, in groups of 16, and e4m4 elements.
  const auto numbers = some_numbers(kRows * kCols, 6);
  std::vector<uint8_t> codes(kRows * kCols / 2);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(37 * i + i / 7);
  std::vector<uint16_t> scales(kRows * kCols / 16);
  std::vector<uint16_t> zeros(scales.size());
  for (std::size_t i = 0; i < scales.size(); ++i) {
    scales[i] = static_cast<uint16_t>(encode(Format::kBF16, 0.1 + numbers[i] / 16));
    zeros[i] = static_cast<uint16_t>(encode(Format::kBF16, numbers[i]));
  }
  std::vector<uint8_t> bytes(kRows * kCols);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(40 + i % 80);
  const Matrix matrices[] = {Matrix::of({.format = {Format::kI4, Format::kBF16, Zero::kBF16, 16},
                                         .rows = kRows,
                                         .cols = kCols,
                                         .codes = bytes_of(codes),
                                         .scales = bytes_of(scales),
                                         .zeros = bytes_of(zeros)})
                                 .value(),
                             Matrix::of({.format = {Format::kE4M4, Format::kBF16, Zero::kNone, 16},
                                         .rows = kRows,
                                         .cols = kCols,
                                         .codes = bytes_of(bytes),
                                         .scales = bytes_of(scales)})
                                 .value()};
  const auto x = some_numbers(2 * kCols, 7);
  std::vector<float> y(2 * kRows);
  Cpu cpu = Cpu::open().value();
  for (const Matrix& w : matrices) {
    EXPECT_EQ(cpu.check(w.view).error().code, "linear.unsupported") << to_string(w.view.format);
    std::vector<double> weights(kRows * kCols);
    ASSERT_TRUE(w.dequantize(0, weights).ok());
    ASSERT_TRUE(cpu.linear(cpu.prepare(w).value(), x, y, 2).ok());
    for (int64_t i = 0; i < 2 * kRows; ++i) {
      double sum = 0;
      double magnitude = 0;
      for (int64_t k = 0; k < kCols; ++k) {
        const double term = weights[i % kRows * kCols + k] * x[i / kRows * kCols + k];
        sum += term;
        magnitude += std::abs(term);
      }
      ASSERT_NEAR(y[i], sum, 1e-5 * magnitude + 1e-4) << to_string(w.view.format) << " " << i;
    }
  }
}

TEST(CpuProducts, refuses_operands_of_other_sizes) {
  const auto weights = some_numbers(kRows * kCols, 4);
  std::vector<float> y(kRows);
  Cpu cpu = Cpu::open().value();
  const auto prepared = cpu.prepare(quantize_weights(weights, kRows, kCols).value()).value();
  const auto code_of = [](const Status& status) {
    return status.ok() ? "none" : std::string(status.error().code);
  };
  const auto x = some_numbers(kCols, 5);
  EXPECT_EQ(code_of(cpu.linear(prepared, x, y)), "none");
  EXPECT_EQ(code_of(cpu.linear(prepared, std::span(x).first(8), y)), "linear.argument");
  EXPECT_EQ(code_of(cpu.linear(prepared, x, std::span(y).first(8))), "linear.argument");
  EXPECT_EQ(code_of(cpu.linear(prepared, x, y, 0)), "linear.argument");
  EXPECT_EQ(code_of(cpu.linear(prepared, x, y, 1, x)), "linear.argument");
  EXPECT_EQ(code_of(cpu.linear(nullptr, x, y)), "linear.argument");
  const auto refused = [&](const MatrixView& view) {
    EXPECT_EQ(code_of(cpu.check(view)), "matrix.argument");
    EXPECT_EQ(cpu.prepare({view, {}}).error().code, "matrix.argument");
    EXPECT_EQ(code_of(cpu.dequantize(view, Format::kF32, {})), "matrix.argument");
  };
  refused({});
  refused({.format = {Format::kU4, Format::kF32, Zero::kU8, 2}, .rows = 2, .cols = 4});
  refused({.format = {static_cast<Format>(200)}, .rows = 2, .cols = 4});
  EXPECT_EQ(cpu.prepare({{.cols = 8}, {}}).error().code, "linear.unsupported");
  EXPECT_EQ(Cpu::open({.device = "cuda"}).error().code, "device.unsupported");
  EXPECT_EQ(Cpu::open({.activations = Activations::kFp8}).error().code, "device.unsupported");
  EXPECT_EQ(Cpu::open({.isa = "none"}).error().code, "isa.unknown");
  EXPECT_EQ(Cpu::open({.num_threads = -1}).error().code, "execution.options");
  EXPECT_EQ(Cpu::open({.num_threads = 1 << 20}).error().code, "execution.options");
}

TEST(CpuProducts, dequantizes_to_numbers_of_16_bits) {
  const std::array<uint8_t, 4> codes = {0x21, 0x43, 0x65, 0x87};  // 1 2 3 4, 5 6 7 8
  const std::array<float, 4> scales = {0.5f, 2.0f, -1.0f, 0.25f};
  const std::array<uint8_t, 4> zeros = {1, 2, 3, 8};
  const Matrix w = Matrix::of({.format = {Format::kU4, Format::kF32, Zero::kU8, 2},
                               .rows = 2,
                               .cols = 4,
                               .codes = bytes_of(codes),
                               .scales = bytes_of(scales),
                               .zeros = bytes_of(zeros)})
                       .value();
  Cpu cpu = Cpu::open({.isa = "scalar"}).value();
  std::array<uint16_t, 8> bf16{};
  ASSERT_TRUE(cpu.dequantize(w.view, Format::kBF16, std::as_writable_bytes(std::span(bf16))).ok());
  for (std::size_t i = 0; i < 8; ++i) {
    const double expected[] = {0, 0.5, 2, 4, -2, -3, -0.25, 0};
    EXPECT_EQ(decode(Format::kBF16, bf16[i]), expected[i]);
  }
  EXPECT_EQ(cpu.dequantize(w.view, Format::kE4M3, {}).error().code, "blocks.input");
  EXPECT_EQ(cpu.dequantize(w.view, Format::kF32, {}).error().code, "matrix.argument");
}

TEST(CpuBlocks, an_mxfp4_block_has_the_scale_of_its_largest) {
  std::vector<float> x(32, 0.5f);
  x[3] = -12;  // 12 / 6 is 2: the scale is 2^1
  const BlockQuantization blocks = {
      .format = BlockFormat::kMxfp4, .input = Format::kF32, .rows = 1, .cols = 32};
  ASSERT_TRUE(check_block_quantization(blocks).ok());
  ASSERT_EQ(blocks.code_bytes(), 16);
  ASSERT_EQ(blocks.scale_bytes(), 1);
  std::vector<std::byte> codes(16);
  std::vector<std::byte> scales(1);
  Cpu cpu = Cpu::open().value();
  ASSERT_TRUE(cpu.quantize_blocks(blocks, std::as_bytes(std::span(x)), codes, scales).ok());
  EXPECT_EQ(decode(Format::kE8M0, static_cast<uint32_t>(scales[0])), 2);
  EXPECT_EQ(static_cast<uint32_t>(codes[1]) >> 4, encode(Format::kE2M1, -6));
  // 0.25 lies between 0 and 0.5, and goes to the even code, 0.
  EXPECT_EQ(static_cast<uint32_t>(codes[0]), 0u);
  EXPECT_EQ(cpu.quantize_blocks(blocks, {}, codes, scales).error().code, "blocks.buffer");
  EXPECT_EQ(check_block_quantization({.rows = 1, .cols = 31}).error().code, "blocks.shape");
}

}  // namespace
