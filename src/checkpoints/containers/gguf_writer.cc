#include "checkpoints/containers/gguf_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/quote.h"
#include "foreign_layouts/ggml_types.h"

namespace subbyte {
namespace {

constexpr uint64_t kAlignment = 32;
constexpr uint32_t kVersion = 3;
constexpr std::size_t kMaxTensorName = 63;

template <typename T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_text(std::string& bytes, std::string_view text) {
  append(bytes, uint64_t{text.size()});
  bytes.append(text);
}

/// nullptr where GGUF has no such type.
const GgmlType* type_of(const TensorDeclaration& tensor) {
  if (tensor.ggml_type >= 0) return find_ggml_type(static_cast<uint32_t>(tensor.ggml_type));
  return find_ggml_type(name(tensor.dtype));
}

}  // namespace

bool GgufKeys::has(std::string_view name) const {
  return std::ranges::find(names_, name) != names_.end();
}

bool GgufKeys::add(std::string_view name, GgufType type) {
  if (has(name)) return false;
  names_.emplace_back(name);
  append_text(bytes_, name);
  append(bytes_, static_cast<uint32_t>(type));
  return true;
}

bool GgufKeys::add_list(std::string_view name, GgufType element, uint64_t count) {
  if (!add(name, GgufType::kArray)) return false;
  append(bytes_, static_cast<uint32_t>(element));
  append(bytes_, count);
  return true;
}

void GgufKeys::text(std::string_view name, std::string_view value) {
  if (add(name, GgufType::kString)) append_text(bytes_, value);
}

void GgufKeys::flag(std::string_view name, bool value) {
  if (add(name, GgufType::kBool)) append(bytes_, static_cast<uint8_t>(value));
}

void GgufKeys::whole(std::string_view name, uint32_t value) {
  if (add(name, GgufType::kU32)) append(bytes_, value);
}

void GgufKeys::number(std::string_view name, float value) {
  if (add(name, GgufType::kF32)) append(bytes_, value);
}

void GgufKeys::texts(std::string_view name, std::span<const std::string> values) {
  if (!add_list(name, GgufType::kString, values.size())) return;
  for (const std::string& value : values) append_text(bytes_, value);
}

void GgufKeys::wholes(std::string_view name, std::span<const int32_t> values) {
  if (!add_list(name, GgufType::kI32, values.size())) return;
  for (const int32_t value : values) append(bytes_, value);
}

void GgufKeys::numbers(std::string_view name, std::span<const float> values) {
  if (!add_list(name, GgufType::kF32, values.size())) return;
  for (const float value : values) append(bytes_, value);
}

void GgufKeys::flags(std::string_view name, const std::vector<bool>& values) {
  if (!add_list(name, GgufType::kBool, values.size())) return;
  for (const bool value : values) append(bytes_, static_cast<uint8_t>(value));
}

Result<WeightFiles> lay_out_gguf(const GgufKeys& keys, std::span<const WriteStep> steps,
                                 std::string_view name) {
  WeightFile file;
  file.name = name;
  file.end = steps.size();
  std::string entries;
  uint64_t offset = 0;
  for (const WriteStep& step : steps) {
    for (const TensorDeclaration& tensor : step.tensors) {
      if (tensor.name.size() > kMaxTensorName) {
        return Error{"gguf.tensor", fmt::format("tensor {}: expected a name of at most {} bytes",
                                                quote_name(tensor.name), kMaxTensorName)};
      }
      const GgmlType* const type = type_of(tensor);
      if (type == nullptr) {
        return Error{"gguf.type", fmt::format("tensor {}: GGUF has no {}", quote_name(tensor.name),
                                              subbyte::name(tensor.dtype))};
      }
      append_text(entries, tensor.name);
      append(entries, static_cast<uint32_t>(tensor.shape.size()));
      for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) {
        append(entries, *size);
      }
      append(entries, type->number);
      append(entries, offset);
      const uint64_t end = offset + tensor.num_bytes();
      file.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, offset, end});
      offset = round_up(end, kAlignment);
    }
  }
  file.padding = offset - (file.tensors.empty() ? 0 : file.tensors.back().end);
  file.head = "GGUF";
  append(file.head, kVersion);
  append(file.head, uint64_t{file.tensors.size()});
  append(file.head, keys.size());
  file.head += keys.bytes();
  file.head += entries;
  file.head.resize(round_up(uint64_t{file.head.size()}, kAlignment), '\0');
  WeightFiles weights;
  weights.files.push_back(std::move(file));
  return weights;
}

}  // namespace subbyte
