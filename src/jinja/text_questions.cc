// The methods of Python's str that answer yes or no.

#include <algorithm>

#include "jinja/characters.h"
#include "jinja/methods.h"
#include "unicode/unicode.h"

namespace subbyte::jinja {
namespace {

template <typename Fits>
bool all_of(std::string_view text, const Fits& fits) {
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    if (!fits(c.value)) return false;
    at += c.length;
  }
  return !text.empty();
}

/// Has letters with a case, and all of them have this one.
template <typename Fits, typename Other>
bool has_case(std::string_view text, const Fits& fits, const Other& other) {
  bool found = false;
  const bool all = all_of(text, [&](char32_t c) {
    found = found || fits(c);
    return !other(c) && !is_title(c);
  });
  return all && found;
}

bool has_titles(std::string_view text) {
  bool inside = false;
  bool found = false;
  const bool fits = all_of(text, [&](char32_t c) {
    const bool begins = is_upper(c) || is_title(c);
    if (begins && inside) return false;
    if (is_lower(c) && !inside) return false;
    inside = is_cased(c);
    found = found || inside;
    return true;
  });
  return fits && found;
}

bool is_identifier(std::string_view text) {
  if (text.empty()) return false;
  const char32_t first = character_at(text, 0).value;
  return (first == '_' || unicode::begins_identifier(first)) &&
         all_of(text, unicode::continues_identifier);
}

}  // namespace

std::optional<bool> answer_of_text(std::string_view name, std::string_view text) {
  if (name == "isalpha") return all_of(text, is_alpha);
  if (name == "isdecimal") return all_of(text, is_decimal);
  if (name == "isdigit") return all_of(text, is_digit);
  if (name == "isnumeric") return all_of(text, is_number);
  if (name == "isspace") return all_of(text, is_space);
  if (name == "isalnum") {
    return all_of(text, [](char32_t c) { return is_alpha(c) || is_number(c); });
  }
  if (name == "isprintable") return text.empty() || all_of(text, is_printable);
  if (name == "isascii") return text.empty() || all_of(text, [](char32_t c) { return c < 0x80; });
  if (name == "islower") return has_case(text, is_lower, is_upper);
  if (name == "isupper") return has_case(text, is_upper, is_lower);
  if (name == "istitle") return has_titles(text);
  if (name == "isidentifier") return is_identifier(text);
  return std::nullopt;
}

}  // namespace subbyte::jinja
