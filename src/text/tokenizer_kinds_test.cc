// Tokenizers of many kinds beside what Hugging Face's `tokenizers` makes of the same texts:
// tools/interop/tokenizers_check.py trained them and wrote the cases.

#include <gtest/gtest.h>

#include <string>

#include "base/random.h"
#include "support/small_tokenizer.h"
#include "support/test_names.h"
#include "text/tokenizer.h"
#include "unicode/utf8.h"

namespace subbyte {
namespace {

using Ids = std::vector<TokenId>;

class KindOfTokenizer : public ::testing::TestWithParam<const char*> {};

TEST_P(KindOfTokenizer, gives_the_ids_and_texts_of_hugging_face) {
  const auto tokenizer = golden_tokenizer(GetParam());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const TokenizerJson cases = golden_json(GetParam(), ".cases");
  ASSERT_GE(cases.size(), 100U);
  for (const auto& item : cases) {
    const auto text = item["text"].get<std::string>();
    const auto ids = item["ids"].get<Ids>();
    EXPECT_EQ(*tokenizer->encode(text, SpecialTokens::kRecognize), ids) << text;
    EXPECT_EQ(*tokenizer->encode_prompt(text, SpecialTokens::kRecognize),
              item["ids_in_template"].get<Ids>());
    EXPECT_EQ(*tokenizer->decode(ids, false), item["decoded"].get<std::string>());
    EXPECT_EQ(*tokenizer->decode(ids, true), item["decoded_skip_special"].get<std::string>());
  }
}

TEST_P(KindOfTokenizer, a_stream_gives_the_same_text_as_decoding_at_once) {
  const auto tokenizer = golden_tokenizer(GetParam());
  ASSERT_TRUE(tokenizer.ok());
  Random random(3);
  for (int i = 0; i < 5000; ++i) {
    Ids ids;
    for (uint64_t n = random.below(24); n > 0; --n) {
      // The first ones are bytes, with or without fallback.
      const TokenId bound = random.below(3) == 0 ? tokenizer->size() : 260;
      ids.push_back(static_cast<TokenId>(random.below(static_cast<uint64_t>(bound))));
    }
    StreamDecoder stream(*tokenizer, i % 2 == 0);
    std::string joined;
    for (const TokenId id : ids) {
      const std::string piece = stream.push(id);
      ASSERT_EQ(utf8::replace_invalid(piece), piece);
      joined += piece;
    }
    joined += stream.finish();
    ASSERT_EQ(joined, *tokenizer->decode(ids, i % 2 == 0));
    ASSERT_EQ(stream.finish(), "");
  }
}

TEST_P(KindOfTokenizer, text_becomes_no_special_token) {
  const auto tokenizer = golden_tokenizer(GetParam());
  ASSERT_TRUE(tokenizer.ok());
  int num_special = 0;
  for (TokenId id = 0; id < tokenizer->size(); ++id) {
    if (!tokenizer->is_special(id) || tokenizer->token_bytes(id) == "<unk>") continue;
    ++num_special;
    const std::string content(tokenizer->token_bytes(id));
    for (const std::string& text : {content, "a " + content + " b", content + content}) {
      const auto ids = tokenizer->encode(text, SpecialTokens::kAsText);
      ASSERT_TRUE(ids.ok());
      EXPECT_EQ(std::ranges::find(*ids, id), ids->end()) << text;
    }
    EXPECT_EQ(*tokenizer->encode(content, SpecialTokens::kRecognize), Ids{id});
  }
  EXPECT_GE(num_special, 2);
}

INSTANTIATE_TEST_SUITE_P(Files, KindOfTokenizer,
                         ::testing::Values("qwen35", "kimi", "falcon", "roberta", "anchors",
                                           "spaces", "lower", "previous", "next", "llama2",
                                           "mistral", "gemma", "always", "never", "first",
                                           "some_bytes", "neox", "deepseek"),
                         NamedByValue());

// ---- without a file of Hugging Face

/// Characters "a", "b", U+2581 and the tokens of all bytes, in this order, as Llama 2 has them.
TokenizerJson character_tokenizer() {
  TokenizerJson json = small_tokenizer();
  json["pre_tokenizer"] = nullptr;
  json["normalizer"] = TokenizerJson::parse(R"({"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "\u2581"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]})");
  json["decoder"] = TokenizerJson::parse(R"({"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})");
  json["model"]["byte_fallback"] = true;
  auto& vocab = json["model"]["vocab"];
  vocab = TokenizerJson::object();
  for (const char* key : {"a", "b", "\xE2\x96\x81"}) vocab[key] = vocab.size();
  for (int byte = 0; byte < 256; ++byte) {
    constexpr const char* kDigits = "0123456789ABCDEF";
    vocab[std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">"] = vocab.size();
  }
  return json;
}

TEST(CharacterTokenizer, a_stream_strips_the_space_in_front_and_no_other) {
  const auto tokenizer = load_tokenizer(character_tokenizer());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(*tokenizer->encode("a b", SpecialTokens::kAsText), (Ids{2, 0, 2, 1}));
  StreamDecoder stream(*tokenizer, true);
  EXPECT_EQ(stream.push(2), "");
  EXPECT_EQ(stream.push(0), "a");
  EXPECT_EQ(stream.push(2), " ");
  EXPECT_EQ(stream.push(1), "b");
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(stream.push(2), "");  // a new text
  EXPECT_EQ(tokenizer->token_bytes(2), " ");
  EXPECT_EQ(tokenizer->token_bytes(3 + 'x'), "x");
}

TEST(CharacterTokenizer, a_run_of_bytes_is_text_as_a_whole_or_not_at_all) {
  const auto tokenizer = load_tokenizer(character_tokenizer());
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(*tokenizer->encode("\xC3\xA9", SpecialTokens::kAsText), (Ids{2, 3 + 0xC3, 3 + 0xA9}));
  EXPECT_EQ(*tokenizer->decode(Ids{0, 3 + 0xC3, 3 + 0xA9, 1}, true), "a\xC3\xA9\x62");
  StreamDecoder stream(*tokenizer, true);
  EXPECT_EQ(stream.push(3 + 0xC3), "");
  EXPECT_EQ(stream.push(3 + 0xA9), "");
  EXPECT_EQ(stream.push(3 + 0xFF), "");
  const std::string three = "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD";
  EXPECT_EQ(stream.push(0), three + "a");
}

TEST(CharacterTokenizer, wants_its_unknown_token_unless_every_byte_has_one) {
  TokenizerJson json = character_tokenizer();
  json["model"]["unk_token"] = "<unk>";
  EXPECT_TRUE(load_tokenizer(json).ok());
  json["model"]["vocab"].erase("<0xFF>");
  const auto refused = load_tokenizer(json);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, "tokenizer.unk_token");
  EXPECT_EQ(refused.error().message,
            "tokenizer.json: model: unk_token \"<unk>\" is not in the vocabulary");
  json["model"]["vocab"]["<unk>"] = 900;
  EXPECT_TRUE(load_tokenizer(json).ok());
}

/// As Gemma's: runs of line breaks are added tokens, and text of a user has them, too.
TEST(CharacterTokenizer, white_space_among_the_added_tokens_is_text) {
  TokenizerJson json = character_tokenizer();
  json["model"]["vocab"]["\n"] = 300;
  json["model"]["vocab"]["\n\n"] = 301;
  json["model"]["merges"] = TokenizerJson::array({TokenizerJson::array({"\n", "\n"})});
  json["added_tokens"] = {added_token(300, "\n"), added_token(301, "\n\n"), added_token(0, "a")};
  const auto tokenizer = load_tokenizer(json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(*tokenizer->encode("b\n\n\n", SpecialTokens::kAsText), (Ids{2, 1, 301, 300}));
  EXPECT_EQ(*tokenizer->encode("a", SpecialTokens::kAsText), (Ids{2, 3 + 'a'}));
}

TEST(CharacterTokenizer, refuses_a_replacement_that_makes_a_text_endless) {
  TokenizerJson json = character_tokenizer();
  json["normalizer"] = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1 << 20, 'b')}};
  const auto tokenizer = load_tokenizer(json);
  ASSERT_TRUE(tokenizer.ok());
  const auto ids = tokenizer->encode(std::string(4096, 'a'), SpecialTokens::kAsText);
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.error().code, "tokenizer.too_long");
}

/// Each step doubles what is there.
TEST(CharacterTokenizer, refuses_steps_that_multiply_each_other) {
  const TokenizerJson doubles = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  TokenizerJson json = character_tokenizer();
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", TokenizerJson::array()}};
  for (int i = 0; i < 20; ++i) json["normalizer"]["normalizers"].push_back(doubles);
  const auto tokenizer = load_tokenizer(json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto ids = tokenizer->encode("a", SpecialTokens::kAsText);
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.error().code, "tokenizer.too_long");
  EXPECT_TRUE(tokenizer->encode("b", SpecialTokens::kAsText).ok());
  json = character_tokenizer();
  json["decoder"] = {{"type", "Sequence"}, {"decoders", TokenizerJson::array()}};
  for (int i = 0; i < 20; ++i) json["decoder"]["decoders"].push_back(doubles);
  const auto refused = load_tokenizer(json);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, "tokenizer.unsupported");
  EXPECT_NE(refused.error().message.find("more than 4096 times"), std::string::npos)
      << refused.error().message;
}

/// What a step writes in front of each text between added tokens is counted together.
TEST(CharacterTokenizer, refuses_a_prefix_for_each_of_many_parts) {
  TokenizerJson json = character_tokenizer();
  json["normalizer"] = {{"type", "Prepend"}, {"prepend", std::string(60'000, 'b')}};
  json["added_tokens"] = TokenizerJson::array({added_token(300, "<|x|>")});
  const auto tokenizer = load_tokenizer(json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_TRUE(tokenizer->encode("a", SpecialTokens::kRecognize).ok());
  const auto ids = tokenizer->encode("a<|x|>a<|x|>a", SpecialTokens::kRecognize);
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.error().code, "tokenizer.too_long");
}

TEST(CharacterTokenizer, other_models_are_refused_by_name) {
  for (const char* type : {"Unigram", "WordPiece", "WordLevel"}) {
    TokenizerJson json = character_tokenizer();
    json["model"]["type"] = type;
    const auto refused = load_tokenizer(json);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message,
              std::string("tokenizer.json: model: \"") + type + "\" is not supported");
  }
}

}  // namespace
}  // namespace subbyte
