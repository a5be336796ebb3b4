#include "foreign_layouts/marlin.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/float16.h"

namespace subbyte {
namespace {

constexpr int64_t kTileOutputs = 64;
constexpr int64_t kTileInputs = 16;
constexpr int kRowScaleOutput[8] = {0, 1, 8, 9, 16, 17, 24, 25};
constexpr int kZeroColumn[8] = {0, 2, 4, 6, 1, 3, 5, 7};
constexpr int kFp4Column[4] = {0, 2, 1, 3};

constexpr uint32_t kLastE4M3 = 0x7E;
constexpr double kLargestE4M3 = 448;
constexpr double kSmallestScale = 0x1p-6;
constexpr double kUnit = 0x1p7;  // what S0E5M3 holds is so many times the scale

void copy(std::byte* to, const std::byte* from, int width) {
  __builtin_memcpy(to, from, static_cast<std::size_t>(width));
}

double e4m3_value(std::byte code) {
  return info(Format::kE4M3).decode(std::to_integer<uint32_t>(code));
}

std::byte s0e5m3_of(double scale) {
  const uint32_t half = to_float16(static_cast<float>(scale * kUnit)).bits;
  return std::byte(half >> 7);
}

double value_of_s0e5m3(std::byte code) {
  const auto half = static_cast<uint16_t>(std::to_integer<uint32_t>(code) << 7);
  return to_float(Float16{half}) / kUnit;
}

Error scale_range(std::byte scale, const std::string& where) {
  return {"layout.scale_range",
          "scale byte " + std::to_string(std::to_integer<int>(scale)) + " " + where +
              " is negative, NaN or no E4M3, which Marlin's FP4 scales do not hold"};
}

}  // namespace

Status check_marlin_shape(int64_t rows, int64_t cols) {
  if (rows > 0 && cols > 0 && rows % kTileOutputs == 0 && cols % kTileInputs == 0) return {};
  return Error{"layout.shape", "Marlin needs outputs in 64s and inputs in 16s, found " +
                                   std::to_string(rows) + " and " + std::to_string(cols)};
}

NibblePlace marlin_place(int64_t n, int64_t k, int64_t rows) {
  const int64_t tile = k / kTileInputs * (rows / kTileOutputs) + n / kTileOutputs;
  const int64_t lane = n % 8 * 4 + k % 8 / 2;
  const int64_t word = (tile * 32 + lane) * 4 + n % kTileOutputs / 16;
  const int64_t nibble = k % 2 * 4 + n % 16 / 8 * 2 + k % kTileInputs / 8;
  return {word * 4 + nibble / 2, static_cast<int>(nibble % 2 * 4)};
}

void pack_marlin(std::byte* words, const std::byte* codes, int64_t rows, int64_t cols) {
  pack_nibbles(words, codes, rows, cols,
               [=](int64_t n, int64_t k) { return marlin_place(n, k, rows); });
}

void unpack_marlin(std::byte* codes, const std::byte* words, int64_t rows, int64_t cols) {
  unpack_nibbles(codes, words, rows, cols,
                 [=](int64_t n, int64_t k) { return marlin_place(n, k, rows); });
}

int64_t marlin_scale_output(int64_t column, bool grouped) {
  if (grouped) return column / 64 * 64 + column % 64 / 8 + column % 8 * 8;
  return column / 32 * 32 + column % 32 / 8 * 2 + kRowScaleOutput[column % 8];
}

int64_t marlin_zero_output(int64_t nibble) {
  return marlin_scale_output(nibble / 8 * 8 + kZeroColumn[nibble % 8], true);
}

int64_t marlin_fp4_scale_output(int64_t column) {
  return marlin_scale_output(column / 4 * 4 + kFp4Column[column % 4], true);
}

void pack_marlin_scales(std::byte* to, const std::byte* scales, int64_t rows, int64_t groups,
                        int width) {
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t c = 0; c < rows; ++c) {
      const int64_t n = marlin_scale_output(c, groups > 1);
      copy(to + (g * rows + c) * width, scales + (n * groups + g) * width, width);
    }
  }
}

void unpack_marlin_scales(std::byte* scales, const std::byte* from, int64_t rows, int64_t groups,
                          int width) {
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t c = 0; c < rows; ++c) {
      const int64_t n = marlin_scale_output(c, groups > 1);
      copy(scales + (n * groups + g) * width, from + (g * rows + c) * width, width);
    }
  }
}

void pack_marlin_bias(std::byte* to, const std::byte* bias, int64_t rows, int width) {
  pack_marlin_scales(to, bias, rows, 1, width);
}

void unpack_marlin_bias(std::byte* bias, const std::byte* from, int64_t rows, int width) {
  unpack_marlin_scales(bias, from, rows, 1, width);
}

Status pack_marlin_zeros(std::byte* words, const std::byte* zeros, int64_t rows, int64_t groups) {
  std::fill_n(words, rows * groups / 2, std::byte{0});
  for (int64_t i = 0; i < rows * groups; ++i) {
    const int64_t n = marlin_zero_output(i % rows);
    const std::byte zero = zeros[n * groups + i / rows];
    if (std::to_integer<int>(zero) > 15) {
      return Error{"layout.zero_range", "zero point " + std::to_string(std::to_integer<int>(zero)) +
                                            " of output " + std::to_string(n) + ", group " +
                                            std::to_string(i / rows) + ": Marlin stores 0 to 15"};
    }
    words[i / 2] |= zero << (4 * (i % 2));
  }
  return {};
}

void unpack_marlin_zeros(std::byte* zeros, const std::byte* words, int64_t rows, int64_t groups) {
  for (int64_t i = 0; i < rows * groups; ++i) {
    const int64_t n = marlin_zero_output(i % rows);
    zeros[n * groups + i / rows] = words[i / 2] >> (4 * (i % 2)) & std::byte{0xF};
  }
}

void pack_marlin_e8m0(std::byte* to, const std::byte* scales, int64_t rows, int64_t groups) {
  for (int64_t i = 0; i < rows * groups; ++i) {
    to[i] = scales[marlin_fp4_scale_output(i % rows) * groups + i / rows];
  }
}

void unpack_marlin_e8m0(std::byte* scales, const std::byte* from, int64_t rows, int64_t groups) {
  for (int64_t i = 0; i < rows * groups; ++i) {
    scales[marlin_fp4_scale_output(i % rows) * groups + i / rows] = from[i];
  }
}

Result<float> marlin_e4m3_factor(std::span<const std::byte> scales, Format activations) {
  if (activations != Format::kF16 && activations != Format::kBF16) {
    return Error{"layout.format", "Marlin's activations are f16 or bf16, not " +
                                      std::string(info(activations).name)};
  }
  double largest = 0;
  for (std::size_t i = 0; i < scales.size(); ++i) {
    if (std::to_integer<uint32_t>(scales[i]) > kLastE4M3) {
      return scale_range(scales[i], "at index " + std::to_string(i));
    }
    largest = std::max(largest, e4m3_value(scales[i]));
  }
  if (activations == Format::kF16 || largest == 0) return 1.0F;
  return static_cast<float>(std::exp2(std::ilogb(kLargestE4M3 / largest)));
}

int64_t pack_marlin_e4m3(float factor, std::byte* to, const std::byte* scales, int64_t rows,
                         int64_t groups) {
  int64_t lost = 0;
  for (int64_t i = 0; i < rows * groups; ++i) {
    const int64_t n = marlin_fp4_scale_output(i % rows);
    const double scale = e4m3_value(scales[n * groups + i / rows]) * factor;
    if (scale >= kSmallestScale) {
      to[i] = s0e5m3_of(scale);
      continue;
    }
    to[i] = std::byte{0};
    lost += scale > 0 ? 1 : 0;
  }
  return lost;
}

Status unpack_marlin_e4m3(std::byte* scales, const std::byte* from, int64_t rows, int64_t groups,
                          float factor) {
  const FormatInfo& e4m3 = info(Format::kE4M3);
  for (int64_t i = 0; i < rows * groups; ++i) {
    const int64_t n = marlin_fp4_scale_output(i % rows);
    const double value = value_of_s0e5m3(from[i]) / factor;
    const uint32_t code = e4m3.encode(value, Rounding::kNearestEven);
    if (code > kLastE4M3 || e4m3.decode(code) != value) {
      return scale_range(from[i],
                         "of output " + std::to_string(n) + ", group " + std::to_string(i / rows));
    }
    scales[n * groups + i / rows] = std::byte(code);
  }
  return {};
}

float marlin_global_scale(float tensor_scale, float factor, Format activations) {
  const float unit = activations == Format::kBF16 ? 0x1p119F : 0x1p7F;
  return tensor_scale * unit / factor;
}

}  // namespace subbyte
