#include "foreign_layouts/marlin.h"

#include <string>

namespace subbyte {
namespace {

constexpr int64_t kTileOutputs = 64;
constexpr int64_t kTileInputs = 16;
constexpr int kRowScaleOutput[8] = {0, 1, 8, 9, 16, 17, 24, 25};
constexpr int kZeroColumn[8] = {0, 2, 4, 6, 1, 3, 5, 7};
constexpr int kFp4Column[4] = {0, 2, 1, 3};

// E4M3 code + 120 is the S0E5M3 of 2^7 times a normal number: the exponent's bias grows by 15.
constexpr int kExponentStep = 15 << 3;
constexpr int kFirstNormal = 8;
constexpr int kLastE4M3 = 0x7E;
// 2^7 times the subnormals: m / 4 for m = 0 to 7.
constexpr int kSubnormals[8] = {0, 104, 112, 116, 120, 122, 124, 126};

void copy(std::byte* to, const std::byte* from, int width) {
  __builtin_memcpy(to, from, static_cast<std::size_t>(width));
}

Error scale_range(std::byte scale, int64_t output, int64_t group) {
  return {"layout.scale_range",
          "scale byte " + std::to_string(std::to_integer<int>(scale)) + " of output " +
              std::to_string(output) + ", group " + std::to_string(group) +
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

std::optional<std::byte> marlin_scale_of_e4m3(std::byte e4m3) {
  const int code = std::to_integer<int>(e4m3);
  if (code > kLastE4M3) return std::nullopt;
  return std::byte(code < kFirstNormal ? kSubnormals[code] : code + kExponentStep);
}

std::optional<std::byte> e4m3_of_marlin_scale(std::byte scale) {
  const int code = std::to_integer<int>(scale) - kExponentStep;
  if (code >= kFirstNormal && code <= kLastE4M3) return std::byte(code);
  for (int m = 0; m < kFirstNormal; ++m) {
    if (std::to_integer<int>(scale) == kSubnormals[m]) return std::byte(m);
  }
  return std::nullopt;
}

Status pack_marlin_e4m3(std::byte* to, const std::byte* scales, int64_t rows, int64_t groups) {
  for (int64_t i = 0; i < rows * groups; ++i) {
    const int64_t n = marlin_fp4_scale_output(i % rows);
    const std::byte from = scales[n * groups + i / rows];
    const auto scale = marlin_scale_of_e4m3(from);
    if (!scale) return scale_range(from, n, i / rows);
    to[i] = *scale;
  }
  return {};
}

Status unpack_marlin_e4m3(std::byte* scales, const std::byte* from, int64_t rows, int64_t groups) {
  for (int64_t i = 0; i < rows * groups; ++i) {
    const int64_t n = marlin_fp4_scale_output(i % rows);
    const auto scale = e4m3_of_marlin_scale(from[i]);
    if (!scale) return scale_range(from[i], n, i / rows);
    scales[n * groups + i / rows] = *scale;
  }
  return {};
}

}  // namespace subbyte
