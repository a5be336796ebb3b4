#pragma once
// The alphabet in which tokenizer.json spells bytes: 256 printable characters (GPT-2's table).
//
//   21..7E, A1..AC, AE..FF       themselves, as U+0021 .. U+00FF
//   the 68 others, in order      U+0100, U+0101, ...     so 20 (space) is U+0120

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace subbyte::byte_alphabet {

/// The character that stands for `byte`.
char32_t character_of(uint8_t byte);

/// Appends the characters that stand for `bytes`.
void append_characters(std::string_view bytes, std::string& text);

/// The bytes that `text` spells, or nullopt when some character is not of the alphabet.
std::optional<std::string> bytes_of(std::string_view text);

}  // namespace subbyte::byte_alphabet
