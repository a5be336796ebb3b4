// Vocabularies over bytes that lack some of them, or have them among the added tokens, as those of
// GPT-NeoX, StarCoder, Falcon and DeepSeek. Ids are those of `tokenizers` 0.23.3.

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "support/small_tokenizer.h"

namespace subbyte {
namespace {

using Ids = std::vector<TokenId>;
using Texts = std::pair<const char*, Ids>;

TokenizerJson& vocab(TokenizerJson& json) {
  return json["model"]["vocab"];
}

/// Bytes, "xy" as 256 and "<unk>" as 257; no "A", no space, no byte C3.
TokenizerJson lacking() {
  TokenizerJson json = small_tokenizer({"xy", "<unk>"}, {"x y"});
  for (const char* const letter : {"A", "\xC4\xA0", "\xC3\x83"}) vocab(json).erase(letter);
  return json;
}

void check(const TokenizerJson& json, const std::vector<Texts>& cases) {
  const auto tokenizer = load_tokenizer(json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  for (const auto& [text, ids] : cases) {
    EXPECT_EQ(*tokenizer->encode(text, SpecialTokens::kRecognize), ids) << text;
    EXPECT_EQ(*tokenizer->encode(text, SpecialTokens::kAsText), ids) << text;
  }
}

TEST(ByteLetters, without_a_token_are_left_out) {
  check(lacking(),
        {{"xAy", {256}}, {"AA", {}}, {"x y", {256}}, {"\xC3\xA9", {169}}, {"xAAy A", {256}}});
}

TEST(ByteLetters, without_a_token_are_the_unknown_one_where_there_is_one) {
  TokenizerJson json = lacking();
  json["model"]["unk_token"] = "<unk>";
  check(json, {{"xAy", {120, 257, 121}},
               {"AA", {257, 257}},
               {"\xC3\xA9", {257, 169}},
               {"xAAy A", {120, 257, 257, 121, 257, 257}}});
  json["model"]["fuse_unk"] = true;
  check(json,
        {{"xAy", {120, 257, 121}}, {"AA", {257}}, {"A", {257}}, {"xAAy A", {120, 257, 121, 257}}});
  json["model"]["fuse_unk"] = false;
  json["model"]["byte_fallback"] = true;  // of the letter, not of the byte
  vocab(json)["<0x41>"] = 365;
  vocab(json)["<0xC4>"] = 496;
  vocab(json)["<0xA0>"] = 460;
  check(json, {{"xAy", {120, 365, 121}}, {"x y", {120, 496, 460, 121}}, {"\xC3\xA9", {257, 169}}});
}

/// `tokenizers` fails at the first text that needs it.
TEST(ByteLetters, that_texts_have_need_the_unknown_token_that_the_file_names) {
  TokenizerJson json = lacking();
  json["model"]["unk_token"] = "<none>";
  EXPECT_EQ(load_tokenizer(json).error().code, "tokenizer.unk_token");
  json = small_tokenizer();
  json["model"]["unk_token"] = "<none>";
  for (const int byte : {0xC0, 0xC1, 0xF5, 0xFF}) vocab(json).erase(byte_characters()[byte]);
  EXPECT_TRUE(load_tokenizer(json).ok());  // no text has these
}

TEST(ByteLetters, may_be_added_tokens) {
  TokenizerJson json = small_tokenizer({"xy"}, {"x y"});
  const std::string letter = byte_characters()[0xF5];
  vocab(json).erase(letter);
  TokenizerJson token = added_token(300, letter);
  token["normalized"] = true;
  json["added_tokens"] = TokenizerJson::array({token});
  const auto added = load_tokenizer(json);
  ASSERT_TRUE(added.ok()) << added.error().message;
  EXPECT_EQ(*added->encode("x" + letter + "y", SpecialTokens::kRecognize), (Ids{120, 300, 121}));
  EXPECT_EQ(*added->encode(letter, SpecialTokens::kAsText), (Ids{0xC3, 0xB5}));
  EXPECT_EQ(*added->encode("\xC3\xA9", SpecialTokens::kRecognize), (Ids{195, 169}));

  // In the vocabulary, too: it stays a letter of any text.
  json = small_tokenizer({"xy"}, {"x y"});
  json["added_tokens"] = TokenizerJson::array({added_token(65, "A")});
  check(json, {{"xAy", {120, 65, 121}}, {"xy", {256}}});
}

}  // namespace
}  // namespace subbyte
