#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/checked.h"
#include "base/mapped_file.h"
#include "base/quote.h"
#include "base/utf8.h"
#include "checkpoints/containers/safetensors.h"
#include "checkpoints/containers/safetensors_codes.h"
#include "checkpoints/containers/safetensors_rules.h"
#include "foreign_layouts/ggml_types.h"
#include "json/strict_json.h"

namespace subbyte {
namespace {

namespace codes = safetensors_codes;
using Metadata = std::map<std::string, std::string>;

Status check_utf8(std::string_view text, std::string_view where) {
  if (!find_invalid_utf8(text)) return {};
  return Error{codes::kUtf8, fmt::format("{}: expected UTF-8, found {}", where, quote(text))};
}

/// Widest elements first, so that each tensor is aligned to its own element when the data are.
Result<std::vector<TensorEntry>> lay_out(std::vector<TensorDeclaration> tensors,
                                         std::string_view where) {
  std::ranges::sort(tensors, {}, [](const TensorDeclaration& tensor) {
    return std::tuple<int, const std::string&>(-bits(tensor.dtype), tensor.name);
  });
  std::vector<TensorEntry> layout;
  layout.reserve(tensors.size());
  uint64_t begin = 0;
  for (TensorDeclaration& tensor : tensors) {
    SUBBYTE_CHECK(check_tensor_name(tensor.name, where));
    SUBBYTE_CHECK(check_utf8(tensor.name, where));
    if (tensor.name == "__metadata__") {
      return Error{codes::kBadName, fmt::format("{}: tensor \"__metadata__\": the name is taken "
                                                "by the format",
                                                where)};
    }
    SUBBYTE_TRY(const uint64_t size, tensor_bytes(tensor.name, tensor.dtype, tensor.shape, where));
    const auto end = checked_add(begin, size);
    if (!end) {
      return Error{codes::kShapeOverflow,
                   fmt::format("{}: tensor {}: expected fewer than 2^64 bytes in all", where,
                               quote(tensor.name))};
    }
    layout.push_back({std::move(tensor.name), tensor.dtype, std::move(tensor.shape), begin, *end});
    begin = *end;
  }
  return layout;
}

Status check_names(const std::vector<TensorEntry>& layout, std::string_view where) {
  std::vector<std::string_view> names;
  for (const TensorEntry& tensor : layout) names.emplace_back(tensor.name);
  std::ranges::sort(names);
  const auto twin = std::ranges::adjacent_find(names);
  if (twin == names.end()) return {};
  return Error{codes::kDuplicateName,
               fmt::format("{}: tensor {}: appears twice", where, quote(*twin))};
}

Result<std::string> header_text(const std::vector<TensorEntry>& layout, const Metadata& metadata,
                                std::string_view where) {
  const auto quoted = [](const std::string& text) { return json::to_text(json::Value(text)); };
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      SUBBYTE_CHECK(check_utf8(key, where));
      SUBBYTE_CHECK(check_utf8(value, where));
      if (text.back() != '{') text += ',';
      text += quoted(key) + ":" + quoted(value);
    }
    text += '}';
  }
  for (const TensorEntry& tensor : layout) {
    if (text.size() > 1) text += ',';
    text += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        quoted(tensor.name), name(tensor.dtype), fmt::join(tensor.shape, ","),
                        tensor.begin, tensor.end);
  }
  text += '}';
  text.resize(round_up(text.size(), 8), ' ');
  if (text.size() > kMaxHeaderBytes) {
    return Error{codes::kHeaderTooLarge,
                 fmt::format("{}: expected a header of at most {} bytes, found {} bytes", where,
                             kMaxHeaderBytes, text.size())};
  }
  return text;
}

}  // namespace

uint64_t TensorDeclaration::num_bytes() const {
  uint64_t elements = 1;
  for (const uint64_t size : shape) elements *= size;
  if (ggml_type >= 0) {
    const GgmlType& type = *find_ggml_type(static_cast<uint32_t>(ggml_type));
    return elements / type.block * type.bytes;
  }
  return elements * static_cast<uint64_t>(bits(dtype)) / 8;
}

Result<SafetensorsStart> lay_out_safetensors(std::vector<TensorDeclaration> tensors,
                                             const Metadata& metadata, std::string_view where) {
  SafetensorsStart start;
  SUBBYTE_TRY(start.tensors, lay_out(std::move(tensors), where));
  SUBBYTE_CHECK(check_names(start.tensors, where));
  SUBBYTE_TRY(const std::string text, header_text(start.tensors, metadata, where));
  const uint64_t size = text.size();  // little-endian, as every machine this runs on
  start.head.append(reinterpret_cast<const char*>(&size), sizeof size).append(text);
  return start;
}

}  // namespace subbyte
