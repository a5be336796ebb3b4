#include "base/quote.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/utf8.h"

namespace subbyte {
namespace {

constexpr char kNoMark = '\0';

/// Characters beyond ASCII that change a line without being seen in it.
struct Range {
  char32_t first;
  char32_t last;
};
constexpr std::array kHidden = {
    Range{0x80, 0x9F},        // C1
    Range{0xAD, 0xAD},        // soft hyphen
    Range{0x61C, 0x61C},      // Arabic letter mark
    Range{0x180E, 0x180E},    // Mongolian vowel separator
    Range{0x200B, 0x200F},    // zero width, marks of direction
    Range{0x2028, 0x202E},    // separators of lines, bidi embeddings and overrides
    Range{0x2060, 0x206F},    // invisible operators, bidi isolates
    Range{0xFEFF, 0xFEFF},    // byte order mark
    Range{0xFFF9, 0xFFFB},    // interlinear annotation
    Range{0xE0000, 0xE0FFF},  // tags, variation selectors
};

bool is_hidden(char32_t c) {
  return std::ranges::any_of(
      kHidden, [c](const Range& range) { return c >= range.first && c <= range.last; });
}

bool is_plain(char c) {
  return c >= 0x20 && c < 0x7F;
}

void append_hex(std::string& out, char kind, char32_t value, int digits) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out.push_back('\\');
  out.push_back(kind);
  for (int i = digits - 1; i >= 0; --i) out.push_back(kHex[value >> (4 * i) & 15]);
}

/// The value of a well-formed sequence.
char32_t decode(std::string_view sequence) {
  const auto lead = static_cast<uint8_t>(sequence[0]);
  char32_t value = sequence.size() == 1 ? lead : lead & (0xFFu >> (sequence.size() + 1));
  for (const char c : sequence.substr(1)) value = value << 6 | (static_cast<uint8_t>(c) & 0x3F);
  return value;
}

void append_character(std::string& out, std::string_view sequence, char mark) {
  const char32_t value = decode(sequence);
  if (value < 0x20 || value == 0x7F || (value < 0x10000 && is_hidden(value))) {
    append_hex(out, 'u', value, 4);
  } else if (is_hidden(value)) {
    append_hex(out, 'U', value, 8);
  } else {
    const bool marks = value == '\\' || value == static_cast<char32_t>(mark);
    if (mark != kNoMark && marks) out.push_back('\\');
    out.append(sequence);
  }
}

/// `cut`: text follows that is left out, perhaps from the middle of a character.
void append_escaped(std::string& out, std::string_view text, char mark, bool cut) {
  constexpr std::size_t kLongest = 4;  // bytes of a character
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_sequence_length(text.substr(at));
    if (length > 0) {
      append_character(out, text.substr(at, length), mark);
      at += length;
      continue;
    }
    if (cut && text.size() - at < kLongest) return;
    append_hex(out, 'x', static_cast<uint8_t>(text[at++]), 2);
  }
}

}  // namespace

std::string printable(std::string_view text) {
  if (std::ranges::all_of(text, is_plain)) return std::string(text);
  std::string out;
  append_escaped(out, text, kNoMark, false);
  return out;
}

std::string quote(std::string_view text, std::size_t max_bytes) {
  const bool cut = text.size() > max_bytes;
  std::string out(1, '"');
  append_escaped(out, text.substr(0, max_bytes), '"', cut);
  if (cut) out.append("...");
  out.push_back('"');
  return out;
}

std::string quote_name(std::string_view name, std::size_t max_bytes) {
  return quote(name, max_bytes);
}

}  // namespace subbyte
