#pragma once
// UTF-8 from untrusted sources. What is not UTF-8 is cut into "maximal invalid parts": the
// longest prefix of some valid character, or else one byte. Each becomes one U+FFFD, which is what
// Unicode recommends (section 3.9) and what Rust, browsers and Python do.
//
//   E2 82 41     -> U+FFFD 'A'         (E2 82 begins U+20AC)
//   C0 80        -> U+FFFD U+FFFD      (C0 begins nothing)
//   ED A0 80     -> U+FFFD x 3         (a surrogate: A0 may not follow ED)

#include <cstddef>
#include <string>
#include <string_view>

namespace subbyte::utf8 {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Decoded {
  char32_t value;      // U+FFFD when not valid
  std::size_t length;  // bytes taken, at least 1
  bool valid;
  bool cut_off;  // not valid only because the text ends too early
};

/// The character at the front of `text`, which must not be empty.
Decoded decode_one(std::string_view text);

/// Start of the last character of valid UTF-8 that is not empty.
std::size_t last_character(std::string_view text);

/// `text` with every maximal invalid part replaced by U+FFFD.
std::string replace_invalid(std::string_view text);

/// How many bytes at the end of `text` begin a character that could still be completed: 0 to 3.
std::size_t unfinished_bytes(std::string_view text);

/// Appends a scalar value (not a surrogate, at most U+10FFFF) to a text of bytes.
template <typename Text>
void append(Text& text, char32_t value) {
  const auto push = [&text](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (value < 0x80) {
    push(value);
  } else if (value < 0x800) {
    push(0xC0 | value >> 6);
    push(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    push(0xE0 | value >> 12);
    push(0x80 | (value >> 6 & 0x3F));
    push(0x80 | (value & 0x3F));
  } else {
    push(0xF0 | value >> 18);
    push(0x80 | (value >> 12 & 0x3F));
    push(0x80 | (value >> 6 & 0x3F));
    push(0x80 | (value & 0x3F));
  }
}

}  // namespace subbyte::utf8
