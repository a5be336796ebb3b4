#pragma once
// Patterns of tokenizer.json are written for Oniguruma (Ruby syntax, UTF-8). This reads the part of
// that language that tokenizers use, with the meaning that it has there, and refuses the rest by
// name instead of guessing.

#include <cstddef>
#include <cstdint>
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
  };
  static constexpr uint32_t kUnlimited = UINT32_MAX;

  /// Says whether it can match the empty text.
  bool is_nullable() const;

  Kind kind = Kind::kSequence;
  bool lazy = false;
  bool negative = false;
  uint32_t min = 0;
  uint32_t max = 0;
  std::size_t set = 0;  // in Regex::sets
  std::vector<RegexTree> children;
};

struct Regex {
  RegexTree tree;
  std::vector<CharacterSet> sets;  // normalized, each once
};

/// `pattern` is valid UTF-8.
/// Codes: tokenizer.unsupported, tokenizer.bad_regex, tokenizer.regex_too_long.
Result<Regex> parse_regex(std::string_view pattern);

}  // namespace subbyte
