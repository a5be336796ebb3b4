// Quantizing to blocks and dequantizing on a GPU against the CPU, bit by bit.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "base/thread_pool.h"
#include "device_bytes.h"
#include "kernels/cpu/blocks.h"
#include "kernels/cuda/quantize/dequantize.h"
#include "kernels/cuda/quantize/quantize.h"
#include "kernels/gpu/packed_weights.h"
#include "support/random_matrix.h"

namespace subbyte {
namespace {

using testing::DeviceBytes;

constexpr BlockFormat kFormats[] = {BlockFormat::kMxfp8E4M3, BlockFormat::kMxfp8E5M2,
                                    BlockFormat::kMxfp4, BlockFormat::kNvfp4};
constexpr ScaleRule kRules[] = {ScaleRule::kFloor, ScaleRule::kCeil, ScaleRule::kBump175};
constexpr ScaleLayout kLayouts[] = {ScaleLayout::kLinear, ScaleLayout::k128x4, ScaleLayout::k8x4};

/// Every code of a 16-bit type, beside its neighbours and as the amax of a group.
std::vector<std::byte> all_numbers(Format format, int64_t groups_of) {
  std::vector<uint16_t> codes;
  Random random(7);
  for (uint32_t code = 0; code < 65536; ++code) codes.push_back(static_cast<uint16_t>(code));
  const FormatInfo& numbers = info(format);
  for (uint32_t code = 0; code < 65536; ++code) {
    const double amax = numbers.decode(code);
    codes.push_back(static_cast<uint16_t>(code));
    for (int64_t i = 1; i < groups_of; ++i) {
      const double fraction = std::isfinite(amax) ? amax * (2 * random.uniform() - 1) : 1;
      codes.push_back(static_cast<uint16_t>(numbers.encode(fraction, Rounding::kTowardZero)));
    }
  }
  std::vector<std::byte> bytes(codes.size() * 2);
  std::memcpy(bytes.data(), codes.data(), bytes.size());
  return bytes;
}

std::vector<std::byte> random_floats(int64_t size) {
  std::vector<std::byte> bytes(size * 4);
  Random random(9);
  for (int64_t i = 0; i < size; ++i) {
    auto value =
        static_cast<float>(std::ldexp(random.normal(), static_cast<int>(random.below(60)) - 30));
    if (i / 32 % 64 == 5) {  // any bits: subnormals, infinities, NaN
      const auto bits = static_cast<uint32_t>(random.next());
      std::memcpy(&value, &bits, 4);
    }
    std::memcpy(&bytes[i * 4], &value, 4);
  }
  return bytes;
}

void expect_same_as_cpu(const BlockQuantization& b, std::span<const std::byte> x) {
  std::vector<std::byte> codes(b.code_bytes());
  std::vector<std::byte> scales(b.scale_bytes());
  ThreadPool pool(4);
  ASSERT_TRUE(
      cpu::quantize_blocks(b, x.data(), codes.data(), scales.data(), **cpu::select_kernels(), pool)
          .ok());
  const DeviceBytes device_x(x);
  const DeviceBytes device_codes(codes.size());
  const DeviceBytes device_scales(scales.size());
  const Status status =
      cuda::quantize_blocks(b, device_x.data(), device_codes.data(), device_scales.data(), nullptr);
  ASSERT_TRUE(status.ok()) << status.error().message;
  testing::expect_ok(cudaDeviceSynchronize());
  const auto name = info(b.element()).name;
  EXPECT_TRUE(device_codes.read() == codes) << name << ' ' << info(b.input).name;
  EXPECT_TRUE(device_scales.read() == scales) << name << ' ' << info(b.input).name;
  EXPECT_TRUE(device_codes.canaries_are_whole() && device_scales.canaries_are_whole());
}

TEST(GpuBlocks, every_16_bit_number_is_quantized_as_on_the_cpu) {
  for (const Format input : {Format::kF16, Format::kBF16}) {
    const std::vector<std::byte> x = all_numbers(input, 32);
    for (const BlockFormat format : kFormats) {
      for (const ScaleRule rule : kRules) {
        expect_same_as_cpu({.format = format,
                            .input = input,
                            .rule = rule,
                            .rows = static_cast<int64_t>(x.size()) / 2 / 4096,
                            .cols = 4096,
                            .tensor_scale = 0.37f},
                           x);
      }
    }
  }
}

TEST(GpuBlocks, every_16_bit_number_is_rounded_to_mxfp8_as_on_the_cpu) {
  for (const Format input : {Format::kF16, Format::kBF16}) {
    const std::vector<std::byte> x = all_numbers(input, 32);
    const int64_t count = std::ssize(x) / 2;
    const auto code_at = [](const std::vector<std::byte>& bytes, int64_t i) {
      uint16_t code = 0;
      std::memcpy(&code, &bytes[i * 2], 2);
      return code;
    };
    std::vector<float> expected;
    for (int64_t i = 0; i < count; ++i) {
      expected.push_back(static_cast<float>(info(input).decode(code_at(x, i))));
    }
    round_to_mxfp8(expected);
    const DeviceBytes device(x);
    cuda::run_round_to_mxfp8({device.data(), device.data(), count,
                              input == Format::kF16 ? Element::kF16 : Element::kBF16},
                             nullptr);
    testing::expect_ok(cudaDeviceSynchronize());
    EXPECT_TRUE(device.canaries_are_whole());
    const std::vector<std::byte> found = device.read();
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t code = info(input).encode(expected[i], Rounding::kNearestEven);
      if (std::isnan(expected[i])) {
        ASSERT_TRUE(std::isnan(info(input).decode(code_at(found, i)))) << i;
      } else {
        ASSERT_EQ(code_at(found, i), code) << i << ' ' << expected[i];
      }
    }
  }
}

TEST(GpuBlocks, layouts_padding_and_shapes_are_those_of_the_cpu) {
  const std::vector<std::byte> x = random_floats(131 * 9216);
  for (const BlockFormat format : kFormats) {
    for (const ScaleLayout layout : kLayouts) {
      for (const Format input : {Format::kF32, Format::kBF16, Format::kF16}) {
        for (const int64_t cols : {32, 416, 2880, 9216}) {
          for (const int64_t rows : {1, 12, 131}) {
            const std::size_t bytes = rows * cols * info(input).bits / 8;
            expect_same_as_cpu({.format = format,
                                .input = input,
                                .layout = layout,
                                .rows = rows,
                                .cols = cols,
                                .alignment = 128,
                                .tensor_scale = 3},
                               std::span(x).first(bytes));
          }
        }
      }
    }
  }
}

const std::vector<WeightFormat>& weight_formats() {
  static const std::vector<WeightFormat> formats = {
      {Format::kU2, Format::kF16, Zero::kU8, 64},
      {Format::kU3, Format::kF16, Zero::kU8, 32},
      {Format::kU4, Format::kF16, Zero::kU8, 128},
      {Format::kU8, Format::kF16, Zero::kU16, 64},
      {Format::kI4, Format::kBF16, Zero::kNone, 0},
      {Format::kU4, Format::kBF16, Zero::kBF16, 64},
      {Format::kI8, Format::kF32, Zero::kNone, 16},
      {Format::kE2M1, Format::kE8M0, Zero::kNone, 32},
      {Format::kE2M1, Format::kE4M3, Zero::kNone, 16},
      {Format::kNF4, Format::kBF16, Zero::kNone, 64},
      {Format::kNFL2, Format::kE4M4, Zero::kNone, 32},
      {Format::kNFL3, Format::kE4M4, Zero::kNone, 32},
      {Format::kNFL5, Format::kE4M4, Zero::kNone, 32},
  };
  return formats;
}

constexpr Element kNumbers[] = {Element::kF32, Element::kF16, Element::kBF16};

Format format_of(Element number) {
  return number == Element::kF32   ? Format::kF32
         : number == Element::kF16 ? Format::kF16
                                   : Format::kBF16;
}

std::vector<std::byte> on_cpu(const MatrixView& matrix, Element number) {
  std::vector<std::byte> out(matrix.rows * matrix.cols * element_bytes(number));
  ThreadPool pool(4);
  EXPECT_TRUE(
      cpu::dequantize(matrix, format_of(number), out.data(), **cpu::select_kernels(), pool).ok());
  return out;
}

/// With one NaN for all.
std::vector<uint32_t> numbers_of(const std::vector<std::byte>& bytes, Element number) {
  const FormatInfo& format = info(format_of(number));
  const std::size_t width = element_bytes(number);
  std::vector<uint32_t> codes(bytes.size() / width);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    std::memcpy(&codes[i], &bytes[i * width], width);
    if (std::isnan(format.decode(codes[i]))) codes[i] = 0x7FFFFFFF;
  }
  return codes;
}

TEST(GpuBlocks, canonical_matrices_are_dequantized_as_on_the_cpu) {
  std::vector<WeightFormat> formats = weight_formats();
  formats.push_back({Format::kE4M3, Format::kE8M0, Zero::kNone, 32});
  formats.push_back({Format::kE5M2, Format::kE8M0, Zero::kNone, 32});
  formats.push_back({Format::kU5, Format::kF16, Zero::kU8, 64});
  formats.push_back({Format::kI7, Format::kF16, Zero::kNone, 64});
  formats.push_back({Format::kU4, Format::kU6, Zero::kOffsetU6, 32});
  formats.push_back({Format::kU2, Format::kU4, Zero::kOffsetU4, 16});
  formats.push_back({Format::kI6, Format::kI8, Zero::kNone, 16});
  formats.push_back({Format::kI3, Format::kI6, Zero::kNone, 16});
  formats.push_back({Format::kIQ4, Format::kI6, Zero::kNone, 32});
  for (const WeightFormat& format : formats) {
    for (const Element number : kNumbers) {
      testing::RandomMatrix matrix =
          testing::random_matrix(format, 37, 1472, testing::Contents::kReal, 3);
      matrix.view.tensor_scale = 0.3;
      const DeviceBytes codes(matrix.view.codes);
      const DeviceBytes scales(matrix.view.scales);
      const DeviceBytes zeros(matrix.view.zeros);
      MatrixView view = matrix.view;
      view.codes = {codes.data(), codes.size()};
      view.scales = {scales.data(), scales.size()};
      view.zeros = {zeros.data(), zeros.size()};
      const std::vector<std::byte> expected = on_cpu(matrix.view, number);
      const DeviceBytes out(expected.size());
      const Status status = cuda::dequantize(view, number, out.data(), nullptr);
      ASSERT_TRUE(status.ok()) << status.error().message;
      testing::expect_ok(cudaDeviceSynchronize());
      EXPECT_TRUE(numbers_of(out.read(), number) == numbers_of(expected, number))
          << to_string(format) << " to " << static_cast<int>(number);
      EXPECT_TRUE(out.canaries_are_whole());
    }
  }
}

TEST(GpuBlocks, packed_matrices_are_dequantized_as_on_the_cpu) {
  std::vector<uint32_t> order(1480);
  for (uint32_t k = 0; k < order.size(); ++k) order[k] = (k * 77 + 5) % 1480;
  for (const WeightFormat& format : weight_formats()) {
    for (const Element number : kNumbers) {
      for (const gpu::RowOrder row_order :
           {gpu::RowOrder::kNatural, gpu::RowOrder::kGateAboveUp, gpu::RowOrder::kGateUpPairs}) {
        const bool gathers = row_order == gpu::RowOrder::kGateAboveUp;
        const int64_t cols = gathers ? 1480 : 1472;
        testing::RandomMatrix matrix =
            testing::random_matrix(format, 38, cols, testing::Contents::kReal, 3);
        if (gathers) matrix.view.input_order = order;
        const auto packed = gpu::packed_format(matrix.view, row_order);
        if (!packed.ok()) continue;  // groups that do not divide 1480
        std::vector<std::byte> bytes(packed->bytes);
        gpu::pack_on_host(bytes.data(), matrix.view, *packed);
        const DeviceBytes device(bytes);
        const std::vector<std::byte> expected = on_cpu(matrix.view, number);
        const DeviceBytes out(expected.size());
        const Status status =
            cuda::dequantize(device.data(), *packed, 1, number, out.data(), nullptr);
        ASSERT_TRUE(status.ok()) << status.error().message;
        testing::expect_ok(cudaDeviceSynchronize());
        EXPECT_TRUE(numbers_of(out.read(), number) == numbers_of(expected, number))
            << to_string(format) << " to " << static_cast<int>(number) << " order "
            << static_cast<int>(row_order);
        EXPECT_TRUE(out.canaries_are_whole());
      }
    }
  }
}

TEST(GpuBlocks, refuses_by_one_line) {
  const DeviceBytes memory(4096);
  const Status unaligned = cuda::quantize_blocks({.rows = 1, .cols = 32}, memory.data() + 2,
                                                 memory.data(), memory.data(), nullptr);
  EXPECT_EQ(unaligned.error().code, "cuda.shape");
  MatrixView dense;
  dense.format = {Format::kBF16};
  dense.rows = dense.cols = 8;
  EXPECT_EQ(cuda::dequantize(dense, Element::kF32, memory.data(), nullptr).error().code,
            "cuda.format");
}

}  // namespace
}  // namespace subbyte
