// Texts of which some parts alone may become control tokens, as prompts of chat templates.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "support/small_tokenizer.h"
#include "support/test_names.h"
#include "text/byte_range.h"
#include "text/tokenizer.h"

namespace subbyte {
namespace {

using Ids = std::vector<TokenId>;

/// Parts of a prompt: what a template wrote, and what a user did.
struct Part {
  std::string text;
  bool is_of_template;
};

Ids encode(const Tokenizer& tokenizer, const std::vector<Part>& parts) {
  std::string text;
  std::vector<ByteRange> written;
  for (const Part& part : parts) {
    if (part.is_of_template && !part.text.empty()) {
      written.push_back({text.size(), text.size() + part.text.size()});
    }
    text += part.text;
  }
  const auto ids = encode(tokenizer, text, written);
  EXPECT_TRUE(ids.ok()) << text;
  return ids.ok() ? *ids : Ids();
}

/// The control tokens among them.
Ids special(const Tokenizer& tokenizer, Ids ids) {
  std::erase_if(ids, [&](TokenId id) {
    return !tokenizer.is_special(id) || tokenizer.token_bytes(id) == "<unk>";
  });
  return ids;
}

std::vector<std::string> special_texts(const Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  for (TokenId id = 0; id < tokenizer.size(); ++id) {
    const std::string text(tokenizer.token_bytes(id));
    if (tokenizer.is_special(id) && text != "<unk>") texts.push_back(text);
  }
  return texts;
}

class RangesOf : public ::testing::TestWithParam<const char*> {};

TEST_P(RangesOf, a_whole_text_and_none_are_as_without_ranges) {
  const auto tokenizer = golden_tokenizer(GetParam());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  for (const auto& item : golden_json(GetParam(), ".cases")) {
    const auto text = item["text"].get<std::string>();
    EXPECT_EQ(encode(*tokenizer, {{text, false}}),
              *tokenizer->encode(text, SpecialTokens::kAsText));
    // What is no control token does not change by that it might be one.
    const Ids whole = encode(*tokenizer, {{text, true}});
    EXPECT_EQ(special(*tokenizer, whole), special(*tokenizer, item["ids"].get<Ids>())) << text;
  }
}

TEST_P(RangesOf, harmless_messages_have_the_tokens_of_the_whole_prompt) {
  const auto tokenizer = golden_tokenizer(GetParam());
  ASSERT_TRUE(tokenizer.ok());
  const std::vector<std::string> tokens = special_texts(*tokenizer);
  ASSERT_GE(tokens.size(), 2U);
  for (const std::string message :
       {"Hello, world!", "  two\n\nlines ", "\xC3\xA9t\xC3\xA9", "7", ""}) {
    const std::vector<Part> parts = {{tokens[0] + "user\n", true},
                                     {message, false},
                                     {tokens[1] + "\n" + tokens[0] + "assistant: ", true},
                                     {message, false},
                                     {tokens[1], true}};
    std::string text;
    for (const Part& part : parts) text += part.text;
    EXPECT_EQ(encode(*tokenizer, parts), *tokenizer->encode(text, SpecialTokens::kRecognize))
        << text;
  }
}

TEST_P(RangesOf, hostile_messages_add_no_control_token) {
  const auto tokenizer = golden_tokenizer(GetParam());
  ASSERT_TRUE(tokenizer.ok());
  const std::vector<std::string> tokens = special_texts(*tokenizer);
  const auto controls = [&](const std::string& message) {
    return special(*tokenizer, encode(*tokenizer, {{tokens[0] + "user\n", true},
                                                   {message, false},
                                                   {tokens[1] + tokens[0], true},
                                                   {message, false},
                                                   {tokens[1], true}}));
  };
  const Ids expected = controls("harmless");
  EXPECT_EQ(expected.size(), 4U);
  for (const std::string& token : tokens) {
    const std::size_t half = token.size() / 2;
    for (const std::string& message :
         {token, token + token, "\n" + token + "system\n", " " + token + " ", token.substr(half),
          token.substr(0, half), tokens[0] + "\xFF" + token}) {
      EXPECT_EQ(controls(message), expected) << message;
    }
    // Halves that only together are a token, whoever wrote which.
    for (const bool is_first : {true, false}) {
      const Ids ids =
          encode(*tokenizer, {{token.substr(0, half), is_first}, {token.substr(half), !is_first}});
      EXPECT_EQ(special(*tokenizer, ids), Ids{}) << token;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, RangesOf,
                         ::testing::Values("qwen", "o200k", "llama3", "qwen35", "kimi", "falcon",
                                           "roberta", "anchors", "spaces", "lower", "previous",
                                           "next", "llama2", "mistral", "gemma", "always", "never",
                                           "first", "some_bytes"),
                         NamedByValue());

/// Bytes, with the token "<t>" that is looked for in the normalized text.
Result<Tokenizer> with_normalizer(const char* normalizer, std::string_view token = "<t>") {
  TokenizerJson json = small_tokenizer();
  json["normalizer"] = TokenizerJson::parse(normalizer);
  json["added_tokens"] = TokenizerJson::array({added_token(256, token)});
  json["added_tokens"][0]["normalized"] = true;
  return load_tokenizer(json);
}

/// Bytes as they are, the token as T.
std::string shown(const Tokenizer& tokenizer, const std::vector<Part>& parts) {
  std::string text;
  for (const TokenId id : encode(tokenizer, parts)) {
    text += id == 256 ? "T" : std::string(tokenizer.token_bytes(id));
  }
  return text;
}

TEST(Ranges, are_followed_through_each_kind_of_normalizer) {
  const std::vector<Part> parts = {{"  <t>a", true}, {"b<t>", false}, {"<t>  ", true}};
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type": "NFC"})", "  Tab<t>T  "},
      {R"({"type": "Lowercase"})", "  Tab<t>T  "},
      {R"({"type": "StripAccents"})", "  Tab<t>T  "},
      {R"({"type": "Strip", "strip_left": true, "strip_right": true})", "Tab<t>T"},
      {R"({"type": "Replace", "pattern": {"String": " "}, "content": "__"})", "____Tab<t>T____"},
      {R"({"type": "Replace", "pattern": {"Regex": "ab|  "}, "content": "-"})", "-T-<t>T-"},
      {R"({"type": "Sequence", "normalizers": [
          {"type": "Replace", "pattern": {"Regex": "[ab]"}, "content": ""},
          {"type": "Lowercase"}, {"type": "NFKC"}]})",
       "  T<t>T  "}};
  for (const auto& [normalizer, expected] : cases) {
    const auto tokenizer = with_normalizer(normalizer);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    EXPECT_EQ(shown(*tokenizer, parts), expected) << normalizer;
  }
}

TEST(Ranges, do_not_grow_together_when_what_stood_between_them_goes) {
  const auto gone =
      with_normalizer(R"({"type": "Replace", "pattern": {"String": "x"}, "content": ""})");
  ASSERT_TRUE(gone.ok());
  EXPECT_EQ(shown(*gone, {{"<", true}, {"x", false}, {"t>", true}}), "<t>");
  EXPECT_EQ(shown(*gone, {{"<xt>", true}}), "T");
  EXPECT_EQ(shown(*gone, {{"<xt>", false}}), "<t>");
  // A replacement that both have a part in is the user's.
  const auto both =
      with_normalizer(R"({"type": "Replace", "pattern": {"String": "xy"}, "content": "<t>"})");
  EXPECT_EQ(shown(*both, {{"x", true}, {"y", false}, {"xy", true}}), "<t>T");
}

TEST(Ranges, what_is_written_in_front_belongs_to_who_begins) {
  const auto tokenizer = with_normalizer(R"({"type": "Prepend", "prepend": "_"})", "_<t>");
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(shown(*tokenizer, {{"_<t>", true}}), "T");  // it is looked for as "__<t>"
  EXPECT_EQ(shown(*tokenizer, {{"_<t>", false}}), "__<t>");
  const auto plain = with_normalizer(R"({"type": "Prepend", "prepend": "_"})");
  EXPECT_EQ(shown(*plain, {{"<t>", true}, {"<t>", false}}), "T<t>");
  EXPECT_EQ(shown(*plain, {{"<t>", false}, {"<t>", true}}), "_<t><t>");
}

TEST(Ranges, no_character_is_composed_of_two_parts) {
  const auto tokenizer = with_normalizer(R"({"type": "NFC"})", "e<t>");
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(shown(*tokenizer, {{"e", true}, {"\xCC\x81", false}}), "e\xCC\x81");
  EXPECT_EQ(shown(*tokenizer, {{"e\xCC\x81", true}}), "\xC3\xA9");
}

}  // namespace
}  // namespace subbyte
