#include "formats/format.h"

#include <iterator>

#include "formats/format_objects.h"

namespace subbyte {
namespace {

constexpr const FormatInfo* kFormats[] = {
#define SUBBYTE_FORMAT(Id, object) &formats::object,
#define SUBBYTE_VECTOR_FORMAT(Id, object) &formats::object,
#include "formats/formats.def"
#undef SUBBYTE_FORMAT
#undef SUBBYTE_VECTOR_FORMAT
};

constexpr int kVectorFormats = 0
#define SUBBYTE_FORMAT(Id, object)
#define SUBBYTE_VECTOR_FORMAT(Id, object) +1
#include "formats/formats.def"
#undef SUBBYTE_FORMAT
#undef SUBBYTE_VECTOR_FORMAT
    ;

}  // namespace

const FormatInfo& info(Format format) {
  return *kFormats[static_cast<int>(format) - 1];
}

std::span<const FormatInfo* const> all_formats() {
  return std::span(kFormats).first(std::size(kFormats) - kVectorFormats);
}

const FormatInfo* find_format(std::string_view name) {
  for (const FormatInfo* format : all_formats()) {
    if (format->name == name) return format;
  }
  return nullptr;
}

}  // namespace subbyte
