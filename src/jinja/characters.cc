#include "jinja/characters.h"

#include <algorithm>

#include "unicode/unicode.h"
#include "unicode/utf8.h"

namespace subbyte::jinja {

using unicode::LetterCase;
using unicode::NumericType;

Character character_at(std::string_view text, std::size_t at) {
  const utf8::Decoded c = utf8::decode_one(text.substr(at));
  return c.valid ? Character{c.value, c.length} : Character{0xFFFD, 1};
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

bool is_space(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) {
  static const uint32_t hidden = unicode::category_bits("C") | unicode::category_bits("Z");
  return c == ' ' || !unicode::is_in(c, hidden);
}

bool is_alpha(char32_t c) {
  static const uint32_t letters = unicode::category_bits("L");
  return unicode::is_in(c, letters);
}

bool is_decimal(char32_t c) {
  return unicode::numeric_type(c) == NumericType::kDecimal;
}

bool is_digit(char32_t c) {
  const NumericType type = unicode::numeric_type(c);
  return type == NumericType::kDecimal || type == NumericType::kDigit;
}

bool is_number(char32_t c) {
  return unicode::numeric_type(c) != NumericType::kNone;
}

bool is_upper(char32_t c) {
  return unicode::is_upper(c);
}

bool is_lower(char32_t c) {
  return unicode::is_lower(c);
}

bool is_title(char32_t c) {
  static const uint32_t titles = unicode::category_bits("Lt");
  return unicode::is_in(c, titles);
}

bool is_line_break(char32_t c) {
  return (c >= 0xA && c <= 0xD) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool is_cased(char32_t c) {
  return is_upper(c) || is_lower(c) || is_title(c);
}

bool is_case_ignorable(char32_t c) {
  constexpr std::u32string_view kWithinWords =
      U"'.:\u00b7\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a";
  static const uint32_t marks = unicode::category_bits("Mn") | unicode::category_bits("Me") |
                                unicode::category_bits("Cf") | unicode::category_bits("Lm") |
                                unicode::category_bits("Sk");
  return unicode::is_in(c, marks) || kWithinWords.find(c) != kWithinWords.npos;
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

Letters changed(char32_t c, LetterCase letter_case, char32_t& one) {
  const Letters letters = unicode::in_case(c, letter_case);
  if (!letters.empty()) return letters;
  one = c;
  return {&one, 1};
}

}  // namespace

Letters upper(char32_t c, char32_t& one) {
  return changed(c, LetterCase::kUpper, one);
}

Letters lower(char32_t c, char32_t& one) {
  return changed(c, LetterCase::kLower, one);
}

Letters folded(char32_t c, char32_t& one) {
  return changed(c, LetterCase::kFolded, one);
}

Letters small(std::string_view text, std::size_t begin, std::size_t end, char32_t& one) {
  constexpr char32_t kSigma = U'\u03a3';
  const char32_t c = character_at(text, begin).value;
  if (c == kSigma && ends_word(text, begin, end)) return U"\u03c2";
  return lower(c, one);
}

Letters titled(char32_t c, char32_t& one) {
  return changed(c, LetterCase::kTitle, one);
}

Range stripped(std::string_view text, bool left, bool right) {
  return stripped_by(text, left, right, is_space);
}

}  // namespace subbyte::jinja
