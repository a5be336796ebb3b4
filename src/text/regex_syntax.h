#pragma once
// Patterns of tokenizer.json are written for Oniguruma (Ruby syntax, UTF-8). This reads the part of
// that language that tokenizers use, with the meaning that it has there, and refuses the rest by
// name instead of guessing.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/character_set.h"

namespace subbyte {

/// A pattern as a tree. The depth is bounded by that of the groups.
struct RegexTree {
  enum class Kind : uint8_t {
    kSet,           // one character of `set`
    kSequence,      // all children, one after the other; none: the empty text
    kAlternatives,  // the first child that leads to a match
    kRepeat,        // the child `min` to `max` times, more rather than fewer unless `lazy`
    kAtomic,        // what the child matches first, whatever follows
    kAhead,         // nothing, where the child matches from here on (or, `negative`, does not)
    kAfter,         // nothing, after one of the `kinds` of characters
  };
  /// Kinds of what stands before a place, as far as a pattern can ask.
  enum Before : uint8_t { kStart, kNewline, kOther, kWord };
  static constexpr std::size_t kNumBefore = 4;
  static constexpr uint32_t kUnlimited = UINT32_MAX;

  /// Says whether it can match the empty text.
  bool is_nullable() const;

  Kind kind = Kind::kSequence;
  bool lazy = false;
  bool negative = false;
  uint8_t kinds = 0;  // a bit for each of Before
  uint32_t min = 0;
  uint32_t max = 0;
  std::size_t set = 0;  // in Regex::sets
  std::vector<RegexTree> children;
};

struct Regex {
  static constexpr uint32_t kNoSet = UINT32_MAX;

  RegexTree tree;
  std::vector<CharacterSet> sets;  // normalized, each once
  // Of a pattern that asks what stands before a place: the sets of the characters of each kind, by
  // RegexTree::Before, and each set of the tree cut to those.
  bool looks_back = false;
  std::array<uint32_t, RegexTree::kNumBefore> kind_sets{};
  std::vector<std::array<uint32_t, RegexTree::kNumBefore>> cut_sets;
};

/// `pattern` is valid UTF-8.
/// Codes: tokenizer.unsupported, tokenizer.bad_regex, tokenizer.regex_too_long,
/// tokenizer.regex_too_complex.
Result<Regex> parse_regex(std::string_view pattern);

/// A pattern that matches `text` and nothing else.
std::string literal_regex(std::string_view text);

}  // namespace subbyte
