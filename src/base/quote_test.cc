#include "base/quote.h"

#include <gtest/gtest.h>

namespace subbyte {
namespace {

using namespace std::string_literals;

TEST(Quote, leaves_plain_text_as_it_is) {
  EXPECT_EQ(quote("model.layers.0"), "\"model.layers.0\"");
  EXPECT_EQ(quote(""), "\"\"");
  EXPECT_EQ(quote("\u00e4\u20ac\U0001F600"), "\"\u00e4\u20ac\U0001F600\"");
}

TEST(Quote, escapes_what_a_terminal_would_obey) {
  EXPECT_EQ(quote("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(quote("\0\n\x1b[2J\x7f"s), R"("\u0000\u000a\u001b[2J\u007f")");
  EXPECT_EQ(quote("\u0085\u009b"), R"("\u0085\u009b")");
  EXPECT_EQ(quote("\u00a0"), "\"\u00a0\"");
}

TEST(Quote, shows_bytes_that_are_not_text) {
  EXPECT_EQ(quote("a\xff\xc0z\xe4"), R"("a\xff\xc0z\xe4")");
}

TEST(Quote, cuts_long_text_between_characters) {
  EXPECT_EQ(quote("abcdef", 6), "\"abcdef\"");
  EXPECT_EQ(quote("abcdefg", 6), "\"abcdef...\"");
  EXPECT_EQ(quote("abcde\u20ac", 6), "\"abcde...\"");
}

}  // namespace
}  // namespace subbyte
