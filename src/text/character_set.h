#pragma once
// Sets of code points as patterns write them, and the classes that all sets of a pattern together
// make: two code points of one class are in the same sets, so a table needs a column for each
// class only.

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"

namespace subbyte {

struct CharacterSet {
  struct Range {
    char32_t first;
    char32_t last;  // included
    auto operator<=>(const Range&) const = default;
  };

  void add(char32_t first, char32_t last) { ranges.push_back({first, last}); }
  void add(const CharacterSet& other);  // which is not negated
  /// Sorts and joins the ranges; contains() needs it.
  void normalize();
  /// The same set as ranges alone, sorted and joined.
  CharacterSet spelled_out() const;
  /// The characters that are in both.
  CharacterSet operator&(const CharacterSet& other) const;
  /// `category` is the number of the code point's general category.
  bool contains(char32_t point, unsigned category) const;

  auto operator<=>(const CharacterSet&) const = default;

  std::vector<Range> ranges;
  uint32_t categories = 0;  // bits of unicode::category_bits
  bool negated = false;
};

class CharacterClasses {
 public:
  /// Makes the classes of normalized sets. Code tokenizer.regex_too_complex: the table of sets by
  /// classes would be too large.
  static Result<CharacterClasses> of(const std::vector<CharacterSet>& sets);

  /// The class of a code point: [0, size()).
  uint16_t operator[](char32_t point) const {
    return point < 0x80 ? ascii_[point]
                        : blocks_[std::size_t{index_[point / kBlock]} * kBlock + point % kBlock];
  }
  std::size_t size() const { return members_.size(); }
  bool contains(std::size_t set, std::size_t cls) const { return members_[cls][set]; }

 private:
  static constexpr std::size_t kBlock = 128;

  void fill(const std::vector<char32_t>& starts, const std::vector<uint16_t>& classes);

  std::array<uint16_t, 0x80> ascii_{};
  std::vector<uint16_t> index_;             // by code point / kBlock, into blocks_
  std::vector<uint16_t> blocks_;            // each block once
  std::vector<std::vector<bool>> members_;  // by class and set
};

}  // namespace subbyte
