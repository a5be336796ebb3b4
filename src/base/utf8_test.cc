#include "base/utf8.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>

namespace subbyte {
namespace {

/// The bytes of a code point by the arithmetic definition of UTF-8, surrogates included.
std::string encode(uint32_t code_point, int length) {
  std::string bytes;
  for (int shift = 6 * (length - 1); shift >= 0; shift -= 6) {
    bytes.push_back(static_cast<char>(0x80u | ((code_point >> shift) & 0x3Fu)));
  }
  const uint32_t marks[] = {0, 0, 0xC0, 0xE0, 0xF0};
  if (length == 1) return {static_cast<char>(code_point)};
  bytes[0] = static_cast<char>(marks[length] | (code_point >> (6 * (length - 1))));
  return bytes;
}

bool valid(const std::string& text) {
  return !find_invalid_utf8(text).has_value();
}

TEST(Utf8, accepts_every_code_point_in_its_shortest_form_and_no_surrogate) {
  for (uint32_t code_point = 0; code_point < 0x110000; ++code_point) {
    const int length = code_point < 0x80      ? 1
                       : code_point < 0x800   ? 2
                       : code_point < 0x10000 ? 3
                                              : 4;
    const bool surrogate = code_point >= 0xD800 && code_point < 0xE000;
    ASSERT_EQ(valid(encode(code_point, length)), !surrogate) << code_point;
  }
}

TEST(Utf8, refuses_every_overlong_form_and_everything_too_large) {
  for (uint32_t code_point = 0; code_point < 0x80; ++code_point) {
    ASSERT_FALSE(valid(encode(code_point, 2))) << code_point;
  }
  for (uint32_t code_point = 0; code_point < 0x800; ++code_point) {
    ASSERT_FALSE(valid(encode(code_point, 3))) << code_point;
  }
  for (uint32_t code_point = 0; code_point < 0x10000; ++code_point) {
    ASSERT_FALSE(valid(encode(code_point, 4))) << code_point;
  }
  for (uint32_t code_point = 0x110000; code_point < 0x200000; code_point += 61) {
    ASSERT_FALSE(valid(encode(code_point, 4))) << code_point;
  }
}

TEST(Utf8, accepts_exactly_the_pairs_of_bytes_that_the_definition_makes) {
  std::set<std::string> pairs;
  for (uint32_t a = 0; a < 0x80; ++a) {
    for (uint32_t b = 0; b < 0x80; ++b) pairs.insert(encode(a, 1) + encode(b, 1));
  }
  for (uint32_t code_point = 0x80; code_point < 0x800; ++code_point) {
    pairs.insert(encode(code_point, 2));
  }
  for (uint32_t pair = 0; pair < 0x10000; ++pair) {
    const std::string bytes{static_cast<char>(pair >> 8), static_cast<char>(pair)};
    ASSERT_EQ(valid(bytes), pairs.contains(bytes)) << pair;
  }
}

TEST(Utf8, says_where_the_first_bad_byte_is) {
  for (std::size_t at = 0; at < 40; ++at) {
    std::string text(40, 'a');
    text[at] = '\xff';
    EXPECT_EQ(find_invalid_utf8(text), at);
  }
  EXPECT_EQ(find_invalid_utf8("abcdefg\u20ac\xe2\x82"), 10u);  // a character cut at the end
}

}  // namespace
}  // namespace subbyte
