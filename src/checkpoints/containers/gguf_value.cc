#include "checkpoints/containers/gguf_value.h"

#include <fmt/format.h>

#include <limits>

#include "base/quote.h"

namespace subbyte {

std::string_view gguf_text_at(const std::byte* at) {
  return {reinterpret_cast<const char*>(at + 8), static_cast<std::size_t>(load_gguf<uint64_t>(at))};
}

std::size_t gguf_width(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    default:
      return 0;
  }
}

std::string_view gguf_type_name(GgufType type) {
  constexpr std::string_view kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                         "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<std::size_t>(type)];
}

GgufType GgufValue::element_type() const {
  return is_array() ? static_cast<GgufType>(load_gguf<uint32_t>(bytes_.data())) : type_;
}

uint64_t GgufValue::size() const {
  return is_array() ? load_gguf<uint64_t>(bytes_.data() + 4) : 1;
}

/// Of numbers; nullptr where there is no such element.
const std::byte* GgufValue::element(uint64_t i) const {
  const std::size_t width = gguf_width(element_type());
  if (width == 0 || i >= size()) return nullptr;
  return bytes_.data() + (is_array() ? 12 : 0) + i * width;
}

std::optional<int64_t> GgufValue::integer(uint64_t i) const {
  const std::byte* const at = element(i);
  if (at == nullptr) return std::nullopt;
  switch (element_type()) {
    case GgufType::kU8:
      return load_gguf<uint8_t>(at);
    case GgufType::kI8:
      return load_gguf<int8_t>(at);
    case GgufType::kU16:
      return load_gguf<uint16_t>(at);
    case GgufType::kI16:
      return load_gguf<int16_t>(at);
    case GgufType::kU32:
      return load_gguf<uint32_t>(at);
    case GgufType::kI32:
      return load_gguf<int32_t>(at);
    case GgufType::kI64:
      return load_gguf<int64_t>(at);
    case GgufType::kU64: {
      const auto value = load_gguf<uint64_t>(at);
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> GgufValue::number(uint64_t i) const {
  const std::byte* const at = element(i);
  if (at == nullptr) return std::nullopt;
  if (element_type() == GgufType::kF32) return load_gguf<float>(at);
  if (element_type() == GgufType::kF64) return load_gguf<double>(at);
  const auto value = integer(i);
  return value ? std::optional<double>(static_cast<double>(*value)) : std::nullopt;
}

std::optional<bool> GgufValue::boolean(uint64_t i) const {
  if (element_type() != GgufType::kBool || i >= size()) return std::nullopt;
  return *element(i) != std::byte{0};
}

std::optional<std::string_view> GgufValue::string() const {
  if (type_ != GgufType::kString) return std::nullopt;
  return gguf_text_at(bytes_.data());
}

std::optional<std::vector<std::string_view>> GgufValue::strings() const {
  if (!is_array() || element_type() != GgufType::kString) return std::nullopt;
  std::vector<std::string_view> texts;
  texts.reserve(size());
  const std::byte* at = bytes_.data() + 12;
  for (uint64_t i = 0; i < size(); ++i) {
    texts.push_back(gguf_text_at(at));
    at += 8 + texts.back().size();
  }
  return texts;
}

std::string GgufValue::describe() const {
  if (is_array()) return fmt::format("an array of {} {}", size(), gguf_type_name(element_type()));
  if (const auto text = string()) return quote(*text);
  if (const auto value = boolean()) return *value ? "true" : "false";
  if (const auto value = integer()) return std::to_string(*value);
  const auto value = number();
  return value ? fmt::format("{}", *value) : std::string(gguf_type_name(type_));
}

}  // namespace subbyte
