#include "transform/format_hints.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/small_letters.h"
#include "checkpoints/quantize_formats.h"
#include "quantize/format_hints.h"
#include "transform/packing/pack_layout.h"
#include "transform/transform.h"

namespace subbyte {
namespace {

std::string dashed(std::string_view name) {
  std::string usual = small_letters(name);
  std::ranges::replace(usual, '_', '-');
  return usual;
}

}  // namespace

std::string command_with(std::string_view name) {
  const std::string usual = dashed(name);
  if (find_pack_layout(usual) != nullptr) {
    return fmt::format("`subbyte pack --to {}` writes that layout", usual);
  }
  if (const QuantizeFormat* const format = find_quantize_format(name)) {
    return fmt::format("`subbyte quantize --format {}` writes it", format->name);
  }
  for (const std::string& format : conversion_formats()) {
    if (dashed(format) == usual) return fmt::format("`subbyte convert --to {}` writes it", format);
  }
  return {};
}

Error unknown_format(std::string_view code, std::string_view name,
                     std::span<const std::string> known) {
  return unknown_format(code, name, known, command_with);
}

}  // namespace subbyte
