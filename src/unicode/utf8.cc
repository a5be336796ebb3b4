#include "unicode/utf8.h"

#include <algorithm>
#include <cstdint>

namespace subbyte::utf8 {
namespace {

struct Lead {
  std::size_t length;  // of the whole character; 0: this byte begins none
  unsigned char low;   // range of the second byte; the others are 80..BF
  unsigned char high;
};

/// Table 3-7 of the Unicode standard. The narrow ranges keep out overlong forms (E0, F0),
/// surrogates (ED) and what lies above U+10FFFF (F4).
Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Decoded decode_one(std::string_view text) {
  constexpr char32_t kBad = 0xFFFD;
  const auto first = static_cast<unsigned char>(text[0]);
  const Lead lead = lead_of(first);
  if (lead.length == 1) return {first, 1, true, false};
  if (lead.length == 0) return {kBad, 1, false, false};
  char32_t value = first & (0x7FU >> lead.length);
  unsigned char low = lead.low;
  unsigned char high = lead.high;
  for (std::size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {kBad, i, false, true};
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < low || byte > high) return {kBad, i, false, false};
    value = value << 6 | (byte & 0x3FU);
    low = 0x80;
    high = 0xBF;
  }
  return {value, lead.length, true, false};
}

std::size_t last_character(std::string_view text) {
  std::size_t pos = text.size() - 1;
  while (pos > 0 && (static_cast<unsigned char>(text[pos]) & 0xC0) == 0x80) --pos;
  return pos;
}

std::string replace_invalid(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Decoded c = decode_one(text);
    out.append(c.valid ? text.substr(0, c.length) : kReplacement);
    text.remove_prefix(c.length);
  }
  return out;
}

std::size_t unfinished_bytes(std::string_view text) {
  // The last lead byte is among the last three. A tail that starts with it and is cut off cannot
  // be a part of an earlier character, for no lead byte continues one.
  const std::size_t most = std::min<std::size_t>(3, text.size());
  for (std::size_t n = 1; n <= most; ++n) {
    const Decoded c = decode_one(text.substr(text.size() - n));
    if (c.cut_off && c.length == n) return n;
  }
  return 0;
}

}  // namespace subbyte::utf8
