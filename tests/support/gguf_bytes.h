#pragma once
// GGUF files, made value by value.

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace subbyte {

/// Numbers as they lie in the file.
template <typename T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

inline std::string raw_text(std::string_view text) {
  return raw(uint64_t{text.size()}) + std::string(text);
}

struct GgufBytes {
  uint32_t version = 3;
  std::vector<std::string> keys;     // each with its name, type and value
  std::vector<std::string> tensors;  // each with its name, dimensions, type and offset
  uint64_t num_keys = UINT64_MAX;    // else as many as there are
  uint64_t num_tensors = UINT64_MAX;
  uint64_t alignment = 32;
  std::string data;

  void key(std::string_view name, uint32_t type, const std::string& value) {
    keys.push_back(raw_text(name) + raw(type) + value);
  }
  void text(std::string_view name, std::string_view value) { key(name, 8, raw_text(value)); }
  void u32(std::string_view name, uint32_t value) { key(name, 4, raw(value)); }
  void f32(std::string_view name, float value) { key(name, 6, raw(value)); }
  void texts(std::string_view name, const std::vector<std::string>& values) {
    std::string list = raw(uint32_t{8}) + raw(uint64_t{values.size()});
    for (const std::string& value : values) list += raw_text(value);
    key(name, 9, list);
  }
  template <typename T>
  void numbers(std::string_view name, uint32_t type, const std::vector<T>& values) {
    std::string list = raw(type) + raw(uint64_t{values.size()});
    for (const T value : values) list += raw(value);
    key(name, 9, list);
  }
  /// `shape` with the inputs first. Its data, zeros, goes to the end.
  void tensor(std::string_view name, const std::vector<uint64_t>& shape, uint32_t type,
              uint64_t bytes) {
    place(name, shape, type, data.size());
    data += std::string(bytes, '\0');
    data.resize((data.size() + alignment - 1) / alignment * alignment, '\0');
  }
  void place(std::string_view name, const std::vector<uint64_t>& shape, uint32_t type,
             uint64_t offset) {
    std::string entry = raw_text(name) + raw(static_cast<uint32_t>(shape.size()));
    for (const uint64_t size : shape) entry += raw(size);
    tensors.push_back(entry + raw(type) + raw(offset));
  }

  std::string bytes() const {
    std::string file = "GGUF" + raw(version) +
                       raw(num_tensors == UINT64_MAX ? uint64_t{tensors.size()} : num_tensors) +
                       raw(num_keys == UINT64_MAX ? uint64_t{keys.size()} : num_keys);
    for (const std::string& key : keys) file += key;
    for (const std::string& tensor : tensors) file += tensor;
    file.resize((file.size() + alignment - 1) / alignment * alignment, '\0');
    return file + data;
  }
};

}  // namespace subbyte
