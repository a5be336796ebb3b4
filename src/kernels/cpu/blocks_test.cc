#include "kernels/cpu/blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/float16.h"
#include "base/random.h"
#include "base/thread_pool.h"
#include "foreign_layouts/flashinfer.h"
#include "support/guarded_bytes.h"
#include "support/random_matrix.h"

namespace subbyte {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr BlockFormat kFormats[] = {BlockFormat::kMxfp8E4M3, BlockFormat::kMxfp8E5M2,
                                    BlockFormat::kMxfp4, BlockFormat::kNvfp4};
constexpr ScaleRule kRules[] = {ScaleRule::kFloor, ScaleRule::kCeil, ScaleRule::kBump175};
constexpr Format kInputs[] = {Format::kF32, Format::kF16, Format::kBF16};

std::vector<const cpu::Kernels*> kernels_of_this_machine() {
  std::vector<const cpu::Kernels*> kernels;
  for (const cpu::Kernels* table : cpu::all_kernels()) {
    if (cpu::select_kernels(table->name).ok()) kernels.push_back(table);
  }
  return kernels;
}

/// Codes of x in the type of the input.
struct Input {
  Format format;
  std::vector<uint32_t> codes;

  double value(std::size_t i) const { return info(format).decode(codes[i]); }
  Bytes bytes() const {
    const std::size_t width = info(format).bits / 8;
    Bytes bytes(codes.size() * width);
    for (std::size_t i = 0; i < codes.size(); ++i) std::memcpy(&bytes[i * width], &codes[i], width);
    return bytes;
  }
};

struct Quantized {
  Bytes codes;
  Bytes scales;
};

Quantized quantize(const BlockQuantization& b, const Input& x, const cpu::Kernels& kernels,
                   int threads = 1) {
  Quantized q{Bytes(b.code_bytes(), 0xA5), Bytes(b.scale_bytes(), 0xA5)};
  ThreadPool pool(threads);
  const Bytes bytes = x.bytes();
  EXPECT_TRUE(
      quantize_blocks(b, bytes.data(), q.codes.data(), q.scales.data(), kernels, pool).ok());
  return q;
}

/// What the head comment of quantized_blocks.h says, by the scalar codec in double precision.
Quantized by_codec(const BlockQuantization& b, const Input& x) {
  const FormatInfo& element = info(b.element());
  const FormatInfo& scale_format = info(b.scale());
  Quantized q{Bytes(b.code_bytes()), Bytes(b.scale_bytes())};
  for (int64_t row = 0; row < b.rows; ++row) {
    for (int64_t g = 0; g < b.cols / b.group(); ++g) {
      const int64_t begin = row * b.cols + g * b.group();
      double amax = 0;
      for (int64_t i = begin; i < begin + b.group(); ++i) {
        const double magnitude = std::fabs(x.value(i));
        if (!(magnitude <= amax)) amax = std::isnan(amax) ? amax : magnitude;
      }
      uint32_t scale = 0;
      if (b.format == BlockFormat::kNvfp4) {
        const float wanted = static_cast<float>(amax) / (6 * b.tensor_scale);
        scale = scale_format.encode(wanted, Rounding::kNearestEven);
      } else {
        scale = shared_exponent(amax, element, b.rule);
      }
      q.scales[scale_byte(b, row, g)] = static_cast<uint8_t>(scale);
      const double factor = scale_format.decode(scale);
      const float inverse = scale == 0 ? 0 : 1 / (static_cast<float>(factor) * b.tensor_scale);
      for (int64_t i = 0; i < b.group(); ++i) {
        const double value = x.value(begin + i);
        double scaled =
            b.format == BlockFormat::kNvfp4 ? static_cast<float>(value) * inverse : value / factor;
        if (std::isnan(amax)) scaled = std::numeric_limits<double>::quiet_NaN();
        if (!std::isnan(scaled)) scaled = std::clamp(scaled, element.min, element.max);
        const uint32_t code = element.encode(scaled, Rounding::kNearestEven);
        const int64_t k = g * b.group() + i;
        const int shift = element.bits == 4 ? static_cast<int>(k % 2) * 4 : 0;
        q.codes[row * b.row_bytes() + k * element.bits / 8] |= static_cast<uint8_t>(code << shift);
      }
    }
  }
  return q;
}

/// Every number of a 16-bit type, each once beside neighbours and once as the amax of its group.
Input all_numbers(Format format) {
  Input x{format, {}};
  for (uint32_t code = 0; code < 65536; ++code) x.codes.push_back(code);
  const FormatInfo& numbers = info(format);
  Random random(7);
  for (uint32_t code = 0; code < 65536; ++code) {
    x.codes.push_back(code);
    const double amax = numbers.decode(code);
    for (int i = 1; i < 32; ++i) {
      const double fraction = std::isfinite(amax) ? amax * (2 * random.uniform() - 1) : 1;
      x.codes.push_back(numbers.encode(fraction, Rounding::kTowardZero));
    }
  }
  return x;
}

Input random_numbers(Format format, int64_t size, uint64_t seed) {
  Input x{format, {}};
  Random random(seed);
  const uint32_t mask = format == Format::kF32 ? ~0u : 0xFFFF;
  for (int64_t i = 0; i < size; ++i) {
    const double value = std::ldexp(random.normal(), static_cast<int>(random.below(40)) - 20);
    x.codes.push_back(info(format).encode(value, Rounding::kNearestEven));
    if (i / 32 % 64 == 5) x.codes.back() = static_cast<uint32_t>(random.next()) & mask;
  }
  return x;
}

TEST(QuantizeBlocks, every_16_bit_number_is_quantized_as_by_the_codec) {
  for (const Format input : {Format::kF16, Format::kBF16}) {
    const Input x = all_numbers(input);
    for (const BlockFormat format : kFormats) {
      for (const ScaleRule rule : kRules) {
        const BlockQuantization b = {.format = format,
                                     .input = input,
                                     .rule = rule,
                                     .rows = static_cast<int64_t>(x.codes.size()) / 4096,
                                     .cols = 4096,
                                     .tensor_scale = 0.37f};
        const Quantized expected = by_codec(b, x);
        for (const cpu::Kernels* kernels : kernels_of_this_machine()) {
          const Quantized found = quantize(b, x, *kernels);
          EXPECT_EQ(found.scales, expected.scales) << kernels->name << info(input).name;
          EXPECT_EQ(found.codes, expected.codes)
              << kernels->name << info(input).name << info(b.element()).name;
        }
      }
    }
  }
}

void expect_as_by_the_codec(const BlockQuantization& b) {
  const Input x = random_numbers(b.input, b.rows * b.cols, 3);
  const Quantized expected = by_codec(b, x);
  for (const cpu::Kernels* kernels : kernels_of_this_machine()) {
    for (const int threads : {1, 3}) {
      const Quantized found = quantize(b, x, *kernels, threads);
      EXPECT_EQ(found.scales, expected.scales) << kernels->name << info(b.input).name;
      EXPECT_EQ(found.codes, expected.codes) << kernels->name << info(b.input).name;
    }
  }
}

TEST(QuantizeBlocks, rounding_to_mxfp8_gives_the_numbers_of_the_codes) {
  for (const Format input : {Format::kF16, Format::kBF16}) {
    const Input x = all_numbers(input);
    BlockQuantization b = {.input = input, .rows = std::ssize(x.codes) / 4096, .cols = 4096};
    const Quantized q = by_codec(b, x);
    std::vector<float> found;
    for (std::size_t i = 0; i < x.codes.size(); ++i) {
      found.push_back(static_cast<float>(x.value(i)));
    }
    round_to_mxfp8(found);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double expected = info(Format::kE8M0).decode(static_cast<uint8_t>(q.scales[i / 32])) *
                              info(Format::kE4M3).decode(static_cast<uint8_t>(q.codes[i]));
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(found[i])) << i;
      } else {
        ASSERT_EQ(found[i], static_cast<float>(expected)) << i;
        ASSERT_EQ(std::signbit(found[i]), std::signbit(expected)) << i;
      }
    }
  }
}

TEST(QuantizeBlocks, random_numbers_by_every_rule_in_every_layout) {
  for (const ScaleLayout layout : {ScaleLayout::kLinear, ScaleLayout::k128x4, ScaleLayout::k8x4}) {
    for (const BlockFormat format : kFormats) {
      for (const Format input : kInputs) {
        for (const ScaleRule rule : kRules) {
          expect_as_by_the_codec({.format = format,
                                  .input = input,
                                  .rule = rule,
                                  .layout = layout,
                                  .rows = 131,
                                  .cols = 416,
                                  .alignment = 128,
                                  .tensor_scale = 0x1p-3f});
        }
      }
    }
  }
}

TEST(QuantizeBlocks, special_values_are_what_the_header_says) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto row = [](std::vector<float> values) {
    Input x{Format::kF32, {}};
    values.resize(32);
    for (const float value : values) x.codes.push_back(std::bit_cast<uint32_t>(value));
    return x;
  };
  const cpu::Kernels& kernels = **cpu::select_kernels();
  const auto run = [&](BlockFormat format, const Input& x) {
    return quantize({.format = format, .input = Format::kF32, .rows = 1, .cols = 32}, x, kernels);
  };
  EXPECT_EQ(run(BlockFormat::kMxfp8E4M3, row({0, -0.0f})).scales[0], 0);
  EXPECT_EQ(run(BlockFormat::kMxfp8E4M3, row({0, -0.0f})).codes[1], 0x80);
  const Quantized infinite = run(BlockFormat::kMxfp8E5M2, row({-inf, 0x1p127f, 1}));
  EXPECT_EQ(infinite.scales[0], 254);
  EXPECT_EQ(infinite.codes[0], 0xFB);  // -57344, not infinity
  EXPECT_EQ(infinite.codes[1], 0x3C);  // 1
  EXPECT_EQ(infinite.codes[2], 0);
  const Quantized not_a_number = run(BlockFormat::kMxfp8E4M3, row({1, -nan}));
  EXPECT_EQ(not_a_number.scales[0], 255);
  EXPECT_EQ(not_a_number.codes, Bytes(32, 0x7F));
  EXPECT_EQ(run(BlockFormat::kMxfp8E5M2, row({nan})).codes, Bytes(32, 0x7E));
  EXPECT_EQ(run(BlockFormat::kMxfp4, row({nan, 1})).codes, Bytes(16, 0));
  const Quantized nv = run(BlockFormat::kNvfp4, row({nan, 1}));
  EXPECT_EQ(nv.scales[0], 0x7F);
  EXPECT_EQ(nv.scales[1], 0);
  // The smallest subnormal: 2^-149 / 2^-127 is below half of e4m3's smallest step, 2^-10.
  EXPECT_EQ(run(BlockFormat::kMxfp8E4M3, row({0x1p-149f})).codes[0], 0);
  EXPECT_EQ(run(BlockFormat::kMxfp8E4M3, row({0x1p-136f})).codes[0], 1);
}

TEST(QuantizeBlocks, scales_lie_where_flashinfer_has_them) {
  // K = 2880 is padded to 2944; 2880 rows have 2944 rows of scales.
  const BlockQuantization b = {
      .layout = ScaleLayout::k128x4, .rows = 2880, .cols = 2880, .alignment = 128};
  EXPECT_EQ(b.padded_cols(), 2944);
  EXPECT_EQ(b.scale_rows(), 2944);
  EXPECT_EQ(b.scale_bytes(), (FlashinferShape{2880, 2880}.scale_bytes()));
  for (int64_t row = 0; row < 2880; ++row) {
    for (int64_t group = 0; group < 90; ++group) {
      ASSERT_EQ(scale_byte(b, row, group), flashinfer_scale_byte(row, group, 2880));
    }
  }
  const BlockQuantization small = {
      .layout = ScaleLayout::k8x4, .rows = 12, .cols = 256, .alignment = 32};
  EXPECT_EQ(small.scale_rows(), 16);
  EXPECT_EQ(scale_byte(small, 9, 5), 3 * 32 + 4 + 1);
}

TEST(QuantizeBlocks, refuses_what_it_cannot_do) {
  const auto code_of = [](const BlockQuantization& b) {
    const Status status = check_block_quantization(b);
    return status.ok() ? std::string_view("ok") : status.error().code;
  };
  EXPECT_EQ(code_of({.rows = 0, .cols = 32}), "ok");
  EXPECT_EQ(code_of({.rows = 1, .cols = 33}), "blocks.shape");
  EXPECT_EQ(code_of({.rows = -1, .cols = 32}), "blocks.shape");
  EXPECT_EQ(code_of({.rows = 1, .cols = 32, .alignment = 48}), "blocks.alignment");
  EXPECT_EQ(code_of({.input = Format::kE4M3, .rows = 1, .cols = 32}), "blocks.input");
  EXPECT_EQ(code_of({.format = BlockFormat::kNvfp4, .rows = 1, .cols = 16, .tensor_scale = 0}),
            "blocks.tensor_scale");
  EXPECT_EQ(*find_scale_rule("bump_175"), ScaleRule::kBump175);
  EXPECT_EQ(find_scale_rule("floor").error().code, "blocks.rule");
}

/// One NaN for all: their bits are not promised.
uint32_t without_payload(uint32_t code, Format number) {
  const FormatInfo& format = info(number);
  return std::isnan(format.decode(code)) ? format.encode(NAN, Rounding::kNearestEven) : code;
}

/// Bits of every weight in `number`, each rounded once from double precision.
std::vector<uint32_t> exact_weights(const MatrixView& matrix, Format number) {
  std::vector<uint32_t> codes(matrix.rows * matrix.cols);
  for (int64_t n = 0; n < matrix.rows; ++n) {
    for (int64_t k = 0; k < matrix.cols; ++k) {
      const int64_t input = matrix.input_order.empty() ? k : matrix.input_order[k];
      codes[n * matrix.cols + input] =
          info(number).encode(weight_at(matrix, n, k), Rounding::kNearestEven);
    }
  }
  return codes;
}

std::vector<uint32_t> dequantized(const MatrixView& matrix, Format number,
                                  const cpu::Kernels& kernels) {
  const std::size_t width = info(number).bits / 8;
  Bytes bytes(matrix.rows * matrix.cols * width, 0xA5);
  ThreadPool pool(2);
  EXPECT_TRUE(dequantize(matrix, number, bytes.data(), kernels, pool).ok());
  std::vector<uint32_t> codes(matrix.rows * matrix.cols);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    std::memcpy(&codes[i], &bytes[i * width], width);
    codes[i] = without_payload(codes[i], number);
  }
  return codes;
}

TEST(Dequantize, every_format_gives_the_weights_of_the_oracle) {
  const std::vector<WeightFormat> formats = {
      {Format::kU2, Format::kF16, Zero::kU8, 64},
      {Format::kU3, Format::kF16, Zero::kU8, 32},
      {Format::kU4, Format::kF16, Zero::kU8, 128},
      {Format::kU5, Format::kF16, Zero::kU8, 0},
      {Format::kI6, Format::kF16, Zero::kNone, 64},
      {Format::kI7, Format::kBF16, Zero::kNone, 32},
      {Format::kU8, Format::kF16, Zero::kU16, 64},
      {Format::kI4, Format::kBF16, Zero::kNone, 32},
      {Format::kE2M1, Format::kE8M0, Zero::kNone, 32},
      {Format::kE2M1, Format::kE4M3, Zero::kNone, 16},
      {Format::kE4M3, Format::kE8M0, Zero::kNone, 32},
      {Format::kE5M2, Format::kE8M0, Zero::kNone, 32},
      {Format::kNF4, Format::kBF16, Zero::kNone, 64},
      {Format::kNFL3, Format::kE4M4, Zero::kNone, 32},
      {Format::kNFL5, Format::kE4M4, Zero::kNone, 32},
      {Format::kVQ2, Format::kE4M4, Zero::kNone, 32},
      {Format::kVQ4, Format::kF16, Zero::kNone, 32},
      {Format::kVQ2, Format::kF16, Zero::kNone, 32, 64},
      {Format::kF16},
      {Format::kBF16},
      {Format::kF32},
  };
  for (const WeightFormat& format : formats) {
    testing::RandomMatrix matrix =
        testing::random_matrix(format, 5, 1472, testing::Contents::kReal, 11);
    for (const Format number : kInputs) {
      const std::vector<uint32_t> expected = exact_weights(matrix.view, number);
      for (const cpu::Kernels* kernels : kernels_of_this_machine()) {
        EXPECT_EQ(dequantized(matrix.view, number, *kernels), expected)
            << to_string(format) << ' ' << info(number).name << ' ' << kernels->name;
      }
    }
  }
}

TEST(Dequantize, dense_weights_have_the_factor_of_the_tensor_and_their_order) {
  std::vector<uint32_t> order(96);
  for (uint32_t k = 0; k < 96; ++k) order[k] = (k * 77 + 5) % 96;
  for (const Format format : {Format::kF32, Format::kF16, Format::kBF16}) {
    testing::RandomMatrix matrix =
        testing::random_matrix({format}, 3, 96, testing::Contents::kExact, 5);
    matrix.view.tensor_scale = 0x1.8p-3;  // by which products are exact
    matrix.view.input_order = order;
    for (const cpu::Kernels* kernels : kernels_of_this_machine()) {
      EXPECT_EQ(dequantized(matrix.view, Format::kF32, *kernels),
                exact_weights(matrix.view, Format::kF32))
          << to_string(matrix.view.format) << ' ' << kernels->name;
    }
  }
}

TEST(Dequantize, all_scale_bytes_of_mxfp4) {
  std::vector<std::byte> codes(256 * 16);
  std::vector<std::byte> scales(256);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(i * 37);
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<std::byte>(i);
  MatrixView matrix;
  matrix.format = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};
  matrix.rows = 4;
  matrix.cols = 64 * 32;
  matrix.codes = codes;
  matrix.scales = scales;
  const std::vector<uint32_t> expected = exact_weights(matrix, Format::kF32);
  for (const cpu::Kernels* kernels : kernels_of_this_machine()) {
    EXPECT_EQ(dequantized(matrix, Format::kF32, *kernels), expected) << kernels->name;
  }
}

TEST(Dequantize, follows_act_order_and_offsets) {
  std::vector<uint32_t> order(256);
  for (uint32_t k = 0; k < 256; ++k) order[k] = (k * 77 + 5) % 256;
  for (const WeightFormat& format : {WeightFormat{Format::kU4, Format::kF16, Zero::kF16, 64},
                                     WeightFormat{Format::kI4, Format::kF32, Zero::kF32, 32}}) {
    testing::RandomMatrix matrix =
        testing::random_matrix(format, 3, 256, testing::Contents::kExact, 5);
    matrix.view.input_order = order;
    for (const cpu::Kernels* kernels : kernels_of_this_machine()) {
      EXPECT_EQ(dequantized(matrix.view, Format::kF32, *kernels),
                exact_weights(matrix.view, Format::kF32))
          << to_string(format) << ' ' << kernels->name;
    }
  }
}

}  // namespace
}  // namespace subbyte
