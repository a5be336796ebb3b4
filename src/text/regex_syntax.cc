// What Oniguruma means, found by running it over every code point, and what is refused:
//
//   \s \S         White_Space, with U+0085 and without U+180E; ranges here, so that no table of a
//                 library decides.
//   (?i:s) (?i:k) match U+017F and U+212A as well.
//   (?i:st)       also matches the ligature U+FB06 (ff, fi, fl, ss, st): refused.
//   \d            is \p{Nd}.
//   \w            letters, marks, Nd, Nl, Pc, letters in circles and squares, and of the other
//                 numbers those of Latin-1 alone. \b stands between \w and what is not.
//   ^ $           of every line; ^ not after the newline that ends a text.
//   \h \v         refused. So are {,n}, {n}+ and {n}?, POSIX classes, lookbehind, back references,
//                 recursion, (*VERBS), (?flags), and properties that are neither a general category
//                 nor a script.
//   (?:a?){2}     a counted repeat of what can match nothing: Oniguruma ends it early or not,
//                 depending on how it has unrolled it: refused.
//   \p{L} ...     the same, as both have the tables of Unicode 16.

#include "text/regex_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "text/regex_reader.h"
#include "text/regex_sets.h"

namespace subbyte {
namespace {

constexpr std::size_t kMaxPatternBytes = 64 * 1024;
constexpr uint32_t kMaxRepeats = 65535;

using Kind = RegexTree::Kind;

class Parser : private RegexReader {
 public:
  explicit Parser(std::string_view pattern) : RegexReader(pattern) {}

  Result<Regex> run() {
    if (pattern_.size() > kMaxPatternBytes) {
      return Error{"tokenizer.regex_too_long",
                   fmt::format("pattern of {} bytes, at most {} are taken", pattern_.size(),
                               kMaxPatternBytes)};
    }
    SUBBYTE_TRY(RegexTree tree, alternatives({}));
    if (pos_ < pattern_.size()) return bad("')' without a group");
    Regex regex;
    regex.tree = std::move(tree);
    if (looks_back_) SUBBYTE_CHECK(cut_by_kinds(regex));
    regex.sets.resize(sets_.size());
    for (const auto& [set, idx] : sets_) regex.sets[idx] = set;
    return regex;
  }

 private:
  std::size_t number_of(CharacterSet set) {
    set.normalize();
    return sets_.emplace(std::move(set), sets_.size()).first->second;
  }

  RegexTree leaf(CharacterSet set) {
    RegexTree tree;
    tree.kind = Kind::kSet;
    tree.set = number_of(std::move(set));
    return tree;
  }

  Status cut_by_kinds(Regex& regex) {
    if (sets_.size() > kMaxAlgebra) return too_many_sets();
    regex.looks_back = true;
    const CharacterSet newline = one_character('\n');
    const CharacterSet word = word_set(false);
    CharacterSet rest = newline;
    rest.add(word);
    rest.negated = true;
    std::vector<const CharacterSet*> sets(sets_.size());
    for (const auto& [set, idx] : sets_) sets[idx] = &set;
    regex.kind_sets.fill(Regex::kNoSet);
    const std::pair<RegexTree::Before, const CharacterSet*> kinds[] = {
        {RegexTree::kNewline, &newline}, {RegexTree::kOther, &rest}, {RegexTree::kWord, &word}};
    for (const auto& [kind, members] : kinds) {
      regex.kind_sets[kind] = static_cast<uint32_t>(number_of(*members));
    }
    for (const CharacterSet* set : sets) {
      std::array<uint32_t, RegexTree::kNumBefore> cut{};
      cut.fill(Regex::kNoSet);
      for (const auto& [kind, members] : kinds) {
        CharacterSet both = *set & *members;
        if (!both.ranges.empty()) cut[kind] = static_cast<uint32_t>(number_of(std::move(both)));
      }
      regex.cut_sets.push_back(cut);
    }
    return {};
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
    std::optional<RegexTree> anchor = is_group ? std::nullopt : this->anchor();
    if (anchor) {
      if (at_repeat()) return unsupported("a repeat of an anchor");
      return std::move(*anchor);
    }
    SUBBYTE_TRY(RegexTree child, is_group ? this->group(group) : atom(group));
    if (!at_repeat()) return child;
    last_letter_ = 0;
    if (child.kind == Kind::kAhead) return unsupported("a repeat of a lookahead");
    SUBBYTE_TRY(RegexTree tree, at("{") ? counted_repeat(child) : simple_repeat(child));
    if (at_repeat()) return bad("nothing to repeat");
    return tree;
  }

  /// ^, $, \A, \z, \Z, \b and \B.
  std::optional<RegexTree> anchor() {
    const std::size_t length = at("^") || at("$") ? 1 : 2;
    const std::string_view name = pattern_.substr(pos_, length);
    constexpr uint8_t kStart = 1U << RegexTree::kStart;
    constexpr uint8_t kNewline = 1U << RegexTree::kNewline;
    constexpr uint8_t kWord = 1U << RegexTree::kWord;
    constexpr uint8_t kNoWord = kStart | kNewline | 1U << RegexTree::kOther;
    std::optional<RegexTree> tree;
    if (name == "^") {
      tree = either(after(kStart), after(kNewline, ahead(leaf(any_set()), false)));
    } else if (name == "$") {
      CharacterSet other = one_character('\n');
      other.negated = true;
      tree = ahead(leaf(std::move(other)), true);
    } else if (name == "\\A") {
      tree = after(kStart);
    } else if (name == "\\z") {
      tree = ahead(leaf(any_set()), true);
    } else if (name == "\\Z") {
      tree = either(ahead(leaf(any_set()), true),
                    ahead(both(leaf(one_character('\n')), ahead(leaf(any_set()), true)), false));
    } else if (name == "\\b" || name == "\\B") {
      const bool ends = name == "\\b";
      tree = either(after(kWord, ahead(leaf(word_set(false)), ends)),
                    after(kNoWord, ahead(leaf(word_set(false)), !ends)));
    }
    if (!tree) return std::nullopt;
    last_letter_ = 0;
    pos_ += length;
    return tree;
  }

  static RegexTree both(RegexTree first, RegexTree second) {
    std::vector<RegexTree> parts;
    parts.push_back(std::move(first));
    parts.push_back(std::move(second));
    return parent(Kind::kSequence, std::move(parts));
  }

  static RegexTree either(RegexTree first, RegexTree second) {
    RegexTree tree = both(std::move(first), std::move(second));
    tree.kind = Kind::kAlternatives;
    return tree;
  }

  static RegexTree ahead(RegexTree child, bool negative) {
    std::vector<RegexTree> inside;
    inside.push_back(std::move(child));
    RegexTree tree = parent(Kind::kAhead, std::move(inside));
    tree.negative = negative;
    return tree;
  }

  static RegexTree atomic(RegexTree child) {
    std::vector<RegexTree> inside;
    inside.push_back(std::move(child));
    return parent(Kind::kAtomic, std::move(inside));
  }

  RegexTree after(uint8_t kinds) {
    looks_back_ = true;
    RegexTree tree = parent(Kind::kAfter, {});
    tree.kinds = kinds;
    return tree;
  }
  RegexTree after(uint8_t kinds, RegexTree then) { return both(after(kinds), std::move(then)); }

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
    return possessive ? atomic(std::move(tree)) : std::move(tree);
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
      if (!is_ascii_digit(static_cast<unsigned char>(c))) return std::nullopt;
      value = value * 10 + static_cast<uint32_t>(c - '0');
    }
    return value;
  }

  Result<RegexTree> group(const Group& outer) {
    if (outer.depth == kMaxGroupDepth) return unsupported("a group this deep");
    Group group{outer.depth + 1, outer.ignore_case};
    last_letter_ = 0;
    std::optional<bool> negative_ahead;
    const bool is_atomic = at("(?>");
    if (at("(?i:")) {
      group.ignore_case = true;
      pos_ += 4;
    } else if (at("(?:") || at("(?!") || at("(?=") || is_atomic) {
      if (at("(?!") || at("(?=")) negative_ahead = at("(?!");
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
    if (is_atomic) return atomic(std::move(inside));
    if (!negative_ahead) return inside;
    return ahead(std::move(inside), *negative_ahead);
  }

  Result<RegexTree> atom(const Group& group) {
    const char c = pattern_[pos_];
    if (c == '[') {
      SUBBYTE_TRY(CharacterSet made, char_class(group));
      return leaf(std::move(made));
    }
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
    const char32_t lower = is_ascii_letter(c) ? c | 0x20 : 0;
    const bool ligature = (last_letter_ == 'f' && (lower == 'f' || lower == 'i' || lower == 'l')) ||
                          (last_letter_ == 's' && (lower == 's' || lower == 't'));
    if (ligature) return unsupported("ignoring the case of a pair that is also a ligature");
    last_letter_ = lower;
    return {};
  }

  std::map<CharacterSet, std::size_t> sets_;
  bool looks_back_ = false;
};

}  // namespace

bool RegexTree::is_nullable() const {
  const auto nullable = [](const RegexTree& child) { return child.is_nullable(); };
  switch (kind) {
    case Kind::kSet:
      return false;
    case Kind::kAhead:
    case Kind::kAfter:
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

std::string literal_regex(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte > 0x20 && byte < 0x7F && !is_ascii_letter(byte) && !is_ascii_digit(byte))
      pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace subbyte
