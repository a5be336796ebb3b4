#include "text/unicode.h"

#include <gtest/gtest.h>

#include "text/normal_form.h"
#include "text/utf8.h"

namespace subbyte {
namespace {

std::string text_of(std::u32string_view points) {
  std::string text;
  for (const char32_t point : points) utf8::append(text, point);
  return text;
}

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

TEST(Unicode, lower_case_goes_character_by_character) {
  const auto lower = [](char32_t point) {
    std::vector<char32_t> out;
    unicode::append_lower(point, out);
    return std::u32string(out.begin(), out.end());
  };
  EXPECT_EQ(lower('Q'), U"q");
  EXPECT_EQ(lower(0x130), U"i\u0307");
  EXPECT_EQ(lower(0x3A3), U"\u03C3");
  EXPECT_EQ(lower(0x1C89), U"\u1C8A");  // of version 16
  EXPECT_EQ(lower(0x10D50), U"\U00010D70");
}

// NormalizationTest.txt of Unicode 16.0: source, NFC, NFD, NFKC, NFKD.
TEST(Unicode, has_all_four_normal_forms) {
  const std::u32string_view cases[][5] = {
      {U"\u1E0A", U"\u1E0A", U"D\u0307", U"\u1E0A", U"D\u0307"},
      {U"\uFB01", U"\uFB01", U"\uFB01", U"fi", U"fi"},
      {U"\u1E9B\u0323", U"\u1E9B\u0323", U"\u017F\u0323\u0307", U"\u1E69", U"s\u0323\u0307"},
      {U"\uAC01", U"\uAC01", U"\u1100\u1161\u11A8", U"\uAC01", U"\u1100\u1161\u11A8"},
      {U"\u3300", U"\u3300", U"\u3300", U"\u30A2\u30D1\u30FC\u30C8",
       U"\u30A2\u30CF\u309A\u30FC\u30C8"},
      {U"\uFF76\uFF9E", U"\uFF76\uFF9E", U"\uFF76\uFF9E", U"\u30AC", U"\u30AB\u3099"},
      {U"\u2126", U"\u03A9", U"\u03A9", U"\u03A9", U"\u03A9"},
      {U"\U000105C9", U"\U000105C9", U"\U000105D2\u0307", U"\U000105C9", U"\U000105D2\u0307"},
      {U"a\u0315\u0300\u05AE\u0310b", U"\u00E0\u05AE\u0310\u0315b", U"a\u05AE\u0300\u0310\u0315b",
       U"\u00E0\u05AE\u0310\u0315b", U"a\u05AE\u0300\u0310\u0315b"},
  };
  for (const auto& item : cases) {
    const std::string source = text_of(item[0]);
    EXPECT_EQ(to_normal_form(source, NormalForm::kNfc), text_of(item[1])) << source;
    EXPECT_EQ(to_normal_form(source, NormalForm::kNfd), text_of(item[2])) << source;
    EXPECT_EQ(to_normal_form(source, NormalForm::kNfkc), text_of(item[3])) << source;
    EXPECT_EQ(to_normal_form(source, NormalForm::kNfkd), text_of(item[4])) << source;
  }
}

}  // namespace
}  // namespace subbyte
