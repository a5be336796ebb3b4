#pragma once
// Layouts of 4-bit codes as data: a layout says where the code of output n and input k lies, and
// that is all that packing and unpacking need. The canonical matrix has it in byte (n*K + k) / 2,
// the even k in the low nibble.

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace subbyte {

struct NibblePlace {
  int64_t byte;
  int shift;  // 0 or 4

  bool operator==(const NibblePlace&) const = default;
};

/// Canonical codes [rows][cols / 2] into a layout of as many bytes; place(n, k) is a NibblePlace.
template <typename Place>
void pack_nibbles(std::byte* to, const std::byte* codes, int64_t rows, int64_t cols,
                  const Place& place) {
  std::fill_n(to, rows * cols / 2, std::byte{0});
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t k = 0; k < cols; ++k) {
      const NibblePlace at = place(n, k);
      const std::byte code = codes[(n * cols + k) / 2] >> (4 * (k % 2)) & std::byte{0xF};
      to[at.byte] |= code << at.shift;
    }
  }
}

/// The inverse.
template <typename Place>
void unpack_nibbles(std::byte* codes, const std::byte* from, int64_t rows, int64_t cols,
                    const Place& place) {
  std::fill_n(codes, rows * cols / 2, std::byte{0});
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t k = 0; k < cols; ++k) {
      const NibblePlace at = place(n, k);
      const std::byte code = from[at.byte] >> at.shift & std::byte{0xF};
      codes[(n * cols + k) / 2] |= code << (4 * (k % 2));
    }
  }
}

}  // namespace subbyte
