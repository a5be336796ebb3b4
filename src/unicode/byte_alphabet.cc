#include "unicode/byte_alphabet.h"

#include <array>

#include "unicode/utf8.h"

namespace subbyte::byte_alphabet {
namespace {

constexpr std::size_t kNumCharacters = 256 + 68;  // the largest is U+0143

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Tables {
  std::array<uint16_t, 256> characters{};
  std::array<int16_t, kNumCharacters> bytes{};
};

constexpr Tables make_tables() {
  Tables tables;
  for (auto& byte : tables.bytes) byte = -1;
  unsigned next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const unsigned character = stands_for_itself(byte) ? byte : next++;
    tables.characters[byte] = static_cast<uint16_t>(character);
    tables.bytes[character] = static_cast<int16_t>(byte);
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

char32_t character_of(uint8_t byte) {
  return kTables.characters[byte];
}

void append_characters(std::string_view bytes, std::string& text) {
  for (const char byte : bytes) utf8::append(text, character_of(static_cast<uint8_t>(byte)));
}

std::optional<std::string> bytes_of(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  while (!text.empty()) {
    const utf8::Decoded c = utf8::decode_one(text);
    text.remove_prefix(c.length);
    if (!c.valid || c.value >= kNumCharacters || kTables.bytes[c.value] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kTables.bytes[c.value]));
  }
  return bytes;
}

}  // namespace subbyte::byte_alphabet
