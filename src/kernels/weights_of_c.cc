#include "kernels/weights_of_c.h"

#include <array>
#include <span>
#include <string>

#include "base/quote.h"

namespace subbyte {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 24;
constexpr int kMaxElementBits = 8;  // of those that are scaled

Error refuse(const std::string& what, const std::string& expected, const std::string& found) {
  return {"dequantize.argument",
          "dequantize: " + what + ": expected " + expected + ", found " + found};
}

std::string shown(const char* name) {
  return name == nullptr ? "NULL" : quote(name);
}

Result<Format> format_of(const char* what, const char* name) {
  const FormatInfo* format = name == nullptr ? nullptr : find_format(name);
  if (format == nullptr) return refuse(what, "the name of a format", shown(name));
  return format->id;
}

Result<Zero> zero_of(const char* name) {
  if (name == nullptr) return Zero::kNone;
  constexpr std::array<std::pair<std::string_view, Zero>, 4> kZeros = {
      {{"u8", Zero::kU8}, {"u16", Zero::kU16}, {"f16", Zero::kF16}, {"bf16", Zero::kBF16}}};
  for (const auto& [known, zero] : kZeros) {
    if (known == name) return zero;
  }
  return refuse("zero", "u8, u16, f16, bf16 or NULL", shown(name));
}

Result<WeightFormat> format_of(const SubbyteWeights& c) {
  WeightFormat format;
  SUBBYTE_TRY(format.element, format_of("element", c.element));
  SUBBYTE_TRY(format.zero, zero_of(c.zero));
  const int bits = info(format.element).bits;
  if (c.scale == nullptr) {
    const bool is_float = format.element == Format::kF32 || format.element == Format::kF16 ||
                          format.element == Format::kBF16;
    if (!is_float || format.zero != Zero::kNone) {
      return refuse("scale", "the name of a format, or elements of f32, f16 or bf16 alone", "NULL");
    }
    return format;
  }
  SUBBYTE_TRY(format.scale, format_of("scale", c.scale));
  if (info(format.scale).bits % 8 != 0) return refuse("scale", "whole bytes", shown(c.scale));
  if (bits > kMaxElementBits) return refuse("element", "up to 8 bits", shown(c.element));
  if (c.group_size < 0) return refuse("group_size", "0 or more", std::to_string(c.group_size));
  format.group_size = c.group_size;
  return format;
}

}  // namespace

Result<MatrixView> weights_of(const SubbyteWeights& c) {
  MatrixView view;
  SUBBYTE_TRY(view.format, format_of(c));
  if (c.rows < 0 || c.rows > kMaxSize || c.cols < 1 || c.cols > kMaxSize) {
    return refuse("rows and cols", "up to 2^24, and a column",
                  std::to_string(c.rows) + " and " + std::to_string(c.cols));
  }
  view.rows = c.rows;
  view.cols = c.cols;
  view.tensor_scale = c.tensor_scale;
  const auto bytes = [](const void* data, int64_t size) {
    return std::span(static_cast<const std::byte*>(data), static_cast<std::size_t>(size));
  };
  const int64_t groups = view.rows * view.groups();
  view.codes = bytes(c.codes, view.rows * view.row_bytes());
  if (!is_dense(view.format)) {
    view.scales = bytes(c.scales, groups * info(view.format.scale).bits / 8);
  }
  view.zeros = bytes(c.zeros, groups * zero_bytes(view.format.zero));
  const std::pair<const char*, std::span<const std::byte>> parts[] = {
      {"codes", view.codes}, {"scales", view.scales}, {"zeros", view.zeros}};
  for (const auto& [name, part] : parts) {
    if (part.data() == nullptr && !part.empty()) return refuse(name, "an address", "NULL");
  }
  if (c.input_order != nullptr) {
    view.input_order = {c.input_order, static_cast<std::size_t>(c.cols)};
  }
  return view;
}

Result<Format> number_of(const char* name) {
  return format_of("number", name);
}

}  // namespace subbyte
