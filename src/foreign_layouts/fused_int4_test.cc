// What the transformed tensors mean, read with the formulas of PyTorch's products, against the
// weights of the canonical matrix in double precision.

#include "foreign_layouts/fused_int4.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/random.h"
#include "foreign_layouts/int4pack.h"

namespace subbyte {
namespace {

constexpr Format kTypes[] = {Format::kF16, Format::kBF16, Format::kF32};

/// Half the distance of neighbouring numbers of a type, relative to the smaller.
double unit_roundoff(Format type) {
  return type == Format::kF32 ? 0x1p-24 : type == Format::kF16 ? 0x1p-11 : 0x1p-8;
}

/// What callers hand to PyTorch on CPUs: z of GPTQ layers is (8 - zero) times the scale in the type
/// of the activations, that of AWQ layers is of the scale as the matrix has it.
Result<std::vector<std::byte>> cpu_numbers(const MatrixView& matrix, Format type, bool awq) {
  return pack_scales_and_zeros(matrix, type, awq ? OffsetScale::kStored : OffsetScale::kRounded);
}

/// Random codes, zero points of 0 to max_zero, and scales from 0.001 to 0.1.
struct Layer {
  std::vector<std::byte> codes, scales, zeros;
  MatrixView view;

  Layer(int64_t rows, int64_t cols, int64_t group, Format type, uint64_t max_zero) {
    Random random(rows * cols + group);
    const FormatInfo& number = info(type);
    const int64_t count = rows * (cols / group);
    for (int64_t i = 0; i < rows * cols / 2; ++i) codes.push_back(std::byte(random.next() & 0xFF));
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t code = number.encode(0.001 + 0.099 * random.uniform(), Rounding::kNearestEven);
      for (int b = 0; b < number.bits; b += 8) scales.push_back(std::byte(code >> b & 0xFF));
      zeros.push_back(std::byte(random.next() % (max_zero + 1)));
    }
    view.format = {Format::kU4, type, Zero::kU8, group};
    view.rows = rows;
    view.cols = cols;
    view.codes = codes;
    view.scales = scales;
    view.zeros = zeros;
  }

  double scale(int64_t n, int64_t g) const {
    uint32_t code = 0;
    const std::size_t width = scales.size() / zeros.size();
    std::memcpy(&code, scales.data() + (n * view.groups() + g) * width, width);
    return info(view.format.scale).decode(code);
  }
  int zero(int64_t n, int64_t g) const {
    return std::to_integer<int>(zeros[n * view.groups() + g]);
  }
};

double number_at(const std::vector<std::byte>& tensor, int64_t index, Format type) {
  uint32_t code = 0;
  const std::size_t width = info(type).bits / 8;
  std::memcpy(&code, tensor.data() + index * width, width);
  return info(type).decode(code);
}

TEST(FusedInt4, cpu_tensors_mean_the_weights) {
  for (const Format stored : kTypes) {
    for (const Format type : kTypes) {
      const Layer layer(80, 128, 32, stored, 16);
      std::vector<std::byte> weight(layer.codes.size());
      pack_int4_cpu(weight.data(), layer.codes.data(), 80, 128, CpuTile::kHalves64);
      for (const bool awq : {false, true}) {
        const auto numbers = cpu_numbers(layer.view, type, awq);
        ASSERT_TRUE(numbers.ok()) << numbers.error().message;
        // Scales that are in that type already, or in a shorter one, are not rounded.
        const double us = stored == type || (type == Format::kF32) ? 0 : unit_roundoff(type);
        const double uz = unit_roundoff(type);
        for (int64_t n = 0; n < 80; ++n) {
          for (int64_t k = 0; k < 128; ++k) {
            const NibblePlace at = int4pack_cpu_place(n, k, 80, 128, CpuTile::kHalves64);
            const int q = std::to_integer<int>(weight[at.byte]) >> at.shift & 0xF;
            const int64_t pair = 2 * (k / 32 * 80 + n);
            const double s = number_at(*numbers, pair, type);
            const double z = number_at(*numbers, pair + 1, type);
            const double scale = layer.scale(n, k / 32);
            const int zero = layer.zero(n, k / 32);
            // s = scale (1 + a), z = (8 - zero) scale (1 + a) (1 + b), AWQ without that a.
            const double bound =
                scale * (awq ? std::abs(q - 8) * us + std::abs(8 - zero) * uz
                             : std::abs(q - zero) * us + std::abs(8 - zero) * (1 + us) * uz);
            EXPECT_NEAR((q - 8) * s + z, weight_at(layer.view, n, k), bound + 1e-17);
          }
        }
      }
    }
  }
}

TEST(FusedInt4, offsets_of_the_two_shims_worked_out_by_hand) {
  // 1 + 3/1024 in float16, which is 1 in bfloat16; zero point 1. 7 * 1 is 7, and 7.0205 is nearest
  // to 7.03125 of 7, 7.03125, ...
  Layer layer(16, 32, 32, Format::kF16, 15);
  for (int n = 0; n < 16; ++n) {
    layer.scales[2 * n] = std::byte{0x03};
    layer.scales[2 * n + 1] = std::byte{0x3C};
    layer.zeros[n] = std::byte{1};
  }
  const auto gptq = cpu_numbers(layer.view, Format::kBF16, false);
  const auto awq = cpu_numbers(layer.view, Format::kBF16, true);
  ASSERT_TRUE(gptq.ok() && awq.ok());
  const auto start = [](const std::vector<std::byte>& tensor) {
    return std::vector<std::byte>(tensor.begin(), tensor.begin() + 4);
  };
  const auto bytes = [](int a, int b, int c, int d) {
    return std::vector{std::byte(a), std::byte(b), std::byte(c), std::byte(d)};
  };
  EXPECT_EQ(start(*gptq), bytes(0x80, 0x3F, 0xE0, 0x40));
  EXPECT_EQ(start(*awq), bytes(0x80, 0x3F, 0xE1, 0x40));
}

TEST(FusedInt4, xpu_tensors_mean_the_weights) {
  for (const Format stored : kTypes) {
    for (const Format type : kTypes) {
      const Layer layer(7, 192, 96, stored, 15);
      const auto fused = transform_xpu(layer.view, type);
      ASSERT_TRUE(fused.ok()) << fused.error().message;
      ASSERT_EQ(fused->weight.size(), 7u * 192 / 2);
      const double us = stored == type || (type == Format::kF32) ? 0 : unit_roundoff(type);
      for (int64_t n = 0; n < 7; ++n) {
        for (int64_t k = 0; k < 192; ++k) {
          uint32_t word = 0;
          std::memcpy(&word, fused->weight.data() + 4 * (n * 24 + k / 8), 4);
          const int q = static_cast<int>(word >> (4 * (k % 8)) & 0xF);
          const int64_t at = k / 96 * 7 + n;
          const int z = std::to_integer<int>(fused->zeros[at]);
          const double expected = weight_at(layer.view, n, k);
          EXPECT_NEAR(number_at(fused->scales, at, type) * (q - z), expected,
                      std::abs(expected) * us);
        }
      }
    }
  }
}

TEST(FusedInt4, what_the_products_do_not_take_is_refused) {
  const auto cpu = [](const Layer& layer, Format type = Format::kBF16) {
    const auto numbers = cpu_numbers(layer.view, type, false);
    return numbers.ok() ? std::string_view() : numbers.error().code;
  };
  const auto xpu = [](const Layer& layer, Format type = Format::kBF16) {
    const auto fused = transform_xpu(layer.view, type);
    return fused.ok() ? std::string_view() : fused.error().code;
  };
  EXPECT_EQ(xpu(Layer(3, 64, 64, Format::kF16, 15)), "");
  EXPECT_EQ(xpu(Layer(3, 64, 16, Format::kF16, 15)), "layout.shape");
  EXPECT_EQ(cpu(Layer(16, 64, 32, Format::kF16, 15), Format::kE4M3), "layout.format");
  EXPECT_EQ(xpu(Layer(16, 64, 32, Format::kF16, 15), Format::kE4M3), "layout.format");
  Layer uneven(16, 96, 32, Format::kF16, 15);
  uneven.view.format.group_size = 64;
  EXPECT_EQ(xpu(uneven), "layout.shape");

  Layer beyond(16, 64, 32, Format::kF32, 15);
  EXPECT_EQ(xpu(beyond, Format::kF16), "");
  const float large = 65'520;  // rounds to infinity in float16
  std::memcpy(beyond.scales.data() + 20, &large, 4);
  beyond.zeros[5] = std::byte{8};
  EXPECT_EQ(xpu(beyond, Format::kF16), "layout.scale_range");
  EXPECT_EQ(cpu(beyond, Format::kF16), "layout.scale_range");
  EXPECT_EQ(cpu(beyond), "");
  Layer far(16, 64, 32, Format::kF16, 15);
  far.zeros[5] = std::byte{16};  // as GPTQ version 1 can mean it
  EXPECT_EQ(cpu(far), "");
  EXPECT_EQ(xpu(far), "layout.zero_range");
  far.zeros[5] = std::byte{17};
  EXPECT_EQ(cpu(far), "layout.zero_range");
}

}  // namespace
}  // namespace subbyte
