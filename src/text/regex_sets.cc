#include "text/regex_sets.h"

#include "unicode/unicode.h"

namespace subbyte {
namespace {

CharacterSet perhaps_other(CharacterSet set, bool other) {
  if (!other) return set;
  set.negated = true;
  return set.spelled_out();
}

}  // namespace

CharacterSet one_character(char32_t point) {
  CharacterSet set;
  set.add(point, point);
  return set;
}

CharacterSet any_set() {
  CharacterSet set;
  set.negated = true;
  return set;
}

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
  rest.add(next, unicode::kEnd - 1);
  return rest;
}

CharacterSet word_set(bool other) {
  static const CharacterSet word = [] {
    CharacterSet set;
    for (const std::string_view name : {"L", "M", "Nd", "Nl", "Pc"}) {
      set.categories |= unicode::category_bits(name);
    }
    set.ranges = {{0xB2, 0xB3},       {0xB9, 0xB9},       {0xBC, 0xBE},      {0x24B6, 0x24E9},
                  {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
    return set;
  }();
  static const CharacterSet rest = perhaps_other(word, true);
  return other ? rest : word;
}

CharacterSet category_set(std::string_view name, bool other) {
  CharacterSet set;
  set.categories = unicode::category_bits(name);
  if (other) set.categories ^= unicode::kAllCategories;
  return set;
}

std::optional<CharacterSet> property_set(std::string_view name, bool other) {
  if (unicode::category_bits(name) != 0) return category_set(name, other);
  const auto script = unicode::script(name);
  if (!script) return std::nullopt;
  CharacterSet set;
  for (const unicode::Range& range : *script) set.add(range.first, range.last);
  return perhaps_other(std::move(set), other);
}

}  // namespace subbyte
