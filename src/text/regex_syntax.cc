// Where Oniguruma (Ruby syntax, UTF-8) and PCRE2 (UTF, UCP) part, found by running both over every
// code point, and what is done about it:
//
//   \s \S         PCRE2 counts U+180E as space, Oniguruma (White_Space) does not: written out as
//                 ranges. Both count U+0085.
//   (?i:s) (?i:k) both match U+017F and U+212A as well; written out as classes, so that no table
//                 of the library decides.
//   (?i:st)       Oniguruma also matches the ligature U+FB06 (ff, fi, fl, ss, st): refused.
//   \d            becomes \p{Nd}.
//   \h \v \w \b   mean other things: refused. So are ^ and $ (Oniguruma: every line), {,n}, {n}+
//                 and {n}?, [a[b]], [a&&b], POSIX classes, lookbehind, back references,
//                 recursion, (*VERBS), (?flags), and properties that are no general category.
//   \p{L} ...     the same but for the Unicode version: 14 in PCRE2 10.42, later in Oniguruma.
//                 Characters assigned since then are Cn here, so they count as neither letter,
//                 number nor mark.
//
// All literals leave here as letters, digits or \x{...}.

#include "text/regex_dialect.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/quote.h"
#include "text/utf8.h"

namespace subbyte {
namespace {

constexpr std::size_t kMaxPatternBytes = 64 * 1024;
constexpr std::size_t kMaxGroupDepth = 200;  // PCRE2 itself recurses per group when it compiles

constexpr std::string_view kSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f})"
    R"(\x{205f}\x{3000})";
constexpr std::string_view kNotSpace =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff})"
    R"(\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";

constexpr std::array<std::string_view, 37> kCategories = {
    "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",
    "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi",
    "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};

bool is_letter(char32_t c) {
  return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}
bool is_digit(char32_t c) {
  return c >= '0' && c <= '9';
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> run() {
    if (pattern_.size() > kMaxPatternBytes) {
      return Error{"tokenizer.regex_too_long",
                   fmt::format("pattern of {} bytes, at most {} are taken", pattern_.size(),
                               kMaxPatternBytes)};
    }
    while (pos_ < pattern_.size()) SUBBYTE_CHECK(step());
    if (!groups_.empty()) return bad("a group is not closed");
    return std::move(out_);
  }

 private:
  struct Group {
    bool ignore_case;
  };
  /// One escape or literal: a code point, or the inside of a class.
  struct Item {
    std::optional<char32_t> literal;
    std::string set;
  };

  bool at(std::string_view text) const { return pattern_.substr(pos_).starts_with(text); }
  bool ignore_case() const { return !groups_.empty() && groups_.back().ignore_case; }

  Error unsupported(std::string_view what) const {
    return {"tokenizer.unsupported",
            fmt::format("pattern {}: {} at byte {} is not supported", shown(), what, pos_)};
  }
  Error bad(std::string_view what) const {
    return {"tokenizer.bad_regex", fmt::format("pattern {}: {} at byte {}", shown(), what, pos_)};
  }
  std::string shown() const { return quote(pattern_, 60); }

  Status step() {
    const char c = pattern_[pos_];
    if (c != '(' && c != ')' && c != '|' && c != '?' && c != '*' && c != '+' && c != '{') {
      return atom();
    }
    last_letter_ = 0;
    if (c == '(') return open_group();
    if (c == '{') return counted_repeat();
    if (c == ')') {
      if (groups_.empty()) return bad("')' without a group");
      groups_.pop_back();
    }
    out_.push_back(c);
    ++pos_;
    return {};
  }

  Status open_group() {
    if (groups_.size() == kMaxGroupDepth) return unsupported("a group this deep");
    bool ignore = ignore_case();
    if (at("(?i:")) {
      ignore = true;
      out_ += "(?:";
      pos_ += 4;
    } else if (at("(?:") || at("(?!") || at("(?=")) {
      out_ += pattern_.substr(pos_, 3);
      pos_ += 3;
    } else if (at("(?")) {
      return unsupported("a group of this kind");
    } else if (at("(*")) {
      return bad("nothing to repeat");
    } else {
      out_ += "(?:";  // captures are not used
      pos_ += 1;
    }
    groups_.push_back({ignore});
    return {};
  }

  /// {n}, {n,} and {n,m}; followed by ? or + the two libraries disagree.
  Status counted_repeat() {
    const std::size_t close = pattern_.find('}', pos_);
    if (close == std::string_view::npos) return unsupported("a '{' that repeats nothing");
    const std::string_view inside = pattern_.substr(pos_ + 1, close - pos_ - 1);
    const std::size_t comma = inside.find(',');
    const auto is_number = [](std::string_view text) {
      return text.size() <= 5 && std::all_of(text.begin(), text.end(), [](char c) {
               return is_digit(static_cast<unsigned char>(c));
             });
    };
    const std::string_view low = inside.substr(0, comma);
    const bool fine = !low.empty() && is_number(low) &&
                      (comma == std::string_view::npos || is_number(inside.substr(comma + 1)));
    if (!fine) return unsupported("this repeat");
    if (close + 1 < pattern_.size() && (pattern_[close + 1] == '+' || pattern_[close + 1] == '?')) {
      return unsupported("a possessive or lazy {n,m}");
    }
    out_ += pattern_.substr(pos_, close + 1 - pos_);
    pos_ = close + 1;
    return {};
  }

  Status atom() {
    const char c = pattern_[pos_];
    if (c == '^' || c == '$') return unsupported("an anchor");
    if (c == '[') return char_class();
    if (c == '.') {
      out_ += R"([^\x{a}])";
      ++pos_;
      last_letter_ = 0;
      return {};
    }
    SUBBYTE_TRY(const Item item, next_item());
    if (!item.literal) {
      out_ += '[' + item.set + ']';
      last_letter_ = 0;
      return {};
    }
    if (!ignore_case()) {
      append_literal(*item.literal);
      return {};
    }
    SUBBYTE_CHECK(check_fold(*item.literal));
    out_ += '[';
    append_both_cases(*item.literal);
    out_ += ']';
    return {};
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

  Status char_class() {
    const bool ignore = ignore_case();
    last_letter_ = 0;
    ++pos_;
    out_ += '[';
    if (at("^")) {
      if (ignore) return unsupported("a negated class that ignores case");
      out_ += '^';
      ++pos_;
    }
    if (at("]")) return unsupported("']' at the front of a class");
    while (!at("]")) {
      if (pos_ >= pattern_.size()) return bad("a class is not closed");
      SUBBYTE_CHECK(class_item(ignore));
    }
    ++pos_;
    out_ += ']';
    return {};
  }

  Status class_item(bool ignore) {
    if (at("[") || at("&&")) return unsupported("a class within a class");
    if (at("-") && out_.back() != '[' && out_.back() != '^' && !at("-]")) {
      return unsupported("a '-' in the middle of a class");
    }
    SUBBYTE_TRY(const Item item, next_item());
    const bool range = at("-") && !at("-]");
    if (ignore && (!item.literal || *item.literal >= 0x80 || range)) {
      return unsupported("this class in a group that ignores case");
    }
    if (!item.literal) {
      if (range) return unsupported("a '-' after a set");
      out_ += item.set;
      return {};
    }
    if (ignore) {
      append_both_cases(*item.literal);
      return {};
    }
    append_literal(*item.literal);
    if (!range) return {};
    ++pos_;
    if (at("[")) return unsupported("a class within a class");
    SUBBYTE_TRY(const Item last, next_item());
    if (!last.literal) return unsupported("a range that ends in a set");
    if (*last.literal < *item.literal) return bad("a range that runs backwards");
    out_ += '-';
    append_literal(*last.literal);
    return {};
  }

  Result<Item> next_item() {
    if (pos_ >= pattern_.size()) return bad("the pattern ends too early");
    if (!at("\\")) {
      const utf8::Decoded c = utf8::decode_one(pattern_.substr(pos_));
      pos_ += c.length;
      return Item{c.value, {}};
    }
    if (pos_ + 1 >= pattern_.size()) return bad("a '\\' at the end");
    const char c = pattern_[pos_ + 1];
    if (c == 'p' || c == 'P') return property();
    if (c == 'x' || c == 'u') return hex_escape();
    pos_ += 2;
    switch (c) {
      case 's':
        return Item{{}, std::string(kSpace)};
      case 'S':
        return Item{{}, std::string(kNotSpace)};
      case 'd':
        return Item{{}, R"(\p{Nd})"};
      case 'D':
        return Item{{}, R"(\P{Nd})"};
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

  Result<Item> property() {
    const std::size_t close = pattern_.find('}', pos_);
    if (close == std::string_view::npos || pattern_[pos_ + 2] != '{') {
      return unsupported("a property without braces");
    }
    const std::string_view name = pattern_.substr(pos_ + 3, close - pos_ - 3);
    if (std::find(kCategories.begin(), kCategories.end(), name) == kCategories.end()) {
      return unsupported("a property that is no general category");
    }
    // Lu, Ll and Lt lose their meaning when case is ignored, differently in each library.
    if (ignore_case()) return unsupported("a property in a group that ignores case");
    Item item{{}, fmt::format("\\{}{{{}}}", pattern_[pos_ + 1], name)};
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

  void append_literal(char32_t c) {
    if (is_letter(c) || is_digit(c)) {
      out_.push_back(static_cast<char>(c));
    } else {
      out_ += fmt::format("\\x{{{:x}}}", static_cast<uint32_t>(c));
    }
  }

  void append_both_cases(char32_t c) {
    append_literal(c);
    if (!is_letter(c)) return;
    append_literal(c ^ 0x20);
    if ((c | 0x20) == 's') append_literal(0x17F);
    if ((c | 0x20) == 'k') append_literal(0x212A);
  }

  std::string_view pattern_;
  std::size_t pos_ = 0;
  std::string out_;
  std::vector<Group> groups_;
  char32_t last_letter_ = 0;  // of a group that ignores case, in lower case
};

}  // namespace

Result<std::string> translate_regex(std::string_view pattern) {
  return Translator(pattern).run();
}

}  // namespace subbyte
