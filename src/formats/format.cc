#include "formats/format.h"

#include "formats/format_objects.h"

namespace subbyte {
namespace {

constexpr const FormatInfo* kFormats[] = {
#define SUBBYTE_FORMAT(Id, object) &formats::object,
#include "formats/formats.def"
#undef SUBBYTE_FORMAT
};

}  // namespace

const FormatInfo& info(Format format) {
  return *kFormats[static_cast<int>(format) - 1];
}

std::span<const FormatInfo* const> all_formats() {
  return kFormats;
}

const FormatInfo* find_format(std::string_view name) {
  for (const FormatInfo* format : kFormats) {
    if (format->name == name) return format;
  }
  return nullptr;
}

}  // namespace subbyte
