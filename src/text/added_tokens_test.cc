#include "text/added_tokens.h"

#include <gtest/gtest.h>

#include <string>

#include "support/small_tokenizer.h"

namespace subbyte {
namespace {

using Ids = std::vector<TokenId>;

AddedToken token(TokenId id, std::string content) {
  return {id, std::move(content), false, false, false, false, false};
}

/// Parts as text: ordinary text as it is, tokens as [id].
std::string split(std::vector<AddedToken> tokens, std::string_view text) {
  std::vector<AddedTokenMatcher::Part> parts;
  const ByteRange whole[] = {{0, text.size()}};
  AddedTokenMatcher(std::move(tokens)).split(text, whole, parts);
  std::string shown;
  for (const auto& part : parts) {
    shown += part.id ? "[" + std::to_string(*part.id) + "]" : "(" + std::string(part.text) + ")";
  }
  return shown;
}

TEST(AddedTokens, takes_the_leftmost_and_then_the_longest) {
  const std::vector<AddedToken> tokens = {token(1, "a"), token(2, "abc"), token(3, "bcd"),
                                          token(4, "ab")};
  EXPECT_EQ(split(tokens, "xabcd"), "(x)[2](d)");
  EXPECT_EQ(split(tokens, "abd"), "[4](d)");
  EXPECT_EQ(split(tokens, "aab"), "[1][4]");
  EXPECT_EQ(split(tokens, "bcd"), "[3]");
  EXPECT_EQ(split(tokens, "bc"), "(bc)");
  EXPECT_EQ(split(tokens, ""), "");
  EXPECT_EQ(split({}, "abc"), "(abc)");
}

TEST(AddedTokens, single_word_wants_no_word_character_beside_it) {
  AddedToken word = token(1, "ab");
  word.single_word = true;
  EXPECT_EQ(split({word}, "ab ab-ab"), "[1]( )[1](-)[1]");
  EXPECT_EQ(split({word}, "xab"), "(xab)");
  EXPECT_EQ(split({word}, "ab1"), "(ab1)");
  EXPECT_EQ(split({word}, "ab_"), "(ab_)");
  EXPECT_EQ(split({word}, "ab\xC3\xA9"), "(ab\xC3\xA9)");
  EXPECT_EQ(split({word},
                  "\xCC\x81"
                  "ab"),
            "(\xCC\x81"
            "ab)");
  EXPECT_EQ(split({word}, "ab\xE2\x80\x8D"), "(ab\xE2\x80\x8D)");
  // A discarded match is passed over whole: the shorter token inside it is not tried.
  EXPECT_EQ(split({word, token(2, "a")}, "abx a"), "(abx )[2]");
}

TEST(AddedTokens, strip_flags_take_white_space_along) {
  AddedToken left = token(1, "<l>");
  left.lstrip = true;
  AddedToken right = token(2, "<r>");
  right.rstrip = true;
  EXPECT_EQ(split({left, right}, "a \n\xC2\xA0<l> b <r> \t c"), "(a)[1]( b )[2](c)");
  EXPECT_EQ(split({left, right}, "  <l>"), "[1]");
  EXPECT_EQ(split({left, right}, "<r>  <l>"), "[2][1]");  // white space is taken once
  EXPECT_EQ(split({left, right}, "a\xE1\xA0\x8E<l>"), "(a\xE1\xA0\x8E)[1]");  // U+180E is none
}

TEST(AddedTokens, many_strips_in_a_row_stay_linear) {
  AddedToken space = token(1, " ");
  space.rstrip = true;
  const std::string text(1000000, ' ');
  std::vector<AddedTokenMatcher::Part> parts;
  const ByteRange whole[] = {{0, text.size()}};
  AddedTokenMatcher({space}).split(text, whole, parts);
  EXPECT_EQ(parts.size(), text.size());  // each space is a match of its own, as in `tokenizers`
}

// Expected ids checked against `tokenizers` 0.23.
TEST(AddedTokens, normalized_ones_are_found_after_nfc_and_others_before) {
  TokenizerJson json = small_tokenizer();
  json["normalizer"] = {{"type", "NFC"}};
  TokenizerJson plain = added_token(300, "e\xCC\x81");
  TokenizerJson normalized = added_token(301, "o\xCC\x81");
  normalized["normalized"] = true;
  json["added_tokens"] = {plain, normalized};
  const auto tokenizer = load_tokenizer(json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto ids = [&](std::string_view text) {
    return *tokenizer->encode(text, SpecialTokens::kRecognize);
  };
  EXPECT_EQ(ids("xe\xCC\x81"), (Ids{'x', 300}));
  EXPECT_EQ(ids("x\xC3\xA9"), (Ids{'x', 0xC3, 0xA9}));
  EXPECT_EQ(ids("xo\xCC\x81"), (Ids{'x', 301}));
  EXPECT_EQ(ids("x\xC3\xB3"), (Ids{'x', 301}));
  EXPECT_EQ(*tokenizer->decode(Ids{301}, false), "o\xCC\x81");
}

/// As `tokenizers` 0.23.3: the first has the text, with the flags of the last.
TEST(AddedTokens, of_one_text_are_one) {
  TokenizerJson json = small_tokenizer();
  TokenizerJson last = added_token(302, "<a>");
  last["special"] = true;
  json["added_tokens"] =
      TokenizerJson::array({added_token(300, "<a>"), added_token(301, "<b>"), last});
  const auto tokenizer = load_tokenizer(json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(*tokenizer->encode("<a><b>", SpecialTokens::kRecognize), (Ids{300, 301}));
  EXPECT_EQ(*tokenizer->decode(Ids{300, 301, 302}, false), "<a><b>");
  EXPECT_EQ(*tokenizer->decode(Ids{300, 301, 302}, true), "<b>");

  // Those that only the normalizer makes equal stay two.
  json["normalizer"] = {{"type", "Lowercase"}};
  json["added_tokens"] = TokenizerJson::array();
  for (const auto& [id, content] : {std::pair(300, "<A>"), std::pair(301, "<a>")}) {
    TokenizerJson token = added_token(id, content);
    token["normalized"] = true;
    json["added_tokens"].push_back(token);
  }
  const auto lower = load_tokenizer(json);
  ASSERT_TRUE(lower.ok()) << lower.error().message;
  EXPECT_EQ(*lower->encode("<a><A>", SpecialTokens::kRecognize), (Ids{300, 300}));
  EXPECT_EQ(*lower->decode(Ids{300, 301}, false), "<A><a>");
}

}  // namespace
}  // namespace subbyte
