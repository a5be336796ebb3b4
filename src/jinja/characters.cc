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

}  // namespace

Character character_at(std::string_view text, std::size_t at) {
  if (static_cast<unsigned char>(text[at]) < 0x80) return {static_cast<char32_t>(text[at]), 1};
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

std::size_t encode(char32_t value, char (&bytes)[4]) {
  return static_cast<std::size_t>(utf8proc_encode_char(static_cast<utf8proc_int32_t>(value),
                                                       reinterpret_cast<utf8proc_uint8_t*>(bytes)));
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

bool is_cased(char32_t c) {
  return is_upper(c) || is_lower(c) || category(c) == UTF8PROC_CATEGORY_LT;
}

bool is_case_ignorable(char32_t c) {
  constexpr std::u32string_view kWithinWords =
      U"'.:\u00b7\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a";
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_ME ||
         kind == UTF8PROC_CATEGORY_CF || kind == UTF8PROC_CATEGORY_LM ||
         kind == UTF8PROC_CATEGORY_SK || kWithinWords.find(c) != kWithinWords.npos;
}

namespace {

/// Whether text[begin, end) is the last letter of a word of several.
bool ends_word(std::string_view text, std::size_t begin, std::size_t end) {
  std::size_t before = begin;
  char32_t c = 0;
  do {
    if (before == 0) return false;
    before = character_before(text, before);
    c = character_at(text, before).value;
  } while (is_case_ignorable(c));
  if (!is_cased(c)) return false;
  for (std::size_t at = end; at < text.size();) {
    const Character next = character_at(text, at);
    if (!is_case_ignorable(next.value)) return !is_cased(next.value);
    at += next.length;
  }
  return true;
}

}  // namespace

Letters upper(char32_t c, char32_t& one) {
  if (const SpecialCase* const special = special_case(c)) return special->upper;
  return one = to_upper(c), Letters(&one, 1);
}

Letters lower(char32_t c, char32_t& one) {
  if (c == U'\u0130') return U"i\u0307";  // the only one that becomes two
  return one = to_lower(c), Letters(&one, 1);
}

Letters small(std::string_view text, std::size_t begin, std::size_t end, char32_t& one) {
  constexpr char32_t kSigma = U'\u03a3';
  const char32_t c = character_at(text, begin).value;
  if (c == kSigma && ends_word(text, begin, end)) return U"\u03c2";
  return lower(c, one);
}

Letters titled(char32_t c, char32_t& one) {
  if (const SpecialCase* const special = special_case(c)) return special->title;
  return one = to_title(c), Letters(&one, 1);
}

Range stripped(std::string_view text, bool left, bool right) {
  return stripped_by(text, left, right, is_space);
}

}  // namespace subbyte::jinja
