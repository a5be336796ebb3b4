#include "formats/format.h"

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

constexpr const FormatInfo* kWithValues[] = {
#define SUBBYTE_FORMAT(Id, object) &formats::object,
#define SUBBYTE_VECTOR_FORMAT(Id, object)
#include "formats/formats.def"
#undef SUBBYTE_FORMAT
#undef SUBBYTE_VECTOR_FORMAT
};

}  // namespace

const FormatInfo& info(Format format) {
  return *kFormats[static_cast<int>(format) - 1];
}

std::span<const FormatInfo* const> all_formats() {
  return kWithValues;
}

}  // namespace subbyte

SUBBYTE_BEGIN_NAMESPACE

std::string_view name(Format format) {
  return format == Format::kNone ? "none" : info(format).name;
}

std::optional<Format> find_format(std::string_view name) {
  for (const FormatInfo* format : all_formats()) {
    if (format->name == name) return format->id;
  }
  return std::nullopt;
}

int bits(Format format) {
  return format == Format::kNone ? 0 : info(format).bits;
}

double decode(Format format, uint32_t code) {
  return info(format).decode(code);
}

uint32_t encode(Format format, double value) {
  return info(format).encode(value, Rounding::kNearestEven);
}

SUBBYTE_END_NAMESPACE
