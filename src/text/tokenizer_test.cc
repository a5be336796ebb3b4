#include "text/tokenizer.h"
#include "support/test_names.h"

#include <gtest/gtest.h>

#include <string>

#include "base/random.h"
#include "support/small_tokenizer.h"
#include "unicode/utf8.h"

namespace subbyte {
namespace {

using Ids = std::vector<TokenId>;

Ids encode(const Tokenizer& tokenizer, std::string_view text,
           SpecialTokens special = SpecialTokens::kRecognize) {
  const auto ids = tokenizer.encode(text, special);
  EXPECT_TRUE(ids.ok()) << ids.error().message;
  return ids ? *ids : Ids{-1};
}

std::string random_text(Random& random, const std::vector<std::string>& parts) {
  std::string text;
  for (uint64_t n = random.below(12); n > 0; --n) text += parts[random.below(parts.size())];
  return text;
}

class GoldenTokenizer : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTokenizer, gives_the_ids_and_texts_of_hugging_face) {
  const auto tokenizer = golden_tokenizer(GetParam());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const TokenizerJson cases = golden_json(GetParam(), ".cases");
  ASSERT_GE(cases.size(), 195U);
  for (const auto& item : cases) {
    const auto text = item["text"].get<std::string>();
    const auto ids = item["ids"].get<Ids>();
    EXPECT_EQ(encode(*tokenizer, text), ids) << text;
    // Where a file has no template, the ids are those of the text.
    EXPECT_EQ(*tokenizer->encode_prompt(text, SpecialTokens::kRecognize),
              item.contains("ids_in_template") ? item["ids_in_template"].get<Ids>() : ids);
    EXPECT_EQ(*tokenizer->decode(ids, false), item["decoded"].get<std::string>());
    EXPECT_EQ(*tokenizer->decode(ids, true), item["decoded_skip_special"].get<std::string>());
  }
}

TEST_P(GoldenTokenizer, no_id_of_an_added_token_comes_out_of_text) {
  const auto tokenizer = golden_tokenizer(GetParam());
  ASSERT_TRUE(tokenizer.ok());
  const TokenizerJson json = golden_json(GetParam(), ".tokenizer");
  ASSERT_FALSE(json["added_tokens"].empty());
  for (const auto& token : json["added_tokens"]) {
    const auto content = token["content"].get<std::string>();
    const auto id = token["id"].get<TokenId>();
    EXPECT_EQ(encode(*tokenizer, content), Ids{id});
    EXPECT_EQ(tokenizer->find(content), id);
    EXPECT_EQ(tokenizer->is_special(id), token["special"].get<bool>());
    for (const std::string& text : {content, "a " + content + " b", content + content}) {
      const Ids ids = encode(*tokenizer, text, SpecialTokens::kAsText);
      for (const TokenId one : ids) EXPECT_LT(one, json["added_tokens"][0]["id"].get<TokenId>());
      EXPECT_EQ(*tokenizer->decode(ids, true), text);
    }
  }
}

TEST_P(GoldenTokenizer, decoding_gives_the_text_back) {
  const auto tokenizer = golden_tokenizer(GetParam());
  ASSERT_TRUE(tokenizer.ok());
  // Composed characters only, which NFC leaves alone.
  const std::vector<std::string> parts = {"a",        "Bc",           " ",
                                          "\n",       "'s",           "12",
                                          "\xC3\xA9", "\xE4\xBE\xB5", "\xF0\x9F\x91\xA9",
                                          "<think>",  "<|im_end|>",   std::string("\0", 1),
                                          "\xFF",     "\xE2\x82",     "\xED\xA0\x80",
                                          "\xF0\x9F"};
  Random random(11);
  for (int i = 0; i < 20000; ++i) {
    const std::string text = random_text(random, parts);
    const auto special = i % 2 == 0 ? SpecialTokens::kAsText : SpecialTokens::kRecognize;
    ASSERT_EQ(*tokenizer->decode(encode(*tokenizer, text, special), false),
              utf8::replace_invalid(text));
  }
}

TEST_P(GoldenTokenizer, a_stream_gives_the_same_text_as_decoding_at_once) {
  const auto tokenizer = golden_tokenizer(GetParam());
  ASSERT_TRUE(tokenizer.ok());
  Random random(3);
  int num_replaced = 0;
  for (int i = 0; i < 50000; ++i) {
    Ids ids;
    // Mostly single bytes above 7F, so that characters are built and broken in many ways.
    for (uint64_t n = random.below(24); n > 0; --n) {
      const auto bound = static_cast<uint64_t>(random.below(3) == 0 ? tokenizer->size() : 256);
      ids.push_back(static_cast<TokenId>(random.below(bound)));
    }
    const bool skip = i % 2 == 0;
    StreamDecoder stream(*tokenizer, skip);
    std::string joined;
    for (const TokenId id : ids) {
      const std::string piece = stream.push(id);
      ASSERT_EQ(utf8::replace_invalid(piece), piece);
      joined += piece;
    }
    joined += stream.finish();
    ASSERT_EQ(joined, *tokenizer->decode(ids, skip));
    num_replaced += joined.find(utf8::kReplacement) != std::string::npos;
    ASSERT_EQ(stream.finish(), "");
  }
  EXPECT_GT(num_replaced, 10000);
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenTokenizer, ::testing::Values("qwen", "o200k", "llama3"),
                         NamedByValue());

TEST(Tokenizer, puts_templates_around_each_other) {
  TokenizerJson json = small_tokenizer();
  for (int id = 256; id < 260; ++id) {
    json["added_tokens"].push_back(added_token(id, "<" + std::to_string(id) + ">"));
  }
  json["post_processor"] = TokenizerJson::parse(R"({"type": "Sequence", "processors": [
      {"type": "ByteLevel"},
      {"type": "TemplateProcessing",
       "single": [{"SpecialToken": {"id": "b"}}, {"Sequence": {"id": "A"}}],
       "special_tokens": {"b": {"ids": [256, 257]}}},
      {"type": "TemplateProcessing",
       "single": [{"SpecialToken": {"id": "c"}}, {"Sequence": {"id": "A"}},
                  {"SpecialToken": {"id": "e"}}],
       "special_tokens": {"c": {"ids": [258]}, "e": {"ids": [259]}}}]})");
  const auto tokenizer = load_tokenizer(json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(*tokenizer->encode_prompt("a", SpecialTokens::kAsText), (Ids{258, 256, 257, 'a', 259}));
  EXPECT_EQ(*tokenizer->encode_prompt("", SpecialTokens::kAsText), (Ids{258, 256, 257, 259}));
  EXPECT_EQ(encode(*tokenizer, "a"), Ids{'a'});
}

/// As SmolLM's: digits first, then words with the spaces before them.
TEST(Tokenizer, takes_digits_apart) {
  const std::vector<std::string> words = {"12",
                                          "\xC4\xA0"
                                          "1"};
  const auto merges = TokenizerJson::array({"1 2", "\xC4\xA0 1"});
  for (const bool individual : {true, false}) {
    TokenizerJson json = small_tokenizer(words, merges);
    json["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Digits"}, {"individual_digits", individual}},
          {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}}}};
    const auto tokenizer = load_tokenizer(json);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    EXPECT_EQ(encode(*tokenizer, " 12"), individual ? (Ids{' ', '1', '2'}) : (Ids{' ', 256}));
  }
}

/// Whatever table it stands in, and whether merges or whole words lead to it.
TEST(Tokenizer, control_tokens_of_the_vocabulary_never_come_out_of_text) {
  const auto merges = TokenizerJson::array({"< |", "<| x", "<|x |", "<|x| >"});
  TokenizerJson json = small_tokenizer({"<|", "<|x", "<|x|", "<|x|>"}, merges);
  for (const bool ignore_merges : {false, true}) {
    json["model"]["ignore_merges"] = ignore_merges;
    const auto tokenizer = load_tokenizer(json);
    ASSERT_TRUE(tokenizer.ok());
    const auto ids = tokenizer->encode("<|x|>", SpecialTokens::kAsText);
    EXPECT_EQ(*ids, (std::vector<TokenId>{258, '>'}));
    EXPECT_EQ(tokenizer->find("<|x|>"), TokenId{259});
    EXPECT_FALSE(tokenizer->is_added(259));
  }
}

TEST(StreamDecoder, holds_back_half_characters) {
  const auto tokenizer = load_tokenizer(small_tokenizer());
  ASSERT_TRUE(tokenizer.ok());
  StreamDecoder stream(*tokenizer, false);
  EXPECT_EQ(stream.push(0xF0), "");
  EXPECT_EQ(stream.push(0x9F), "");
  EXPECT_EQ(stream.push(0x92), "");
  EXPECT_EQ(stream.push(0xA9), "\xF0\x9F\x92\xA9");
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.push('a'),
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.push(99999), "");  // no such id: nothing
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
}

TEST(Tokenizer, takes_merges_in_both_spellings) {
  const auto words = std::vector<std::string>{"ab", "abc"};
  for (const char* merges : {R"(["a b", "ab c"])", R"([["a", "b"], ["ab", "c"]])",
                             R"(["#version: 0.2", "a b", ["ab", "c"]])"}) {
    const auto tokenizer = load_tokenizer(small_tokenizer(words, TokenizerJson::parse(merges)));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    EXPECT_EQ(encode(*tokenizer, "abcab"), (Ids{257, 256}));
  }
}

TEST(Tokenizer, ignore_merges_takes_a_whole_piece_from_the_vocabulary) {
  TokenizerJson json = small_tokenizer({"ab", "xyz"}, TokenizerJson::parse(R"(["a b"])"));
  EXPECT_EQ(encode(*load_tokenizer(json), "xyz"), (Ids{'x', 'y', 'z'}));
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(encode(*load_tokenizer(json), "xyz"), (Ids{257}));
  EXPECT_EQ(encode(*load_tokenizer(json), "xyzab"), (Ids{'x', 'y', 'z', 256}));
}

TEST(Tokenizer, text_makes_no_added_token_through_merges_or_the_vocabulary) {
  TokenizerJson json = small_tokenizer({"ab", "abc"}, TokenizerJson::parse(R"(["a b", "ab c"])"));
  json["added_tokens"] =
      TokenizerJson::array({added_token(257, "abc")});  // also in the vocabulary, with the same id
  for (const bool ignore_merges : {false, true}) {
    json["model"]["ignore_merges"] = ignore_merges;
    const auto tokenizer = load_tokenizer(json);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    EXPECT_EQ(encode(*tokenizer, "abc", SpecialTokens::kRecognize), Ids{257});
    EXPECT_EQ(encode(*tokenizer, "abc", SpecialTokens::kAsText), (Ids{256, 'c'}));
    EXPECT_EQ(*tokenizer->decode(Ids{257}, true), "abc");
  }
}

TEST(Tokenizer, finds_tokens_by_their_literal_text) {
  TokenizerJson json = small_tokenizer({"\xC4\xA0the", "\xE4\xBE\xB5"});
  json["added_tokens"] = TokenizerJson::array({added_token(1000, "<x>")});
  const auto tokenizer = load_tokenizer(json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->find("\xC4\xA0the"), 256);
  EXPECT_EQ(tokenizer->token_bytes(256), " the");
  EXPECT_EQ(tokenizer->find("\xE4\xBE\xB5"), 257);  // spells no bytes, stands for itself
  EXPECT_EQ(tokenizer->token_bytes(257), "\xE4\xBE\xB5");
  EXPECT_EQ(tokenizer->find("<x>"), 1000);
  EXPECT_EQ(tokenizer->token_bytes(1000), "<x>");
  EXPECT_EQ(tokenizer->find("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer->size(), 1001);
}

TEST(Tokenizer, ids_that_do_not_exist_have_no_text) {
  TokenizerJson json = small_tokenizer();
  json["added_tokens"] = TokenizerJson::array({added_token(300, "<x>")});
  const auto tokenizer = load_tokenizer(json);
  ASSERT_TRUE(tokenizer.ok());
  for (const TokenId id : {-1, 256, 299, 301, 2147483647, -2147483647 - 1}) {
    const auto text = tokenizer->decode(Ids{65, id, 66}, false);
    if (id < 0) {
      EXPECT_EQ(text.error().code, "tokenizer.bad_id") << id;
    } else {
      EXPECT_EQ(*text, "AB") << id;
    }
    EXPECT_EQ(tokenizer->token_bytes(id), "");
    EXPECT_FALSE(tokenizer->is_special(id));
  }
  EXPECT_EQ(*tokenizer->decode(Ids{65, 300}, false), "A<x>");
}

TEST(Tokenizer, normalizes_before_splitting_when_the_file_says_so) {
  TokenizerJson json = small_tokenizer();
  EXPECT_EQ(encode(*load_tokenizer(json), "e\xCC\x81"), (Ids{'e', 0xCC, 0x81}));
  json["normalizer"] = {{"type", "NFC"}};
  EXPECT_EQ(encode(*load_tokenizer(json), "e\xCC\x81"), (Ids{0xC3, 0xA9}));
  EXPECT_EQ(encode(*load_tokenizer(json), "e\xCC\x81", SpecialTokens::kAsText), (Ids{0xC3, 0xA9}));
}

TEST(Tokenizer, replaces_invalid_bytes_before_anything_else) {
  const auto tokenizer = load_tokenizer(small_tokenizer());
  EXPECT_EQ(encode(*tokenizer,
                   "a\xE2\x82"
                   "b"),
            (Ids{'a', 0xEF, 0xBF, 0xBD, 'b'}));
}

TEST(Tokenizer, refuses_text_above_64_mib) {
  const auto tokenizer = load_tokenizer(small_tokenizer());
  const std::string text((std::size_t{64} << 20) + 1, 'a');
  EXPECT_EQ(tokenizer->encode(text, SpecialTokens::kAsText).error().code, "tokenizer.too_long");
}

TEST(Tokenizer, accepts_post_processors_that_add_nothing) {
  for (const char* processor :
       {R"({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false})",
        R"({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [], "special_tokens": {}})",
        R"({"type": "Sequence", "processors": [{"type": "ByteLevel"}]})", "null"}) {
    TokenizerJson json = small_tokenizer();
    json["post_processor"] = TokenizerJson::parse(processor);
    EXPECT_TRUE(load_tokenizer(json).ok()) << processor;
  }
}

TEST(Tokenizer, byte_level_may_bring_the_pattern_of_gpt2) {
  TokenizerJson json = small_tokenizer({"ab"}, TokenizerJson::parse(R"(["a b"])"));
  json["model"]["ignore_merges"] = true;
  json["pre_tokenizer"]["use_regex"] = true;
  EXPECT_EQ(encode(*load_tokenizer(json), "ab1ab"), (Ids{256, '1', 256}));
}

}  // namespace
}  // namespace subbyte
