#include "unicode/unicode.h"

#include <gtest/gtest.h>

#include <string_view>

namespace subbyte {
namespace {

// Values from the files of Unicode 16.0 by hand: UnicodeData.txt, Scripts.txt.
TEST(Unicode, categories_are_those_of_version_16) {
  const auto is = [](char32_t point, std::string_view name) {
    return unicode::is_in(point, unicode::category_bits(name));
  };
  EXPECT_TRUE(is('a', "Ll") && is('A', "L") && is('7', "Nd") && is(' ', "Zs") && is(0, "Cc"));
  EXPECT_TRUE(is(0x10D40, "Nd"));  // Garay digits came with version 16
  EXPECT_TRUE(is(0x105C0, "Lo"));  // Todhri
  EXPECT_TRUE(is(0x1CCF0, "Nd"));  // outlined digits
  EXPECT_TRUE(is(0x0378, "Cn") && is(0xD800, "Cs") && is(0x10FFFD, "Co") && is(0x10FFFF, "Cn"));
  EXPECT_EQ(unicode::category_bits("Xx"), 0U);
}

TEST(Unicode, scripts_have_names_and_codes) {
  const auto contains = [](std::string_view name, char32_t point) {
    const auto script = unicode::script(name);
    if (!script) return false;
    for (const unicode::Range& range : *script) {
      if (range.first <= point && point <= range.last) return true;
    }
    return false;
  };
  for (const char* name : {"Han", "han", "Hani", "HAN"}) {
    EXPECT_TRUE(contains(name, 0x4E00)) << name;
    EXPECT_FALSE(contains(name, 0x3042)) << name;
  }
  EXPECT_TRUE(contains("Old_Italic", 0x10300) && contains("old italic", 0x10300));
  EXPECT_TRUE(contains("Todhri", 0x105C0));  // of version 16
  EXPECT_FALSE(unicode::script("Klingon").has_value());
}

// EastAsianWidth.txt; marks and signs that are not seen take no column.
TEST(Unicode, characters_take_no_one_or_two_columns) {
  for (const char32_t point : {U'a', U'\u00E9', U'\u00AD', U'\u2026', U'\uFF71'}) {
    EXPECT_EQ(unicode::width(point), 1) << static_cast<uint32_t>(point);
  }
  for (const char32_t point : {U'\u0301', U'\u20DD', U'\u200D', U'\u1161', U'\uFE0F'}) {
    EXPECT_EQ(unicode::width(point), 0) << static_cast<uint32_t>(point);
  }
  for (const char32_t point : {U'\u4E00', U'\uAC00', U'\u1100', U'\uFF21', U'\U0001F600'}) {
    EXPECT_EQ(unicode::width(point), 2) << static_cast<uint32_t>(point);
  }
}

TEST(Unicode, lower_case_goes_character_by_character) {
  const auto lower = [](char32_t point) {
    return unicode::in_case(point, unicode::LetterCase::kLower);
  };
  EXPECT_EQ(lower('Q'), U"q");
  EXPECT_EQ(lower(0x130), U"i\u0307");
  EXPECT_EQ(lower(0x3A3), U"\u03C3");
  EXPECT_EQ(lower(0x1C89), U"\u1C8A");  // of version 16
  EXPECT_EQ(lower(0x10D50), U"\U00010D70");
}

}  // namespace
}  // namespace subbyte
