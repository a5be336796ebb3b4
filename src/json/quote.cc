#include "json/quote.h"

#include <cstdint>

#include "json/utf8.h"

namespace subbyte::json {
namespace {

void append_byte(std::string& out, char prefix, uint8_t byte) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out.push_back('\\');
  out.push_back(prefix);
  if (prefix == 'u') out.append("00");
  out.push_back(kHex[byte >> 4]);
  out.push_back(kHex[byte & 15]);
}

}  // namespace

std::string quote(std::string_view text, std::size_t max_bytes) {
  const bool cut = text.size() > max_bytes;
  if (cut) text = text.substr(0, max_bytes);
  std::string out = "\"";
  // Bytes from here on are not UTF-8, or are the first half of a character that was cut.
  std::size_t valid = find_invalid_utf8(text).value_or(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (i == valid) {
      if (cut && text.size() - i < 4) break;
      append_byte(out, 'x', byte);
      valid = i + 1 + find_invalid_utf8(text.substr(i + 1)).value_or(text.size() - i - 1);
    } else if (byte < 0x20 || byte == 0x7F) {
      append_byte(out, 'u', byte);
    } else if (byte == 0xC2 && static_cast<uint8_t>(text[i + 1]) < 0xA0) {
      append_byte(out, 'u', static_cast<uint8_t>(text[++i]));
    } else {
      if (byte == '"' || byte == '\\') out.push_back('\\');
      out.push_back(text[i]);
    }
  }
  out.append(cut ? "...\"" : "\"");
  return out;
}

}  // namespace subbyte::json
