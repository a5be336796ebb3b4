// The shaders of this folder, run on the host, against the formats' decode() and the oracle in
// double precision. No Apple machine is needed, and none was seen (docs/kernels/metal.md).

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "kernels/metal/host_arguments.h"
#include "support/metal_kernels.h"
#include "support/random_matrix.h"

namespace subbyte::apple {
namespace {

using gpu::Number;
using gpu::PackedFormat;
using gpu::RowOrder;
using testing::Contents;
using testing::MetalCall;
using testing::random_matrix;
using testing::RandomMatrix;
using enum Format;

constexpr Number kNumbers[] = {Number::kF16, Number::kBF16};
constexpr uint16_t kPoison = 0x7e5a;  // NaN in both types

const FormatInfo& type_of(Number number) {
  return info(number == Number::kF16 ? kF16 : kBF16);
}
uint16_t number_of(double value, Number number) {
  return static_cast<uint16_t>(type_of(number).encode(value, Rounding::kNearestEven));
}

/// A packed matrix and a call with all its buffers.
struct Problem {
  PackedFormat format;
  std::vector<std::byte> packed;
  Arguments arguments;
  std::vector<uint16_t> codebook;
  std::vector<uint16_t> y;
  MetalCall call;

  Problem(const MatrixView& matrix, Number number, int tokens,
          RowOrder order = RowOrder::kNatural) {
    format = *gpu::packed_format(matrix, order);
    packed.resize(format.bytes);
    gpu::pack_on_host(packed.data(), matrix, format);
    arguments = arguments_of(format, matrix.tensor_scale, tokens);
    const std::array<uint16_t, 32> values = gpu::codebook_of(format, number);
    codebook.assign(values.begin(), values.end());
    call.codes = packed.data();
    call.scales = packed.data() + format.scales_begin;
    // A section that the matrix lacks must not be read.
    call.zeros = format.zero_bytes == 0 ? nullptr : packed.data() + format.zeros_begin;
    call.gather =
        format.gather_begin == format.bytes ? nullptr : packed.data() + format.gather_begin;
    call.codebook = codebook.data();
    call.table_bytes = table_bytes();
  }

  /// y of `count` numbers, the rest of the buffer unwritten.
  const std::vector<uint16_t>& run(const std::string& name, std::size_t count) {
    constexpr std::size_t kMore = 5;
    y.assign(count + kMore, kPoison);
    call.arguments = &arguments;
    call.y = y.data();
    call.sums_bytes = sums_bytes(call.simdgroups);
    EXPECT_TRUE(testing::run_metal_kernel(name, call)) << name;
    for (std::size_t i = count; i < y.size(); ++i) EXPECT_EQ(y[i], kPoison) << name;
    y.resize(count);
    return y;
  }

  const std::vector<uint16_t>& dequantize(Number number) {
    call.simdgroups = 2;
    call.threadgroups = static_cast<int>((format.strips * format.tiles + 1) / 2);
    arguments.y_stride = arguments.cols;
    return run(dequantize_kernel(format, number), format.rows * format.cols);
  }

  const std::vector<uint16_t>& multiply(Number number, const std::vector<uint16_t>& x,
                                        int simdgroups) {
    call.simdgroups = simdgroups;
    call.threadgroups = static_cast<int>(format.strips);
    call.x = x.data();
    return run(small_m_kernel(format, number, arguments.tokens), format.rows * arguments.tokens);
  }
};

/// One format for each decoder and kind of scale, zero point and group.
std::vector<WeightFormat> formats() {
  return {
      {kU2, kF16, Zero::kU8, 32},      {kU3, kBF16, Zero::kU8, 64},
      {kU4, kF16, Zero::kU8, 128},     {kU4, kF32, Zero::kNone, 0},
      {kU8, kF16, Zero::kU16, 32},     {kI2, kF16, Zero::kNone, 64},
      {kI3, kF16, Zero::kNone, 32},    {kI4, kBF16, Zero::kNone, 128},
      {kI8, kF16, Zero::kNone, 0},     {kE2M1, kE8M0, Zero::kNone, 32},
      {kE2M1, kE4M3, Zero::kNone, 16}, {kNF4, kF32, Zero::kNone, 64},
      {kNFL4, kE4M4, Zero::kNone, 32}, {kNFL2, kE4M4, Zero::kNone, 32},
      {kNFL3, kE4M4, Zero::kNone, 32}, {kNFL5, kE4M4, Zero::kNone, 32},
      {kU4, kF16, Zero::kU8, 16},
  };
}

double zero_of(const MatrixView& matrix, int64_t row, int64_t col) {
  const int width = zero_bytes(matrix.format.zero);
  uint32_t zero = 0;
  const int64_t group = row * matrix.groups() + col / matrix.group_size();
  if (width != 0) std::memcpy(&zero, matrix.zeros.data() + group * width, width);
  return zero;
}

double scale_of(const MatrixView& matrix, int64_t row, int64_t col) {
  const FormatInfo& scale = info(matrix.format.scale);
  uint32_t code = 0;
  const int64_t group = row * matrix.groups() + col / matrix.group_size();
  std::memcpy(&code, matrix.scales.data() + group * (scale.bits / 8), scale.bits / 8);
  return scale.decode(code);
}

/// The element less its zero point as the kernels have it: values of codebooks are rounded.
double element_of(const MatrixView& matrix, int64_t row, int64_t col, Number number) {
  const FormatInfo& element = info(matrix.format.element);
  const double value = element.decode(code_at(matrix, row, col));
  const bool is_codebook = matrix.format.element >= kNF4;
  if (is_codebook) return type_of(number).decode(number_of(value, number));
  return value - zero_of(matrix, row, col);
}

/// Subnormal results may be flushed, and are here.
bool same_number(uint16_t found, uint16_t expected, Number number) {
  if (found == expected) return true;
  const uint16_t exponent = number == Number::kF16 ? 0x7c00 : 0x7f80;
  return (expected & exponent) == 0 && (found & 0x7fff) == 0;
}

TEST(MetalKernels, are_as_many_as_decoders_types_and_uses) {
  // 9 decoders, 2 types; dequantize, one token, up to 8 tokens.
  EXPECT_EQ(testing::metal_kernel_count(), 9 * 2 * 3);
  EXPECT_FALSE(testing::run_metal_kernel("small_m1_integers5_f16", {}));
}

// Bit for bit: the product of element and scale in float, rounded to the type.
TEST(MetalKernels, none_takes_offsets_for_zero_points) {
  gpu::PackedFormat format;
  format.source = {kI4, kF16, Zero::kF16, 32};
  for (const int tokens : {1, 8}) {
    EXPECT_FALSE(testing::run_metal_kernel(small_m_kernel(format, Number::kF16, tokens), {}));
  }
  EXPECT_FALSE(testing::run_metal_kernel(dequantize_kernel(format, Number::kF16), {}));
}

TEST(MetalKernels, dequantize_as_the_formats_do) {
  std::set<std::string> seen;
  for (const WeightFormat& format : formats()) {
    for (const Number number : kNumbers) {
      RandomMatrix matrix = random_matrix(format, 19, 200, Contents::kReal, 11);
      matrix.view.tensor_scale = format.scale == kE4M3 ? 0.5 : 1;
      Problem problem(matrix.view, number, 1);
      const std::vector<uint16_t>& y = problem.dequantize(number);
      seen.insert(dequantize_kernel(problem.format, number));
      for (int64_t row = 0; row < 19; ++row) {
        for (int64_t col = 0; col < 200; ++col) {
          const float scale =
              static_cast<float>(scale_of(matrix.view, row, col) * matrix.view.tensor_scale);
          const float weight =
              static_cast<float>(element_of(matrix.view, row, col, number)) * scale;
          ASSERT_TRUE(same_number(y[row * 200 + col], number_of(weight, number), number))
              << to_string(format) << " row " << row << " col " << col << ": " << weight
              << ", found " << type_of(number).decode(y[row * 200 + col]);
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), 18) << "a kernel was not run";
}

/// Every code with every zero point: a row of one group for each zero point, scale 1.
void expect_every_zero_point(Format element, Zero zero, Number number, int largest) {
  RandomMatrix matrix =
      random_matrix({element, kF16, zero, 256}, largest + 1, 256, Contents::kReal, 1);
  const int bits = info(element).bits;
  for (int row = 0; row <= largest; ++row) {
    const uint16_t one = 0x3c00;
    std::memcpy(matrix.scales->data() + row * 2, &one, 2);
    std::memcpy(matrix.zeros->data() + row * zero_bytes(zero), &row, zero_bytes(zero));
    for (int col = 0; col < 256; ++col) {
      std::byte& byte = matrix.codes->data()[row * 32 * bits + col * bits / 8];
      const int shift = col * bits % 8;
      const int mask = ((1 << bits) - 1) << shift;
      byte = (byte & std::byte(~mask & 0xff)) | std::byte((col << shift) & mask);
    }
  }
  Problem problem(matrix.view, number, 1);
  const std::vector<uint16_t>& y = problem.dequantize(number);
  for (int row = 0; row <= largest; ++row) {
    for (int col = 0; col < 256; ++col) {
      const int code = col % (1 << bits);
      ASSERT_EQ(y[row * 256 + col], number_of(code - row, number)) << code << " - " << row;
    }
  }
}

TEST(MetalKernels, decode_every_code_less_every_zero_point) {
  for (const Number number : kNumbers) {
    expect_every_zero_point(kU2, Zero::kU8, number, 4);
    expect_every_zero_point(kU4, Zero::kU8, number, 16);
    expect_every_zero_point(kU8, Zero::kU16, number, 256);
  }
}

/// Every scale of one byte, and E2M1's every code with each.
TEST(MetalKernels, read_every_scale_of_a_byte) {
  for (const Format scale : {kE8M0, kE4M3, kE4M4}) {
    RandomMatrix matrix =
        random_matrix({kE2M1, scale, Zero::kNone, 32}, 256, 32, Contents::kReal, 1);
    for (int row = 0; row < 256; ++row) {
      matrix.scales->data()[row] = std::byte(row);
      for (int i = 0; i < 16; ++i) {
        matrix.codes->data()[row * 16 + i] = std::byte((2 * i) % 16 | (2 * i + 1) % 16 << 4);
      }
    }
    Problem problem(matrix.view, Number::kBF16, 1);
    const std::vector<uint16_t>& y = problem.dequantize(Number::kBF16);
    for (int row = 0; row < 256; ++row) {
      for (int col = 0; col < 32; ++col) {
        const uint16_t found = y[row * 32 + col];
        const double expected = weight_at(matrix.view, row, col);
        if (std::isnan(expected)) {
          EXPECT_TRUE(std::isnan(info(kBF16).decode(found))) << info(scale).name << " " << row;
          continue;
        }
        // A scale times kGain = 1/4 that is below 2^-126 may be zero: codes 0 to 2 of E8M0.
        if (scale == kE8M0 && row < 3 && (found & 0x7fff) == 0) continue;
        ASSERT_EQ(found, number_of(expected, Number::kBF16))
            << info(scale).name << " code " << row << ", element " << col % 16;
      }
    }
  }
}

/// Scales of f16: all that are subnormal, and every 61st of the others.
TEST(MetalKernels, read_scales_of_f16_that_are_subnormal) {
  RandomMatrix matrix =
      random_matrix({kI2, kF16, Zero::kNone, 32}, 32, 64 * 32, Contents::kReal, 1);
  std::fill_n(matrix.codes->data(), matrix.codes->size(), std::byte{0xff});  // 3 - 2
  for (int i = 0; i < 2048; ++i) {
    const auto code = static_cast<uint16_t>(i < 1024 ? i : 61 * i);
    std::memcpy(matrix.scales->data() + 2 * i, &code, 2);
  }
  Problem problem(matrix.view, Number::kBF16, 1);
  const std::vector<uint16_t>& y = problem.dequantize(Number::kBF16);
  for (int i = 0; i < 2048; ++i) {
    const double expected = weight_at(matrix.view, i / 64, i % 64 * 32);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(info(kBF16).decode(y[32 * i])));
    } else {
      EXPECT_EQ(y[32 * i], number_of(expected, Number::kBF16)) << expected;
    }
  }
}

/// Numbers of the type, without subnormals of f16, which Metal may flush.
std::vector<uint16_t> inputs(std::size_t count, Contents contents, Number number, uint64_t seed,
                             std::vector<float>* values) {
  *values = testing::random_inputs(1, static_cast<int64_t>(count), contents, seed);
  std::vector<uint16_t> bits;
  for (float& value : *values) {
    if (std::abs(value) < 0x1p-14F) value = 0;
    bits.push_back(number_of(value, number));
    value = static_cast<float>(type_of(number).decode(bits.back()));
  }
  return bits;
}

// Roundings on the longest way of a product to the result, each at most 2^-24 of a number that the
// sum of magnitudes bounds: 16 FMAs of a tile (4 steps of 4 inputs), an FMA with the scale for each
// group, the scale's product with tensor_scale, 2 shuffles, one addition for each SIMD-group. Then
// one rounding to the type, and where that is f16 a flush of what is below 2^-14. A codebook's
// values are rounded to the type before.
double bound_of(const Problem& problem, Number number, double y, double magnitude) {
  const double groups = static_cast<double>(problem.format.tiles) * problem.format.groups_per_tile;
  const double sums = 16 + groups + 1 + 2 + problem.call.simdgroups;
  const double unit = number == Number::kF16 ? 0x1p-11 : 0x1p-8;
  const bool is_codebook = problem.format.decoder == gpu::DecoderKind::kCodebook;
  const double before = (sums * 0x1p-24 + (is_codebook ? unit : 0)) * magnitude * (1 + 0x1p-10);
  return before + unit * (std::abs(y) + before) + 0x1p-14;
}

void expect_product(const MatrixView& matrix, Number number, int tokens, int simdgroups,
                    RowOrder order = RowOrder::kNatural) {
  Problem problem(matrix, number, tokens, order);
  std::vector<float> x;
  const auto bits = inputs(tokens * matrix.cols, Contents::kReal, number, 5 + tokens, &x);
  const std::vector<uint16_t>& y = problem.multiply(number, bits, simdgroups);
  const testing::Oracle oracle = testing::multiply_in_double(matrix, x, tokens);
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double found = type_of(number).decode(y[i]);
    const double bound = bound_of(problem, number, oracle.y[i], oracle.magnitude[i]);
    ASSERT_LE(std::abs(found - oracle.y[i]), bound)
        << to_string(matrix.format) << ", " << tokens << " tokens, element " << i << ": expected "
        << oracle.y[i] << ", found " << found;
  }
}

TEST(MetalKernels, multiply_within_the_bound) {
  for (const WeightFormat& format : formats()) {
    for (const Number number : kNumbers) {
      const RandomMatrix matrix = random_matrix(format, 19, 328, Contents::kReal, 3);
      expect_product(matrix.view, number, 1, 2);
      expect_product(matrix.view, number, 3, 1);
    }
  }
}

TEST(MetalKernels, multiply_any_shape) {
  const WeightFormat format = {kU4, kF16, Zero::kU8, 64};
  for (const int64_t rows : {1, 16, 33}) {
    for (const int64_t cols : {1, 63, 64, 130}) {
      const RandomMatrix matrix = random_matrix(format, rows, cols, Contents::kReal, rows + cols);
      expect_product(matrix.view, Number::kF16, 1, 3);
    }
  }
  const RandomMatrix matrix = random_matrix(format, 7, 100, Contents::kReal, 2);
  for (int tokens = 2; tokens <= kMaxTokens; ++tokens) {
    expect_product(matrix.view, Number::kBF16, tokens, 2);
  }
}

TEST(MetalKernels, multiply_rows_in_any_order_and_columns_of_act_order) {
  RandomMatrix matrix = random_matrix({kE2M1, kE8M0, Zero::kNone, 32}, 22, 96, Contents::kReal, 4);
  expect_product(matrix.view, Number::kBF16, 1, 1, RowOrder::kGateAboveUp);
  expect_product(matrix.view, Number::kBF16, 2, 1, RowOrder::kGateUpPairs);
  std::vector<uint32_t> order(96);
  for (uint32_t k = 0; k < 96; ++k) order[k] = k * 35 % 96;
  matrix.view.input_order = order;
  expect_product(matrix.view, Number::kF16, 2, 2);
}

// Small integers and powers of two: no rounding anywhere but the last, to the type.
TEST(MetalKernels, multiply_exactly_what_is_exact) {
  for (const WeightFormat& format : formats()) {
    if (format.element >= kNF4) continue;
    for (const Number number : kNumbers) {
      const RandomMatrix matrix = random_matrix(format, 17, 128, Contents::kExact, 6);
      Problem problem(matrix.view, number, 2);
      std::vector<float> x;
      const auto bits = inputs(2 * 128, Contents::kExact, number, 7, &x);
      const std::vector<uint16_t>& y = problem.multiply(number, bits, 2);
      const testing::Oracle oracle = testing::multiply_in_double(matrix.view, x, 2);
      for (std::size_t i = 0; i < y.size(); ++i) {
        ASSERT_EQ(y[i], number_of(oracle.y[i] + 0.0, number))
            << to_string(format) << " element " << i << " " << oracle.y[i];
      }
    }
  }
}

/// A byte of the codes changed: the products that have it change, and no others.
TEST(MetalKernels, notice_a_code_that_is_wrong) {
  const RandomMatrix matrix =
      random_matrix({kU4, kF16, Zero::kNone, 64}, 16, 64, Contents::kExact, 8);
  Problem problem(matrix.view, Number::kF16, 1);
  const std::vector<uint16_t> x(64, 0x3c00);
  const std::vector<uint16_t> good = problem.multiply(Number::kF16, x, 1);
  problem.packed[0] ^= std::byte{0x01};  // lane 0: row 0
  const std::vector<uint16_t> bad = problem.multiply(Number::kF16, x, 1);
  EXPECT_NE(good[0], bad[0]);
  EXPECT_TRUE(std::equal(good.begin() + 1, good.end(), bad.begin() + 1));
}

}  // namespace
}  // namespace subbyte::apple
