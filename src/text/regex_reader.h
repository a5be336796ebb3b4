#pragma once
// The parts of a pattern that stand for characters: letters, escapes, properties and classes.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/character_set.h"

namespace subbyte {

inline bool is_ascii_letter(char32_t c) {
  return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}
inline bool is_ascii_digit(char32_t c) {
  return c >= '0' && c <= '9';
}

/// Adds a character and those that are the same to a pattern that ignores case.
void add_both_cases(char32_t c, CharacterSet& set);

class RegexReader {
 protected:
  static constexpr std::size_t kMaxGroupDepth = 200;  // groups are read and compiled by recursion
  static constexpr std::size_t kMaxAlgebra = 256;     // sets that are made of others: 0.1 ms each

  struct Group {
    std::size_t depth = 0;
    bool ignore_case = false;
  };
  /// One escape or literal: a code point, or a set.
  struct Item {
    std::optional<char32_t> literal;
    CharacterSet set;
  };

  explicit RegexReader(std::string_view pattern) : pattern_(pattern) {}

  bool at(std::string_view text) const { return pattern_.substr(pos_).starts_with(text); }

  Error unsupported(std::string_view what) const;
  Error bad(std::string_view what) const;
  Error too_many_sets() const;
  std::string shown() const;

  /// The item at `pos_`, which goes on after it.
  Result<Item> next_item(const Group& group);
  Result<CharacterSet> char_class(const Group& outer);

  std::string_view pattern_;
  std::size_t pos_ = 0;
  char32_t last_letter_ = 0;  // of a group that ignores case, in lower case

 private:
  Status class_item(const Group& group, bool first, CharacterSet& set);
  Result<Item> property(const Group& group);
  Result<Item> hex_escape();

  std::size_t num_algebra_ = 0;
};

}  // namespace subbyte
