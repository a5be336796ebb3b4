#pragma once
// Characters of UTF-8 as Python's str sees them.

#include <cstddef>
#include <string>
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
void append_character(std::string& text, char32_t value);

bool is_space(char32_t c);      // str.isspace
bool is_printable(char32_t c);  // what repr() shows as it is
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_number(char32_t c);  // str.isnumeric, but for letters that count
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_line_break(char32_t c);  // for str.splitlines

std::string upper(std::string_view text);
std::string lower(std::string_view text);
/// The first letter of each word upper, the others lower.
std::string title(std::string_view text);
std::string capitalized(std::string_view text);
std::string swapped_case(std::string_view text);

/// The part of [0, text.size()) without white space at its ends.
struct Range {
  std::size_t begin;
  std::size_t end;
};
Range stripped(std::string_view text, bool left, bool right);
/// The same for the characters of `set`.
Range stripped(std::string_view text, std::string_view set, bool left, bool right);

}  // namespace subbyte::jinja
