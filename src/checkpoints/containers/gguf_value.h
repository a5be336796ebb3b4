#pragma once
// Values of the metadata of a GGUF file, where they are in the file.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace subbyte {

enum class GgufType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};

/// A number as it lies in the file.
template <typename T>
T load_gguf(const std::byte* at) {
  T value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}
/// The text whose length stands at `at`.
std::string_view gguf_text_at(const std::byte* at);

/// Bytes of a value of this type; 0 for strings and arrays.
std::size_t gguf_width(GgufType type);
std::string_view gguf_type_name(GgufType type);

/// A value whose lengths were checked.
class GgufValue {
 public:
  GgufValue(GgufType type, std::span<const std::byte> bytes) : type_(type), bytes_(bytes) {}

  bool is_array() const { return type_ == GgufType::kArray; }
  /// Its type; of an array that of its elements.
  GgufType element_type() const;
  /// Elements of an array; 1 of any other value.
  uint64_t size() const;
  /// Element `i`, or the value itself. nullopt where it is another kind of value, or does not fit.
  std::optional<int64_t> integer(uint64_t i = 0) const;
  std::optional<double> number(uint64_t i = 0) const;  // an integer, too
  std::optional<bool> boolean(uint64_t i = 0) const;
  std::optional<std::string_view> string() const;
  /// All elements of an array of strings; nullopt of anything else.
  std::optional<std::vector<std::string_view>> strings() const;
  /// "a string", "an array of 3 numbers": for messages.
  std::string describe() const;

 private:
  const std::byte* element(uint64_t i) const;

  GgufType type_;
  std::span<const std::byte> bytes_;
};

}  // namespace subbyte
