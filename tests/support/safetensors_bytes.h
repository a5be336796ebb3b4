#pragma once
// The bytes of safetensors files, valid or not, put together without the code under test.

#include <cstdint>
#include <string>
#include <string_view>

namespace subbyte {

/// The 8 bytes of a header length.
inline std::string header_length(uint64_t length) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>(length >> shift));
  return bytes;
}

/// Length, header, data.
inline std::string safetensors_bytes(std::string_view header, std::string_view data = {}) {
  return header_length(header.size()) + std::string(header) + std::string(data);
}

/// `size` bytes that differ from their neighbours.
inline std::string sample_data(std::size_t size) {
  std::string data;
  for (std::size_t i = 0; i < size; ++i) data.push_back(static_cast<char>(i * 37 + 11));
  return data;
}

}  // namespace subbyte
