#include "jinja/characters.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/utf8.h"

namespace subbyte::jinja {
namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

char32_t to_upper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}
char32_t to_lower(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}
char32_t to_title(char32_t c) {
  return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
}

constexpr char32_t kSharpS = 0xDF;

bool is_cased(char32_t c) {
  return is_upper(c) || is_lower(c) || category(c) == UTF8PROC_CATEGORY_LT;
}

template <typename Change>
std::string changed(std::string_view text, const Change& change) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    change(c.value, result);
    at += c.length;
  }
  return result;
}

void append_upper(std::string& text, char32_t c) {
  if (c == kSharpS) {
    text += "SS";
  } else {
    append_character(text, to_upper(c));
  }
}

void append_title(std::string& text, char32_t c) {
  if (c == kSharpS) {
    text += "Ss";
  } else {
    append_character(text, to_title(c));
  }
}

}  // namespace

Character character_at(std::string_view text, std::size_t at) {
  const std::string_view rest = text.substr(at);
  const std::size_t length = utf8_sequence_length(rest);
  if (length == 0) return {0xFFFD, 1};
  utf8proc_int32_t value = 0;
  utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(rest.data()),
                   static_cast<utf8proc_ssize_t>(length), &value);
  return {static_cast<char32_t>(value), length};
}

std::size_t character_before(std::string_view text, std::size_t end) {
  std::size_t at = end - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::size_t byte_of_character(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  while (index > 0 && at < text.size()) {
    at += character_at(text, at).length;
    --index;
  }
  return at;
}

void append_character(std::string& text, char32_t value) {
  utf8proc_uint8_t bytes[4];
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(value), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(length));
}

bool is_space(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

bool is_alpha(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL ||
         kind == UTF8PROC_CATEGORY_LT || kind == UTF8PROC_CATEGORY_LM ||
         kind == UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_number(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL ||
         kind == UTF8PROC_CATEGORY_NO;
}

bool is_upper(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU;
}

bool is_lower(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL;
}

bool is_line_break(char32_t c) {
  return (c >= 0xA && c <= 0xD) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

std::string upper(std::string_view text) {
  return changed(text, [](char32_t c, std::string& result) { append_upper(result, c); });
}

std::string lower(std::string_view text) {
  return changed(text,
                 [](char32_t c, std::string& result) { append_character(result, to_lower(c)); });
}

std::string title(std::string_view text) {
  bool inside = false;
  return changed(text, [&](char32_t c, std::string& result) {
    if (inside) {
      append_character(result, to_lower(c));
    } else {
      append_title(result, c);
    }
    inside = is_cased(c);
  });
}

std::string capitalized(std::string_view text) {
  bool first = true;
  return changed(text, [&](char32_t c, std::string& result) {
    if (first) {
      append_title(result, c);
    } else {
      append_character(result, to_lower(c));
    }
    first = false;
  });
}

std::string swapped_case(std::string_view text) {
  return changed(text, [](char32_t c, std::string& result) {
    if (is_lower(c)) {
      append_upper(result, c);
    } else {
      append_character(result, to_lower(c));
    }
  });
}

namespace {

template <typename Drops>
Range stripped_by(std::string_view text, bool left, bool right, const Drops& drops) {
  Range range = {0, text.size()};
  while (left && range.begin < range.end) {
    const Character c = character_at(text, range.begin);
    if (!drops(range.begin, c)) break;
    range.begin += c.length;
  }
  while (right && range.begin < range.end) {
    const std::size_t last = character_before(text, range.end);
    if (!drops(last, character_at(text, last))) break;
    range.end = last;
  }
  return range;
}

}  // namespace

Range stripped(std::string_view text, bool left, bool right) {
  return stripped_by(text, left, right,
                     [](std::size_t, const Character& c) { return is_space(c.value); });
}

Range stripped(std::string_view text, std::string_view set, bool left, bool right) {
  return stripped_by(text, left, right, [&](std::size_t at, const Character& c) {
    return set.find(text.substr(at, c.length)) != std::string_view::npos;
  });
}

}  // namespace subbyte::jinja
