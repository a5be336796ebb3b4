#include "base/quote.h"

#include <gtest/gtest.h>

#include "base/status.h"

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

TEST(Printable, is_one_line_that_tells_a_terminal_nothing) {
  EXPECT_EQ(printable("a/b \"c\\'"), "a/b \"c\\'");
  EXPECT_EQ(printable("\r\n\x1b]0;x\x07"), "\\u000d\\u000a\\u001b]0;x\\u0007");
  EXPECT_EQ(printable("\u202e\u2066\u200b\u2028\ufeff\u061c"),
            "\\u202e\\u2066\\u200b\\u2028\\ufeff\\u061c");
  EXPECT_EQ(printable("\U000E0041"), "\\U000e0041");
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(printable("\u00e4\u0639\u4e2d\U0001F600"), "\u00e4\u0639\u4e2d\U0001F600");
  const std::string once = printable("\n\xff\u202e\\");
  EXPECT_EQ(printable(once), once);
}

TEST(QuoteName, is_quoted_as_values_are) {
  EXPECT_EQ(quote_name("a'b\"c"), R"("a'b\"c")");
  EXPECT_EQ(quote_name(std::string(300, 'n')).size(), 256u + 5);
}

TEST(Error, message_is_one_printable_line_whatever_is_put_in) {
  EXPECT_EQ((Error{"a.b", "dir\nname\u009b: gone"}).message, "dir\\u000aname\\u009b: gone");
}

}  // namespace
}  // namespace subbyte
