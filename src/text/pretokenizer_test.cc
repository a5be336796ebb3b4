#include "text/pretokenizer.h"

#include <gtest/gtest.h>

#include <string>

#include "unicode/utf8.h"

namespace subbyte {
namespace {

using Pieces = std::vector<std::string>;

constexpr const char* kQwen =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

Pieces split(const std::vector<std::string>& patterns, std::string_view text) {
  const auto made = PreTokenizer::compile(patterns);
  if (!made) return {"!" + std::string(made.error().code)};
  PreTokenizer::Scratch scratch;
  made->split(text, scratch);
  return {scratch.pieces.begin(), scratch.pieces.end()};
}

std::string code(std::string_view pattern) {
  const auto made = PreTokenizer::compile({std::string(pattern)});
  return made ? "ok" : std::string(made.error().code);
}

TEST(PreTokenizer, keeps_matches_and_what_lies_between_them) {
  EXPECT_EQ(split({"b+"}, "abbcb"), (Pieces{"a", "bb", "c", "b"}));
  EXPECT_EQ(split({"x"}, "abc"), (Pieces{"abc"}));
  EXPECT_EQ(split({}, "abc"), (Pieces{"abc"}));
  EXPECT_EQ(split({"b+", "c"}, "abbcb"), (Pieces{"a", "bb", "c", "b"}));
  EXPECT_EQ(split({"ab", "b"}, "xab"), (Pieces{"x", "a", "b"}));
  EXPECT_EQ(split({"a"}, ""), Pieces{});
}

TEST(PreTokenizer, an_empty_match_ends_a_piece) {
  EXPECT_EQ(split({""}, "a\xC3\xA9z"), (Pieces{"a", "\xC3\xA9", "z"}));
  EXPECT_EQ(split({"b*"}, "abba"), (Pieces{"a", "bb", "a"}));
}

// What Oniguruma, as Hugging Face uses it, was seen to do; see the head of regex_dialect.cc.
TEST(PreTokenizer, white_space_is_that_of_oniguruma) {
  const std::string mongolian = "\xE1\xA0\x8E";  // U+180E: space for PCRE2 only
  EXPECT_EQ(split({R"(\s)"}, "a" + mongolian + "b"), (Pieces{"a" + mongolian + "b"}));
  EXPECT_EQ(split({R"([\s]+)"}, "a" + mongolian + "b"), (Pieces{"a" + mongolian + "b"}));
  EXPECT_EQ(split({R"(\S)"}, mongolian + mongolian), (Pieces{mongolian, mongolian}));
  EXPECT_EQ(split({R"([^\s]+)"}, "\t" + mongolian), (Pieces{"\t", mongolian}));
  EXPECT_EQ(split({R"(\s+)"},
                  "a\xC2\x85\xC2\xA0"
                  "b"),
            (Pieces{"a", "\xC2\x85\xC2\xA0", "b"}));

  const std::u32string_view spaces =
      U"\x09\x0A\x0B\x0C\x0D\x20\x85\xA0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
      U"\u2008"
      U"\u2009\u200A\u2028\u2029\u202F\u205F\u3000";
  const auto space = PreTokenizer::compile({R"(\s)"});
  const auto other = PreTokenizer::compile({R"([\S]+)"});
  ASSERT_TRUE(space.ok() && other.ok());
  PreTokenizer::Scratch scratch;
  for (char32_t point = 0; point < 0x30100; ++point) {
    if (point >= 0xD800 && point < 0xE000) continue;
    std::string text = "a";
    utf8::append(text, point);
    text += "b";
    const bool expected = spaces.find(point) != std::u32string_view::npos;
    space->split(text, scratch);
    ASSERT_EQ(scratch.pieces.size() == 3, expected) << static_cast<uint32_t>(point);
    other->split(text, scratch);
    ASSERT_EQ(scratch.pieces.size() == 1, !expected) << static_cast<uint32_t>(point);
  }
}

TEST(PreTokenizer, ignoring_case_takes_long_s_and_kelvin_in) {
  const std::string long_s = "\xC5\xBF";
  EXPECT_EQ(split({kQwen}, "it'" + long_s + "b"), (Pieces{"it", "'" + long_s, "b"}));
  EXPECT_EQ(split({kQwen}, "I'LLx y'D"), (Pieces{"I", "'LL", "x", " y", "'D"}));
  EXPECT_EQ(split({"(?i:k)"},
                  "a\xE2\x84\xAA"
                  "bK"),
            (Pieces{"a", "\xE2\x84\xAA", "b", "K"}));
  EXPECT_EQ(split({"(?i:[sd]x)"}, "SX" + long_s + "xdXs"), (Pieces{"SX", long_s + "x", "dX", "s"}));
  // Case counts again after the group.
  EXPECT_EQ(split({"(?i:a)b"}, "AbAB"), (Pieces{"Ab", "AB"}));
}

TEST(PreTokenizer, splits_like_the_patterns_say) {
  EXPECT_EQ(split({kQwen}, "Hello,  world 12\n\n x"),
            (Pieces{"Hello", ",", " ", " world", " ", "1", "2", "\n\n", " x"}));
  EXPECT_EQ(split({R"(\p{N}{1,3})"}, "1234567"), (Pieces{"123", "456", "7"}));
  EXPECT_EQ(split({R"(\d+|[a-c\-]+|[^a-z\d]++)"}, "12ab-c..z"), (Pieces{"12", "ab-c", "..", "z"}));
  EXPECT_EQ(split({R"([\x{e9}\u00ea]|a(?=b))"},
                  "\xC3\xA9\xC3\xAA"
                  "aab"),
            (Pieces{"\xC3\xA9", "\xC3\xAA", "a", "a", "b"}));
  EXPECT_EQ(split({"(a)(b)?."}, "ac\na\n"), (Pieces{"ac", "\na\n"}));
}

TEST(PreTokenizer, refuses_what_means_something_else_in_pcre2) {
  for (const char* pattern :
       {R"(\h)",          R"(\v)",         R"(\R)",      R"(\X)",         R"(\K)",
        R"(\G)",          "(?<=a)b",       "(?<!a)b",    "[a&&]",         "[&&a]",
        "[[a]-b]",        "(?i:[[a]b])",   R"(\b+)",     R"(\p{Greece})", R"(\p{script=Han})",
        "(?i)a",          "(?m:a)",        "(?<n>a)",    R"((a)\1)",      "a{,2}",
        "a{2}+",          "a{1,2}?",       "a{x}",       "[[:alpha:]]",   "[]a]",
        R"(\pL)",         R"(\x41)",       R"(\Q.\E)",   "(?i:st)",       "(?i:f[a])(?i:ffx)",
        R"((?i:\p{Lu}))", "(?i:\xC3\xA9)", "(?i:[a-z])", "(?i:[^a])",     R"([a-\d])",
        R"([\d-a])",      "(?#x)",         "(?R)",       "(?C)",          "a{"}) {
    EXPECT_EQ(code(pattern), "tokenizer.unsupported") << pattern;
  }
}

TEST(PreTokenizer, refuses_broken_patterns) {
  for (const char* pattern : {"(",
                              ")",
                              "(a",
                              "a)",
                              "[a",
                              "[",
                              "*a",
                              "a**",
                              "(?:|*)",
                              "\\",
                              "[z-a]",
                              "(*ACCEPT)",
                              "(*UTF)a",
                              R"(\x{110000})",
                              R"(\x{d800})",
                              R"(\x{})",
                              R"(\u12g4)",
                              "a{3,2}",
                              "(?:a{60000}){60000}",
                              "[a-"}) {
    EXPECT_EQ(code(pattern), "tokenizer.bad_regex") << pattern;
  }
  EXPECT_EQ(code(std::string(100000, 'a')), "tokenizer.regex_too_long");
  EXPECT_EQ(code(std::string(30000, '(')), "tokenizer.unsupported");
}

// Backtracking takes exponential or quadratic time for these.
TEST(PreTokenizer, a_pathological_pattern_splits_as_any_other) {
  const std::string run = std::string(20000, 'a') + "c";
  EXPECT_EQ(split({"(?:a+)+b"}, run + "b"), (Pieces{run + "b"}));
  EXPECT_EQ(split({"(?:a+)+b"}, run + "ab"), (Pieces{run, "ab"}));
  EXPECT_EQ(split({"(?:a|a)+b"}, run + "b"), (Pieces{run + "b"}));
  const std::string line(20000, 'a');
  EXPECT_EQ(split({".*.*.*.*.*x"}, line + "\nx"), (Pieces{line + "\n", "x"}));
  EXPECT_EQ(split({"(?:(?:a*)*)*b"}, run + "b"), (Pieces{run, "b"}));
}

TEST(PreTokenizer, long_runs_stay_within_the_limits) {
  constexpr std::size_t kLength = 200000;
  for (const std::string& unit :
       {std::string(" "), std::string("\n"), std::string("a"), std::string("A"), std::string(" \n"),
        std::string("'"), std::string("\xCC\x81"), std::string(" ") + "\xCC\x81"}) {
    std::string text;
    while (text.size() < kLength) text += unit;
    text += "x";
    const Pieces pieces = split({kQwen}, text);
    std::string joined;
    for (const std::string& piece : pieces) joined += piece;
    EXPECT_TRUE(joined == text) << unit << pieces[0].substr(0, 40);
  }
}

}  // namespace
}  // namespace subbyte
