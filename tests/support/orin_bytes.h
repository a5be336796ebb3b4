#pragma once
// Model files of OrinMLLM, made field by field.

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace subbyte {

/// The header of a small model and, by default, zeros for as many tensors as it says.
struct OrinBytes {
  uint32_t magic = 0x616B3438;
  int32_t version = 5;
  int32_t hidden = 16, intermediate = 24, layers = 2, heads = 2, kv_heads = 1, vocabulary = 10,
          positions = 32;
  uint8_t tied = 0;
  std::vector<int32_t> rest = {8, 8};  // head_dim and group size, as the version has them
  std::size_t data = 3984;             // worked out by hand in orin_model_test.cc

  std::string text() const {
    std::string bytes(256, '\0');
    const int32_t fields[] = {version, hidden,   intermediate, layers,
                              heads,   kv_heads, vocabulary,   positions};
    std::memcpy(bytes.data(), &magic, 4);
    std::memcpy(bytes.data() + 4, fields, sizeof fields);
    bytes[36] = static_cast<char>(tied);
    if (!rest.empty()) std::memcpy(bytes.data() + 37, rest.data(), 4 * rest.size());
    return bytes + std::string(data, '\0');
  }
};

}  // namespace subbyte
