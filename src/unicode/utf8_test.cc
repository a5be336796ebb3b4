#include "unicode/utf8.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace subbyte::utf8 {
namespace {

using namespace std::string_literals;

const std::string kBad = "\xEF\xBF\xBD";

TEST(Utf8, replaces_each_maximal_invalid_part_once) {
  EXPECT_EQ(replace_invalid("a\xFF"
                            "b"),
            "a" + kBad + "b");
  EXPECT_EQ(replace_invalid("\xE2\x82"
                            "A"),
            kBad + "A");  // one truncated character
  EXPECT_EQ(replace_invalid("\xF0\x9F\x92"
                            "A"),
            kBad + "A");
  EXPECT_EQ(replace_invalid("\xC0\x80"), kBad + kBad);                        // overlong NUL
  EXPECT_EQ(replace_invalid("\xE0\x80\x80"), kBad + kBad + kBad);             // overlong
  EXPECT_EQ(replace_invalid("\xED\xA0\x80"), kBad + kBad + kBad);             // surrogate
  EXPECT_EQ(replace_invalid("\xF4\x90\x80\x80"), kBad + kBad + kBad + kBad);  // U+110000
  EXPECT_EQ(replace_invalid("\x80\x80"), kBad + kBad);
  EXPECT_EQ(replace_invalid("\xE2\xE2\x82\xAC"), kBad + "\xE2\x82\xAC");
  // The example of the Unicode standard, table 3-8.
  EXPECT_EQ(replace_invalid("a\xF1\x80\x80\xE1\x80\xC2"
                            "b\x80"
                            "c\x80\xBF"
                            "d"),
            "a" + kBad + kBad + kBad + "b" + kBad + "c" + kBad + kBad + "d");
}

TEST(Utf8, leaves_every_scalar_value_alone) {
  std::size_t total = 0;
  for (char32_t point = 0; point < 0x110000; ++point) {
    if (point >= 0xD800 && point < 0xE000) continue;
    std::string text;
    append(text, point);
    const Decoded decoded = decode_one(text);
    ASSERT_TRUE(decoded.valid && decoded.value == point && decoded.length == text.size())
        << static_cast<uint32_t>(point);
    ASSERT_EQ(replace_invalid(text), text);
    total += text.size();
  }
  // 1, 2, 3 and 4 bytes below 80, 800, 10000 and 110000.
  EXPECT_EQ(total, 0x80 + 2 * (0x800 - 0x80) + 3 * (0x10000 - 0x800 - 0x800) + 4 * 0x100000U);
}

TEST(Utf8, finds_the_beginning_of_a_character_at_the_end) {
  EXPECT_EQ(unfinished_bytes(""), 0U);
  EXPECT_EQ(unfinished_bytes("a"), 0U);
  EXPECT_EQ(unfinished_bytes("a\xC3"), 1U);
  EXPECT_EQ(unfinished_bytes("\xE2\x82"), 2U);
  EXPECT_EQ(unfinished_bytes("\xF0\x9F\x92"), 3U);
  EXPECT_EQ(unfinished_bytes("\xF0\x9F\x92\xA9"), 0U);
  EXPECT_EQ(unfinished_bytes("\xED\xA0"), 0U);  // can never become a character
  EXPECT_EQ(unfinished_bytes("\xFF"), 0U);
  EXPECT_EQ(unfinished_bytes("\x82\x82\x82"), 0U);
}

}  // namespace
}  // namespace subbyte::utf8
