#pragma once
// Characters of UTF-8 as Python's str sees them.

#include <cstddef>
#include <string_view>

namespace subbyte::jinja {

struct Character {
  char32_t value;
  std::size_t length;  // in bytes, at least 1
};

/// The character at text[at]; a byte that begins none is U+FFFD.
Character character_at(std::string_view text, std::size_t at);
/// Where the character that ends before text[end] begins; end > 0.
std::size_t character_before(std::string_view text, std::size_t end);
std::size_t count_characters(std::string_view text);
/// The byte where character `index` begins, or the end of the text.
std::size_t byte_of_character(std::string_view text, std::size_t index);

bool is_space(char32_t c);      // str.isspace
bool is_printable(char32_t c);  // what repr() shows as it is
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_number(char32_t c);  // str.isnumeric
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);       // neither: one letter that looks like two, as U+01C5
bool is_line_break(char32_t c);  // for str.splitlines

bool is_cased(char32_t c);
bool is_case_ignorable(char32_t c);  // marks and signs that do not end a word

/// Characters that one becomes, which may be several.
using Letters = std::u32string_view;
/// Gives the change of a character; `one` holds it where it is one.
Letters upper(char32_t c, char32_t& one);
Letters lower(char32_t c, char32_t& one);
Letters folded(char32_t c, char32_t& one);
/// The same of the character text[begin, end): a capital sigma that ends a word of several letters
/// becomes another one. Looks no farther than to the letters next to it.
Letters small(std::string_view text, std::size_t begin, std::size_t end, char32_t& one);
Letters titled(char32_t c, char32_t& one);

/// The part of [0, text.size()) without white space at its ends.
struct Range {
  std::size_t begin;
  std::size_t end;
};
Range stripped(std::string_view text, bool left, bool right);
/// The same for the characters that `drops` says.
template <typename Drops>
Range stripped_by(std::string_view text, bool left, bool right, const Drops& drops) {
  Range range = {0, text.size()};
  while (left && range.begin < range.end) {
    const Character c = character_at(text, range.begin);
    if (!drops(c.value)) break;
    range.begin += c.length;
  }
  while (right && range.begin < range.end) {
    const std::size_t last = character_before(text, range.end);
    if (!drops(character_at(text, last).value)) break;
    range.end = last;
  }
  return range;
}

}  // namespace subbyte::jinja
