// The public matrix and its products, held to numbers that are worked out here.
#include "subbyte/matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "subbyte/products.h"
#include "subbyte/quantize.h"

namespace {

using namespace subbyte;

std::span<const std::byte> bytes_of(const auto& numbers) {
  return std::as_bytes(std::span(numbers));
}

/// Two rows of four inputs in u4 with groups of two, scales in f32 and zero points.
struct SmallMatrix {
  std::array<uint8_t, 4> codes = {0x21, 0x43, 0x65, 0x87};  // 1 2 3 4, 5 6 7 8
  std::array<float, 4> scales = {0.5f, 2.0f, -1.0f, 0.25f};
  std::array<uint8_t, 4> zeros = {1, 2, 3, 8};

  MatrixParts parts() const {
    return {.format = {Format::kU4, Format::kF32, Zero::kU8, 2},
            .rows = 2,
            .cols = 4,
            .codes = bytes_of(codes),
            .scales = bytes_of(scales),
            .zeros = bytes_of(zeros)};
  }
};

TEST(PublicMatrix, dequantizes_what_its_bytes_say) {
  const SmallMatrix small;
  const Matrix w = Matrix::of(small.parts()).value();
  std::vector<double> numbers(8);
  ASSERT_TRUE(w.dequantize(0, numbers).ok());
  EXPECT_EQ(numbers, (std::vector<double>{0, 0.5, 2, 4, -2, -3, -0.25, 0}));
  std::vector<float> row(4);
  ASSERT_TRUE(w.dequantize(1, row).ok());
  EXPECT_EQ(row, (std::vector<float>{-2, -3, -0.25f, 0}));
  EXPECT_EQ(to_string(w.format()), "u4 g2 scale f32 zero u8");
  EXPECT_EQ(w.num_bytes(), 4 + 16 + 4);
}

TEST(PublicMatrix, puts_stored_columns_at_their_inputs) {
  const SmallMatrix small;
  const std::array<uint32_t, 4> order = {3, 0, 1, 2};
  MatrixParts parts = small.parts();
  parts.input_order = order;
  std::vector<double> row(4);
  ASSERT_TRUE(Matrix::of(parts).value().dequantize(0, row).ok());
  EXPECT_EQ(row, (std::vector<double>{0.5, 2, 4, 0}));
}

TEST(PublicMatrix, keeps_the_owner_of_its_bytes) {
  auto small = std::make_shared<const SmallMatrix>();
  const std::weak_ptr<const SmallMatrix> watch = small;
  const MatrixParts parts = small->parts();
  auto w = std::make_unique<Matrix>(Matrix::of(parts, std::move(small)).value());
  const Matrix copy = *w;
  w.reset();
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(copy.parts().codes.data(), parts.codes.data());
}

std::string refusal_of(const MatrixParts& parts) {
  const auto made = Matrix::of(parts);
  if (made.ok()) return "none";
  EXPECT_EQ(made.error().code, "matrix.argument");
  return made.error().message;
}

TEST(PublicMatrix, refuses_bytes_that_disagree_with_the_description) {
  const SmallMatrix small;
  const MatrixParts good = small.parts();
  const auto with = [&](auto change) {
    MatrixParts parts = good;
    change(parts);
    return refusal_of(parts);
  };
  EXPECT_EQ(refusal_of(good), "none");
  EXPECT_EQ(with([](auto& p) { p.codes = p.codes.first(3); }),
            "matrix: codes: expected 4 bytes, found 3");
  EXPECT_EQ(with([](auto& p) { p.scales = {}; }), "matrix: scales: expected 16 bytes, found 0");
  EXPECT_EQ(with([](auto& p) {
              p.codes = {static_cast<const std::byte*>(nullptr), 4};
            }),
            "matrix: codes: expected 4 bytes, found 4");
  EXPECT_EQ(with([](auto& p) { p.rows = int64_t{1} << 40; }),
            "matrix: rows and cols: expected up to 2^24, and a column, found 1099511627776 and 4");
  EXPECT_EQ(with([](auto& p) { p.format.group_size = -1; }),
            "matrix: group_size: expected 0 to 2^24, found -1");
  EXPECT_EQ(with([](auto& p) { p.format.scale = Format::kE2M1; }),
            "matrix: scale: expected whole bytes, found e2m1");
  EXPECT_EQ(with([](auto& p) { p.format.element = static_cast<Format>(200); }),
            "matrix: element: expected a format, found 200");
  EXPECT_EQ(with([](auto& p) { p.tensor_scale = std::nan(""); }),
            "matrix: tensor_scale: expected a finite number, found nan");
  const std::array<uint32_t, 4> twice = {0, 1, 1, 3};
  EXPECT_EQ(with([&](auto& p) { p.input_order = twice; }),
            "matrix: input_order: expected every input once, found 1 at column 2");
}

TEST(PublicMatrix, refuses_rows_that_are_not_there) {
  const SmallMatrix small;
  const Matrix w = Matrix::of(small.parts()).value();
  std::vector<float> numbers(8);
  EXPECT_EQ(w.dequantize(1, numbers).error().code, "matrix.argument");
  EXPECT_EQ(w.dequantize(-1, numbers).error().code, "matrix.argument");
  EXPECT_EQ(w.dequantize(0, std::span(numbers).first(7)).error().code, "matrix.argument");
}

TEST(PublicFormat, names_lead_to_formats_and_back) {
  for (int i = 1; i <= static_cast<int>(Format::kNFL5); ++i) {
    const auto format = static_cast<Format>(i);
    EXPECT_EQ(find_format(name(format)), format);
  }
  EXPECT_EQ(find_format("none"), std::nullopt);
  EXPECT_EQ(name(Format::kNone), "none");
  EXPECT_EQ(bits(Format::kE2M1), 4);
  EXPECT_EQ(decode(Format::kE2M1, 0x7), 6);
  EXPECT_EQ(encode(Format::kE2M1, -3.1), 0xDu);
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

class PublicQuantize : public ::testing::TestWithParam<std::string> {};

TEST_P(PublicQuantize, makes_matrices_that_the_cpu_multiplies) {
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
  const Format element = w.format().element;
  const double most = element == Format::kE4M3 ? 1.0 / 256 : 8 * std::pow(4.0, -bits(element));
  EXPECT_LT(noise / signal, most) << to_string(w.format());

  constexpr int64_t kM = 3;
  const auto x = some_numbers(kM * kCols, 2);
  const auto bias = some_numbers(kRows, 3);
  std::vector<float> y(kM * kRows);
  Cpu cpu = Cpu::open({.num_threads = 2}).value();
  ASSERT_TRUE(cpu.check(w).ok()) << to_string(cpu.check(w).error());
  ASSERT_TRUE(cpu.linear(w, x, y, kM, bias).ok());
  for (int64_t m = 0; m < kM; ++m) {
    for (int64_t n = 0; n < kRows; ++n) {
      double sum = bias[n];
      for (int64_t k = 0; k < kCols; ++k) sum += numbers[n * kCols + k] * x[m * kCols + k];
      ASSERT_NEAR(y[m * kRows + n], sum, 1e-3) << m << " " << n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(all, PublicQuantize, ::testing::ValuesIn(weight_quantizations()),
                         [](const auto& test) {
                           std::string text = test.param;
                           std::ranges::replace(text, '-', '_');
                           return text;
                         });

TEST(PublicQuantizeErrors, names_what_a_format_lacks) {
  const auto weights = some_numbers(kRows * kCols, 1);
  const auto code_of = [&](const WeightQuantization& how, int64_t cols = kCols) {
    const auto made = quantize_weights(weights, kRows, cols, how);
    return made.ok() ? "none" : std::string(made.error().code);
  };
  EXPECT_EQ(code_of({.format = "none"}), "quantize.format");
  EXPECT_EQ(code_of({.format = "awq", .bits = 3}), "quantize.bits");
  EXPECT_EQ(code_of({.format = "gptq", .group_size = 48}), "quantize.group_size");
  EXPECT_EQ(code_of({.format = "gptq", .group_size = 1024}), "quantize.group_size");
  EXPECT_EQ(code_of({.format = "mxfp4", .symmetric = false}), "quantize.symmetry");
  EXPECT_EQ(code_of({.format = "awq"}, kCols + 1), "quantize.shape");
  EXPECT_EQ(code_of({.format = "awq"}, -1), "quantize.shape");
}

TEST(PublicProducts, several_at_once_are_the_same_bits_as_alone) {
  const auto weights = some_numbers(2 * kRows * kCols, 4);
  const Matrix a = quantize_weights(std::span(weights).first(kRows * kCols), kRows, kCols).value();
  const Matrix b = quantize_weights(std::span(weights).last(kRows * kCols), kRows, kCols,
                                    {.format = "gptq", .group_size = 32})
                       .value();
  const auto x = some_numbers(kCols, 5);
  std::vector<float> alone(2 * kRows);
  std::vector<float> together(2 * kRows);
  Cpu cpu = Cpu::open().value();
  ASSERT_TRUE(cpu.linear(a, x, std::span(alone).first(kRows)).ok());
  ASSERT_TRUE(cpu.linear(b, x, std::span(alone).last(kRows)).ok());
  const Product products[] = {{.weights = a, .x = x, .y = std::span(together).first(kRows)},
                              {.weights = b, .x = x, .y = std::span(together).last(kRows)}};
  ASSERT_TRUE(cpu.linear(products).ok());
  EXPECT_EQ(alone, together);
}

TEST(PublicProducts, multiply_by_formats_that_no_kernel_reads) {
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
    EXPECT_EQ(cpu.check(w).error().code, "linear.unsupported") << to_string(w.format());
    std::vector<double> weights(kRows * kCols);
    ASSERT_TRUE(w.dequantize(0, weights).ok());
    ASSERT_TRUE(cpu.linear(w, x, y, 2).ok());
    for (int64_t i = 0; i < 2 * kRows; ++i) {
      double sum = 0;
      double magnitude = 0;
      for (int64_t k = 0; k < kCols; ++k) {
        const double term = weights[i % kRows * kCols + k] * x[i / kRows * kCols + k];
        sum += term;
        magnitude += std::abs(term);
      }
      ASSERT_NEAR(y[i], sum, 1e-5 * magnitude + 1e-4) << to_string(w.format()) << " " << i;
    }
  }
}

TEST(PublicProducts, refuses_operands_of_other_sizes) {
  const auto weights = some_numbers(kRows * kCols, 4);
  const Matrix w = quantize_weights(weights, kRows, kCols).value();
  std::vector<float> y(kRows);
  Cpu cpu = Cpu::open().value();
  const auto code_of = [](const Status& status) {
    return status.ok() ? "none" : std::string(status.error().code);
  };
  const auto x = some_numbers(kCols, 5);
  EXPECT_EQ(code_of(cpu.linear(w, x, y)), "none");
  EXPECT_EQ(code_of(cpu.linear(w, std::span(x).first(8), y)), "linear.argument");
  EXPECT_EQ(code_of(cpu.linear(w, x, std::span(y).first(8))), "linear.argument");
  EXPECT_EQ(code_of(cpu.linear(w, x, y, 0)), "linear.argument");
  EXPECT_EQ(code_of(cpu.linear(w, x, y, 1, x)), "linear.argument");
  EXPECT_EQ(Cpu::open({.device = "cuda"}).error().code, "device.unsupported");
  EXPECT_EQ(Cpu::open({.isa = "none"}).error().code, "isa.unknown");
  EXPECT_EQ(Cpu::open({.num_threads = -1}).error().code, "execution.options");
  EXPECT_EQ(Cpu::open({.num_threads = 1 << 20}).error().code, "execution.options");
}

TEST(PublicProducts, dequantizes_to_numbers_of_16_bits) {
  const SmallMatrix small;
  const Matrix w = Matrix::of(small.parts()).value();
  Cpu cpu = Cpu::open({.isa = "scalar"}).value();
  std::array<uint16_t, 8> bf16{};
  ASSERT_TRUE(cpu.dequantize(w, Format::kBF16, std::as_writable_bytes(std::span(bf16))).ok());
  for (std::size_t i = 0; i < 8; ++i) {
    const double expected[] = {0, 0.5, 2, 4, -2, -3, -0.25, 0};
    EXPECT_EQ(decode(Format::kBF16, bf16[i]), expected[i]);
  }
  EXPECT_EQ(cpu.dequantize(w, Format::kE4M3, {}).error().code, "blocks.input");
  EXPECT_EQ(cpu.dequantize(w, Format::kF32, {}).error().code, "matrix.argument");
}

TEST(PublicBlocks, an_mxfp4_block_has_the_scale_of_its_largest) {
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
  ASSERT_TRUE(quantize_blocks(cpu, blocks, std::as_bytes(std::span(x)), codes, scales).ok());
  EXPECT_EQ(decode(Format::kE8M0, static_cast<uint32_t>(scales[0])), 2);
  EXPECT_EQ(static_cast<uint32_t>(codes[1]) >> 4, encode(Format::kE2M1, -6));
  // 0.25 lies between 0 and 0.5, and goes to the even code, 0.
  EXPECT_EQ(static_cast<uint32_t>(codes[0]), 0u);
  EXPECT_EQ(quantize_blocks(cpu, blocks, {}, codes, scales).error().code, "blocks.buffer");
  EXPECT_EQ(check_block_quantization({.rows = 1, .cols = 31}).error().code, "blocks.shape");
}

}  // namespace
