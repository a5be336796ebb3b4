#include "text/regex_reader.h"

#include <fmt/format.h>

#include <utility>

#include "base/quote.h"
#include "text/regex_sets.h"
#include "unicode/unicode.h"
#include "unicode/utf8.h"

namespace subbyte {

void add_both_cases(char32_t c, CharacterSet& set) {
  set.add(c, c);
  if (!is_ascii_letter(c)) return;
  set.add(c ^ 0x20, c ^ 0x20);
  if ((c | 0x20) == 's') set.add(0x17F, 0x17F);
  if ((c | 0x20) == 'k') set.add(0x212A, 0x212A);
}

Error RegexReader::unsupported(std::string_view what) const {
  return {"tokenizer.unsupported",
          fmt::format("pattern {}: {} at byte {} is not supported", shown(), what, pos_)};
}

Error RegexReader::bad(std::string_view what) const {
  return {"tokenizer.bad_regex", fmt::format("pattern {}: {} at byte {}", shown(), what, pos_)};
}

Error RegexReader::too_many_sets() const {
  return {"tokenizer.regex_too_complex",
          fmt::format("pattern {}: it has too many sets of characters", shown())};
}

std::string RegexReader::shown() const {
  return quote(pattern_, 60);
}

Result<CharacterSet> RegexReader::char_class(const Group& outer) {
  if (outer.depth == kMaxGroupDepth) return unsupported("a class this deep");
  const Group group{outer.depth + 1, outer.ignore_case};
  last_letter_ = 0;
  ++pos_;
  const bool negated = at("^");
  if (negated && group.ignore_case) return unsupported("a negated class that ignores case");
  if (negated) ++pos_;
  if (at("]")) return unsupported("']' at the front of a class");
  std::optional<CharacterSet> left;  // of the last &&
  CharacterSet set;
  for (bool first = true; !at("]"); first = false) {
    if (pos_ >= pattern_.size()) return bad("a class is not closed");
    if (!at("&&")) {
      SUBBYTE_CHECK(class_item(group, first, set));
      continue;
    }
    if (first || at("&&]") || at("&&&")) return unsupported("'&&' without a side");
    if (++num_algebra_ > kMaxAlgebra) return too_many_sets();
    left = left ? *left & set : std::move(set);
    set = {};
    pos_ += 2;
  }
  ++pos_;
  if (left) set = *left & set;
  set.negated = negated;
  return set;
}

Status RegexReader::class_item(const Group& group, bool first, CharacterSet& set) {
  if (at("[:")) return unsupported("a POSIX class");
  if (at("[")) {
    if (group.ignore_case) return unsupported("this class in a group that ignores case");
    if (++num_algebra_ > kMaxAlgebra) return too_many_sets();
    SUBBYTE_TRY(CharacterSet inner, char_class(group));
    set.add(inner.negated ? inner.spelled_out() : inner);
    if (at("-") && !at("-]")) return unsupported("a '-' after a set");
    return {};
  }
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

Result<RegexReader::Item> RegexReader::next_item(const Group& group) {
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
      return Item{{}, category_set("Nd", false)};
    case 'D':
      return Item{{}, category_set("Nd", true)};
    case 'w':
      return Item{{}, word_set(false)};
    case 'W':
      return Item{{}, word_set(true)};
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
  if (value > 0x20 && value < 0x7F && !is_ascii_letter(value) && !is_ascii_digit(value)) {
    return Item{value, {}};
  }
  pos_ -= 2;
  return unsupported("this escape");
}

Result<RegexReader::Item> RegexReader::property(const Group& group) {
  const std::size_t close = pattern_.find('}', pos_);
  if (close == std::string_view::npos || pattern_[pos_ + 2] != '{') {
    return unsupported("a property without braces");
  }
  std::string_view name = pattern_.substr(pos_ + 3, close - pos_ - 3);
  bool other = pattern_[pos_ + 1] == 'P';
  if (name.starts_with('^')) {
    name.remove_prefix(1);
    other = !other;
  }
  const bool is_computed = other && unicode::category_bits(name) == 0;
  if (is_computed && ++num_algebra_ > kMaxAlgebra) return too_many_sets();
  std::optional<CharacterSet> set = property_set(name, other);
  if (!set) return unsupported("a property that is neither a general category nor a script");
  // Lu, Ll and Lt lose their meaning when case is ignored, differently in each library.
  if (group.ignore_case) return unsupported("a property in a group that ignores case");
  Item item{{}, std::move(*set)};
  pos_ = close + 1;
  return item;
}

/// \x{H...} and \uHHHH.
Result<RegexReader::Item> RegexReader::hex_escape() {
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
    if (!is_ascii_digit(code) && (lower < 'a' || lower > 'f'))
      return bad("not a hexadecimal digit");
    value = value * 16 + (is_ascii_digit(code) ? code - U'0' : lower - U'a' + 10);
  }
  if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return bad("no character");
  pos_ = end;
  return Item{value, {}};
}

}  // namespace subbyte
