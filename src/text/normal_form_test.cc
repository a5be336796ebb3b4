#include "text/normal_form.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

#include "support/paths.h"
#include "unicode/utf8.h"

namespace subbyte {
namespace {

std::string text_of(std::u32string_view points) {
  std::string text;
  for (const char32_t point : points) utf8::append(text, point);
  return text;
}

// Expected values from the Unicode standard, annex 15, and NormalizationTest.txt.
TEST(Nfc, composes_decomposes_and_orders) {
  const auto check = [](std::u32string_view from, std::u32string_view to) {
    EXPECT_EQ(to_nfc(text_of(from)), text_of(to));
    EXPECT_EQ(to_nfc(text_of(to)), text_of(to));
  };
  check(U"", U"");
  check(U"plain ASCII\n", U"plain ASCII\n");
  check(U"e\u0301", U"\u00E9");
  check(U"abce\u0301def", U"abc\u00E9def");
  check(U"\u212B", U"\u00C5");               // singleton
  check(U"D\u0307\u0323", U"\u1E0C\u0307");  // reordered, then joined
  check(U"\u1E0B\u0323", U"\u1E0D\u0307");
  check(U"\u1112\u1161\u11AB", U"\uD55C");  // Hangul
  check(U"\u0958", U"\u0915\u093C");        // composition exclusion
  check(U"\u0344", U"\u0308\u0301");
  check(U"\u0301a", U"\u0301a");  // nothing in front to join
  check(U"a\u0301\u0301", U"\u00E1\u0301");
  check(U"\u00E9e\u0301\u00E9", U"\u00E9\u00E9\u00E9");
  check(U"\u01D5", U"\u01D5");
  check(U"\u00FC\u0304", U"\u01D6");  // joins a character below U+0300
  check(U"\U0001D15E", U"\U0001D157\U0001D165");
  check(U"x\uFFFDy", U"x\uFFFDy");
}

// tests/data/unicode/write_hangul.py takes the expected values from Python's unicodedata.
TEST(Nfc, composes_hangul_as_python_does) {
  std::ifstream file(std::string(SUBBYTE_TEST_DATA) + "/unicode/hangul_nfc.txt");
  std::string line;
  int num_lines = 0;
  const auto points_of = [](const std::string& text) {
    std::istringstream words(text);
    std::u32string points;
    for (uint32_t point = 0; words >> std::hex >> point;) points.push_back(point);
    return points;
  };
  while (std::getline(file, line)) {
    const std::size_t middle = line.find('=');
    ASSERT_NE(middle, std::string::npos);
    EXPECT_EQ(to_nfc(text_of(points_of(line.substr(0, middle)))),
              text_of(points_of(line.substr(middle + 1))))
        << line;
    ++num_lines;
  }
  EXPECT_GT(num_lines, 1000);
  EXPECT_EQ(to_nfc(text_of(U"\uAC00\u11A7x")), text_of(U"\uAC00\u11A7x"));
}

// All 11,172 syllables, from their parts by the formula of the Unicode standard, section 3.12.
TEST(Nfc, composes_every_syllable_of_hangul) {
  for (char32_t i = 0; i < 19 * 21 * 28; ++i) {
    std::u32string parts = {0x1100 + i / (21 * 28), 0x1161 + i / 28 % 21};
    if (i % 28 != 0) parts.push_back(0x11A7 + i % 28);
    ASSERT_EQ(to_nfc(text_of(parts)), text_of(std::u32string{0xAC00 + i}));
  }
}

TEST(Nfc, keeps_nul_and_orders_long_runs_of_marks) {
  const std::string nul("a\0e\xCC\x81\0", 6);
  EXPECT_EQ(to_nfc(nul), std::string("a\0\xC3\xA9\0", 5));

  // 100,000 times (230, 220): ordering this by exchanging neighbours takes 5 * 10^9 steps.
  std::string marks = "x";
  std::string sorted = "x";
  for (int i = 0; i < 100000; ++i) marks += text_of(U"\u0301\u0323");
  for (int i = 0; i < 100000; ++i) sorted += text_of(U"\u0323");
  for (int i = 0; i < 100000; ++i) sorted += text_of(U"\u0301");
  EXPECT_TRUE(to_nfc(marks) == text_of(U"x") + sorted.substr(1));
}

// NormalizationTest.txt of Unicode 16.0: source, NFC, NFD, NFKC, NFKD.
TEST(NormalForms, are_all_four) {
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
