#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace subbyte::interpreter {

/// Text without blanks at its ends.
std::string_view trimmed(std::string_view text);

/// The words between blanks.
std::vector<std::string> words_of(std::string_view text);

/// The parts between dots: ld.global.f32
std::vector<std::string> parts_of(std::string_view name);

/// The parts between commas that are in no bracket.
std::vector<std::string> arguments_of(std::string_view list);

/// The text between the first and the last character.
std::string_view inside(std::string_view text);

/// The bits of a constant: 12, -1, 0x1f, 0f3F800000 (PTX ISA 9.0, "Constants").
uint64_t parse_number(std::string_view text);

/// A declaration such as ".align 16 .b8 name[64]", its type and its size in bytes.
struct Declaration {
  std::string name;
  uint64_t alignment = 1;
  uint64_t element_bytes = 1;
  uint64_t bytes = 0;
  bool is_open = false;  // name[]

  /// Places it at the end of a block of memory. Returns its offset.
  uint64_t place(uint64_t& end) const;
};
Declaration parse_declaration(std::string_view text);

}  // namespace subbyte::interpreter
