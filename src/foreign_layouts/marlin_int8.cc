#include "foreign_layouts/marlin_int8.h"

#include <string>

#include "foreign_layouts/marlin.h"

namespace subbyte {
namespace {

constexpr int64_t kTileOutputs = 64;
constexpr int64_t kTileInputs = 16;
constexpr int kZeroColumn[4] = {0, 2, 1, 3};
constexpr int kMaxZero = 255;

}  // namespace

int64_t marlin_int8_place(int64_t n, int64_t k, int64_t rows) {
  const int64_t tile = k / kTileInputs * (rows / kTileOutputs) + n / kTileOutputs;
  const int64_t lane = n % 8 * 4 + k % 8 / 2;
  const int64_t word = (tile * 32 + lane) * 8 + n % kTileOutputs / 8;
  return word * 4 + k % 2 * 2 + k % kTileInputs / 8;
}

void pack_marlin_int8(std::byte* words, const std::byte* codes, int64_t rows, int64_t cols) {
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t k = 0; k < cols; ++k) words[marlin_int8_place(n, k, rows)] = codes[n * cols + k];
  }
}

void unpack_marlin_int8(std::byte* codes, const std::byte* words, int64_t rows, int64_t cols) {
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t k = 0; k < cols; ++k) codes[n * cols + k] = words[marlin_int8_place(n, k, rows)];
  }
}

int64_t marlin_int8_zero_output(int64_t column) {
  return marlin_scale_output(column / 4 * 4 + kZeroColumn[column % 4], true);
}

Status pack_marlin_int8_zeros(std::byte* words, const std::byte* zeros, int64_t rows,
                              int64_t groups) {
  for (int64_t i = 0; i < rows * groups; ++i) {
    const int64_t n = marlin_int8_zero_output(i % rows);
    uint16_t zero = 0;
    __builtin_memcpy(&zero, zeros + 2 * (n * groups + i / rows), 2);
    if (zero > kMaxZero) {
      return Error{"layout.zero_range", "zero point " + std::to_string(zero) + " of output " +
                                            std::to_string(n) + ", group " +
                                            std::to_string(i / rows) + ": Marlin stores 0 to 255"};
    }
    words[i] = std::byte(zero);
  }
  return {};
}

void unpack_marlin_int8_zeros(std::byte* zeros, const std::byte* words, int64_t rows,
                              int64_t groups) {
  for (int64_t i = 0; i < rows * groups; ++i) {
    const int64_t n = marlin_int8_zero_output(i % rows);
    const auto zero = std::to_integer<uint16_t>(words[i]);
    __builtin_memcpy(zeros + 2 * (n * groups + i / rows), &zero, 2);
  }
}

}  // namespace subbyte
