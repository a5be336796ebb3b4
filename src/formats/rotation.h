#pragma once
// The Hadamard rotation of weights before they are quantized: each run of D inputs of a row, W, is
// stored as W H / sqrt(D), H being the matrix of Hadamard by Sylvester (H[i][j] is -1 to the number
// of bits that i and j have in common). H / sqrt(D) is symmetric and its own inverse, so
//
//   W x = (W H / sqrt(D)) (H x / sqrt(D))
//
// and a product needs its inputs rotated, once for all rows. It spreads what is large in one input
// over the run, so that weights are like normal random numbers. D is 16, 64 or 256, whose roots are
// powers of two: rotating loses nothing but what the sums round.

#include <cstdint>

namespace subbyte {

inline constexpr int64_t kLargestRotation = 256;

/// Says whether runs may have that size; 0 is none.
constexpr bool is_rotation(int64_t size) {
  return size == 0 || size == 16 || size == 64 || size == 256;
}

/// The largest run up to `most` of which `cols` is a multiple; 0 where there is none.
constexpr int64_t rotation_of(int64_t cols, int64_t most) {
  for (int64_t size = kLargestRotation; size >= 16; size /= 4) {
    if (size <= most && cols % size == 0) return size;
  }
  return 0;
}

/// 1 / sqrt(size).
constexpr double rotation_factor(int64_t size) {
  return size == 256 ? 0x1p-4 : size == 64 ? 0x1p-3 : 0x1p-2;
}

/// Rotates x[0 .. count), which are whole runs, in place: butterflies from neighbours outwards.
template <typename Number>
void rotate(Number* x, int64_t count, int64_t size) {
  const auto factor = static_cast<Number>(rotation_factor(size));
  for (int64_t step = 1; step < size; step *= 2) {
    for (int64_t first = 0; first < count; first += 2 * step) {
      for (int64_t i = first; i < first + step; ++i) {
        const Number a = x[i];
        const Number b = x[i + step];
        x[i] = a + b;
        x[i + step] = a - b;
      }
    }
  }
  for (int64_t i = 0; i < count; ++i) x[i] *= factor;
}

}  // namespace subbyte
