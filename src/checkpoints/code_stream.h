#pragma once
// Little-endian streams of codes: code i lies in bits [i * bits, (i + 1) * bits).

#include <cstddef>
#include <cstdint>

namespace subbyte {

/// Code `index`, of at most 8 bits. Its second byte is read only when the code reaches into it.
inline uint32_t stream_code(const std::byte* stream, int64_t index, int bits) {
  const int64_t bit = index * bits;
  uint32_t window = std::to_integer<uint32_t>(stream[bit / 8]);
  if (bit % 8 + bits > 8) window |= std::to_integer<uint32_t>(stream[bit / 8 + 1]) << 8;
  return (window >> (bit % 8)) & ((1u << bits) - 1u);
}

/// ORs `code` into a stream. Its second byte is touched only when the code reaches into it.
inline void put_code(std::byte* stream, int64_t index, int bits, uint32_t code) {
  const int64_t bit = index * bits;
  const uint32_t shifted = code << (bit % 8);
  stream[bit / 8] |= std::byte(shifted & 0xFFu);
  if (shifted > 0xFFu) stream[bit / 8 + 1] |= std::byte(shifted >> 8);
}

}  // namespace subbyte
