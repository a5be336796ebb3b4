// What Oniguruma means, found by running it over every code point, and what is refused:
//
//   \s \S         White_Space, with U+0085 and without U+180E; ranges here, so that no table of a
//                 library decides.
//   (?i:s) (?i:k) match U+017F and U+212A as well.
//   (?i:st)       also matches the ligature U+FB06 (ff, fi, fl, ss, st): refused.
//   \d            is \p{Nd}.
//   \h \v \w \b   refused. So are ^ and $ (every line), {,n}, {n}+ and {n}?, [a[b]], [a&&b],
//                 POSIX classes, lookbehind, back references, recursion, (*VERBS), (?flags), and
//                 properties that are no general category.
//   (?:a?){2}     a counted repeat of what can match nothing: Oniguruma ends it early or not,
//                 depending on how it has unrolled it: refused.
//   \p{L} ...     the same but for the version of Unicode, see character_set.cc. Characters
//                 assigned since then are Cn here, so they count as neither letter, number nor
//                 mark.

#include "text/regex_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/quote.h"
#include "text/utf8.h"

namespace subbyte {
namespace {

constexpr std::size_t kMaxPatternBytes = 64 * 1024;
constexpr std::size_t kMaxGroupDepth = 200;  // groups are read and compiled by recursion
constexpr uint32_t kMaxRepeats = 65535;

using Kind = RegexTree::Kind;

CharacterSet space_set(bool other) {
  CharacterSet space;
  space.ranges = {{0x9, 0xD},       {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},
                  {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                  {0x205F, 0x205F}, {0x3000, 0x3000}};
  if (!other) return space;
  CharacterSet rest;
  char32_t next = 0;
  for (const CharacterSet::Range& range : space.ranges) {
    rest.add(next, range.first - 1);
    next = range.last + 1;
  }
  rest.add(next, 0x10FFFF);
  return rest;
}

CharacterSet categories(std::string_view name, bool other) {
  CharacterSet set;
  set.categories = CharacterSet::category_bits(name);
  if (other) set.categories ^= CharacterSet::kAllCategories;
  return set;
}

bool is_letter(char32_t c) {
  return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}
bool is_digit(char32_t c) {
  return c >= '0' && c <= '9';
}

void add_both_cases(char32_t c, CharacterSet& set) {
  set.add(c, c);
  if (!is_letter(c)) return;
  set.add(c ^ 0x20, c ^ 0x20);
  if ((c | 0x20) == 's') set.add(0x17F, 0x17F);
  if ((c | 0x20) == 'k') set.add(0x212A, 0x212A);
}

class Parser {
 public:
  explicit Parser(std::string_view pattern) : pattern_(pattern) {}

  Result<Regex> run() {
    if (pattern_.size() > kMaxPatternBytes) {
      return Error{"tokenizer.regex_too_long",
                   fmt::format("pattern of {} bytes, at most {} are taken", pattern_.size(),
                               kMaxPatternBytes)};
    }
    SUBBYTE_TRY(RegexTree tree, alternatives({}));
    if (pos_ < pattern_.size()) return bad("')' without a group");
    std::vector<CharacterSet> sets(sets_.size());
    for (const auto& [set, idx] : sets_) sets[idx] = set;
    return Regex{std::move(tree), std::move(sets)};
  }

 private:
  struct Group {
    std::size_t depth = 0;
    bool ignore_case = false;
  };
  /// One escape or literal: a code point, or a set.
  struct Item {
    std::optional<char32_t> literal;
    CharacterSet set;
  };

  bool at(std::string_view text) const { return pattern_.substr(pos_).starts_with(text); }

  Error unsupported(std::string_view what) const {
    return {"tokenizer.unsupported",
            fmt::format("pattern {}: {} at byte {} is not supported", shown(), what, pos_)};
  }
  Error bad(std::string_view what) const {
    return {"tokenizer.bad_regex", fmt::format("pattern {}: {} at byte {}", shown(), what, pos_)};
  }
  std::string shown() const { return quote(pattern_, 60); }

  RegexTree leaf(CharacterSet set) {
    set.normalize();
    RegexTree tree;
    tree.kind = Kind::kSet;
    tree.set = sets_.emplace(std::move(set), sets_.size()).first->second;
    return tree;
  }

  static RegexTree parent(Kind kind, std::vector<RegexTree> children) {
    RegexTree tree;
    tree.kind = kind;
    tree.children = std::move(children);
    return tree;
  }

  /// Up to the ')' of the group or the end of the pattern.
  Result<RegexTree> alternatives(const Group& group) {
    std::vector<RegexTree> all;
    while (true) {
      SUBBYTE_TRY(RegexTree one, sequence(group));
      all.push_back(std::move(one));
      if (!at("|")) break;
      last_letter_ = 0;
      ++pos_;
    }
    if (all.size() == 1) return std::move(all.front());
    return parent(Kind::kAlternatives, std::move(all));
  }

  Result<RegexTree> sequence(const Group& group) {
    std::vector<RegexTree> parts;
    while (pos_ < pattern_.size() && !at("|") && !at(")")) {
      SUBBYTE_TRY(RegexTree part, repeated(group));
      parts.push_back(std::move(part));
    }
    return parent(Kind::kSequence, std::move(parts));
  }

  /// A group or a character, with the repeat that follows it.
  Result<RegexTree> repeated(const Group& group) {
    if (at_repeat()) {
      if (at("{")) return unsupported("a '{' that repeats nothing");
      return bad("nothing to repeat");
    }
    const bool is_group = at("(");
    SUBBYTE_TRY(RegexTree child, is_group ? this->group(group) : atom(group));
    if (!at_repeat()) return child;
    last_letter_ = 0;
    if (child.kind == Kind::kAhead) return unsupported("a repeat of a lookahead");
    SUBBYTE_TRY(RegexTree tree, at("{") ? counted_repeat(child) : simple_repeat(child));
    if (at_repeat()) return bad("nothing to repeat");
    return tree;
  }

  bool at_repeat() const { return at("?") || at("*") || at("+") || at("{"); }

  /// ?, * or +, and the same followed by ? (lazy) or + (possessive).
  Result<RegexTree> simple_repeat(RegexTree& child) {
    RegexTree tree = parent(Kind::kRepeat, {});
    tree.children.push_back(std::move(child));
    tree.min = at("+") ? 1 : 0;
    tree.max = at("?") ? 1 : RegexTree::kUnlimited;
    ++pos_;
    const bool possessive = at("+");
    tree.lazy = at("?");
    if (possessive || tree.lazy) ++pos_;
    if (!possessive) return tree;
    std::vector<RegexTree> inside;
    inside.push_back(std::move(tree));
    return parent(Kind::kAtomic, std::move(inside));
  }

  /// {n}, {n,} and {n,m}. Followed by ? or + it means something else in each library.
  Result<RegexTree> counted_repeat(RegexTree& child) {
    const std::size_t close = pattern_.find('}', pos_);
    if (close == std::string_view::npos) return unsupported("a '{' that repeats nothing");
    const std::string_view inside = pattern_.substr(pos_ + 1, close - pos_ - 1);
    const std::size_t comma = inside.find(',');
    const bool has_max = comma != std::string_view::npos && comma + 1 < inside.size();
    const std::optional<uint32_t> min = count(inside.substr(0, comma));
    const std::optional<uint32_t> max = has_max ? count(inside.substr(comma + 1)) : min;
    if (!min || !max) return unsupported("this repeat");
    if (close + 1 < pattern_.size() && (pattern_[close + 1] == '+' || pattern_[close + 1] == '?')) {
      return unsupported("a possessive or lazy {n,m}");
    }
    if (child.is_nullable()) return unsupported("a counted repeat of what can match nothing");
    RegexTree tree = parent(Kind::kRepeat, {});
    tree.children.push_back(std::move(child));
    tree.min = *min;
    tree.max = comma == std::string_view::npos || has_max ? *max : RegexTree::kUnlimited;
    if (tree.max < tree.min) return bad("a repeat of at least more than at most");
    if (*max > kMaxRepeats) return bad("a repeat of more than 65535 times");
    pos_ = close + 1;
    return tree;
  }

  static std::optional<uint32_t> count(std::string_view digits) {
    if (digits.empty() || digits.size() > 5) return std::nullopt;
    uint32_t value = 0;
    for (const char c : digits) {
      if (!is_digit(static_cast<unsigned char>(c))) return std::nullopt;
      value = value * 10 + static_cast<uint32_t>(c - '0');
    }
    return value;
  }

  Result<RegexTree> group(const Group& outer) {
    if (outer.depth == kMaxGroupDepth) return unsupported("a group this deep");
    Group group{outer.depth + 1, outer.ignore_case};
    last_letter_ = 0;
    std::optional<bool> negative_ahead;
    if (at("(?i:")) {
      group.ignore_case = true;
      pos_ += 4;
    } else if (at("(?:") || at("(?!") || at("(?=")) {
      if (!at("(?:")) negative_ahead = at("(?!");
      pos_ += 3;
    } else if (at("(?")) {
      return unsupported("a group of this kind");
    } else {
      pos_ += 1;  // captures are not used
    }
    SUBBYTE_TRY(RegexTree inside, alternatives(group));
    if (!at(")")) return bad("a group is not closed");
    last_letter_ = 0;
    ++pos_;
    if (!negative_ahead) return inside;
    std::vector<RegexTree> child;
    child.push_back(std::move(inside));
    RegexTree tree = parent(Kind::kAhead, std::move(child));
    tree.negative = *negative_ahead;
    return tree;
  }

  Result<RegexTree> atom(const Group& group) {
    const char c = pattern_[pos_];
    if (c == '^' || c == '$') return unsupported("an anchor");
    if (c == '[') return char_class(group);
    CharacterSet set;
    if (c == '.') {
      ++pos_;
      last_letter_ = 0;
      set.add('\n', '\n');
      set.negated = true;
      return leaf(std::move(set));
    }
    SUBBYTE_TRY(Item item, next_item(group));
    if (!item.literal) {
      last_letter_ = 0;
      return leaf(std::move(item.set));
    }
    if (!group.ignore_case) {
      set.add(*item.literal, *item.literal);
      return leaf(std::move(set));
    }
    SUBBYTE_CHECK(check_fold(*item.literal));
    add_both_cases(*item.literal, set);
    return leaf(std::move(set));
  }

  /// Refuses what has more case variants than one character shows.
  Status check_fold(char32_t c) {
    if (c >= 0x80) return unsupported("ignoring the case of a non-ASCII character");
    const char32_t lower = is_letter(c) ? c | 0x20 : 0;
    const bool ligature = (last_letter_ == 'f' && (lower == 'f' || lower == 'i' || lower == 'l')) ||
                          (last_letter_ == 's' && (lower == 's' || lower == 't'));
    if (ligature) return unsupported("ignoring the case of a pair that is also a ligature");
    last_letter_ = lower;
    return {};
  }

  Result<RegexTree> char_class(const Group& group) {
    last_letter_ = 0;
    ++pos_;
    CharacterSet set;
    if (at("^")) {
      if (group.ignore_case) return unsupported("a negated class that ignores case");
      set.negated = true;
      ++pos_;
    }
    if (at("]")) return unsupported("']' at the front of a class");
    for (bool first = true; !at("]"); first = false) {
      if (pos_ >= pattern_.size()) return bad("a class is not closed");
      SUBBYTE_CHECK(class_item(group, first, set));
    }
    ++pos_;
    return leaf(std::move(set));
  }

  Status class_item(const Group& group, bool first, CharacterSet& set) {
    if (at("[") || at("&&")) return unsupported("a class within a class");
    if (at("-") && !first && !at("-]")) return unsupported("a '-' in the middle of a class");
    SUBBYTE_TRY(const Item item, next_item(group));
    const bool range = at("-") && !at("-]");
    if (group.ignore_case && (!item.literal || *item.literal >= 0x80 || range)) {
      return unsupported("this class in a group that ignores case");
    }
    if (!item.literal) {
      if (range) return unsupported("a '-' after a set");
      set.add(item.set);
      return {};
    }
    if (group.ignore_case) {
      add_both_cases(*item.literal, set);
      return {};
    }
    if (!range) {
      set.add(*item.literal, *item.literal);
      return {};
    }
    ++pos_;
    if (at("[")) return unsupported("a class within a class");
    SUBBYTE_TRY(const Item last, next_item(group));
    if (!last.literal) return unsupported("a range that ends in a set");
    if (*last.literal < *item.literal) return bad("a range that runs backwards");
    set.add(*item.literal, *last.literal);
    return {};
  }

  Result<Item> next_item(const Group& group) {
    if (pos_ >= pattern_.size()) return bad("the pattern ends too early");
    if (!at("\\")) {
      const utf8::Decoded c = utf8::decode_one(pattern_.substr(pos_));
      pos_ += c.length;
      return Item{c.value, {}};
    }
    if (pos_ + 1 >= pattern_.size()) return bad("a '\\' at the end");
    const char c = pattern_[pos_ + 1];
    if (c == 'p' || c == 'P') return property(group);
    if (c == 'x' || c == 'u') return hex_escape();
    pos_ += 2;
    switch (c) {
      case 's':
        return Item{{}, space_set(false)};
      case 'S':
        return Item{{}, space_set(true)};
      case 'd':
        return Item{{}, categories("Nd", false)};
      case 'D':
        return Item{{}, categories("Nd", true)};
      case 'n':
        return Item{U'\n', {}};
      case 'r':
        return Item{U'\r', {}};
      case 't':
        return Item{U'\t', {}};
      case 'f':
        return Item{U'\f', {}};
      default:
        break;
    }
    const auto value = static_cast<unsigned char>(c);
    if (value > 0x20 && value < 0x7F && !is_letter(value) && !is_digit(value)) {
      return Item{value, {}};
    }
    pos_ -= 2;
    return unsupported("this escape");
  }

  Result<Item> property(const Group& group) {
    const std::size_t close = pattern_.find('}', pos_);
    if (close == std::string_view::npos || pattern_[pos_ + 2] != '{') {
      return unsupported("a property without braces");
    }
    const std::string_view name = pattern_.substr(pos_ + 3, close - pos_ - 3);
    if (CharacterSet::category_bits(name) == 0) {
      return unsupported("a property that is no general category");
    }
    // Lu, Ll and Lt lose their meaning when case is ignored, differently in each library.
    if (group.ignore_case) return unsupported("a property in a group that ignores case");
    Item item{{}, categories(name, pattern_[pos_ + 1] == 'P')};
    pos_ = close + 1;
    return item;
  }

  /// \x{H...} and \uHHHH.
  Result<Item> hex_escape() {
    std::string_view digits;
    std::size_t end = 0;
    if (at("\\x{")) {
      const std::size_t close = pattern_.find('}', pos_);
      if (close == std::string_view::npos) return bad("'\\x{' is not closed");
      digits = pattern_.substr(pos_ + 3, close - pos_ - 3);
      end = close + 1;
    } else if (at("\\u") && pattern_.size() - pos_ >= 6) {
      digits = pattern_.substr(pos_ + 2, 4);
      end = pos_ + 6;
    } else {
      return unsupported("this escape");
    }
    if (digits.empty() || digits.size() > 6) return bad("wrong number of hexadecimal digits");
    char32_t value = 0;
    for (const char c : digits) {
      const auto code = static_cast<unsigned char>(c);
      const auto lower = static_cast<unsigned char>(code | 0x20U);
      if (!is_digit(code) && (lower < 'a' || lower > 'f')) return bad("not a hexadecimal digit");
      value = value * 16 + (is_digit(code) ? code - U'0' : lower - U'a' + 10);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return bad("no character");
    pos_ = end;
    return Item{value, {}};
  }

  std::string_view pattern_;
  std::size_t pos_ = 0;
  std::map<CharacterSet, std::size_t> sets_;
  char32_t last_letter_ = 0;  // of a group that ignores case, in lower case
};

}  // namespace

bool RegexTree::is_nullable() const {
  const auto nullable = [](const RegexTree& child) { return child.is_nullable(); };
  switch (kind) {
    case Kind::kSet:
      return false;
    case Kind::kAhead:
      return true;
    case Kind::kAlternatives:
      return std::ranges::any_of(children, nullable);
    case Kind::kRepeat:
      return min == 0 || children.front().is_nullable();
    case Kind::kSequence:
    case Kind::kAtomic:
      break;
  }
  return std::ranges::all_of(children, nullable);
}

Result<Regex> parse_regex(std::string_view pattern) {
  return Parser(pattern).run();
}

}  // namespace subbyte
