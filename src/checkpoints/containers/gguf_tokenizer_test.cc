#include "checkpoints/containers/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "checkpoints/containers/gguf_merges.h"
#include "checkpoints/containers/gguf_pre_tokenizers.h"
#include "json/strict_json.h"
#include "support/gguf_bytes.h"

namespace subbyte {
namespace {

GgufFile file_of(const GgufBytes& made) {
  const std::string bytes = made.bytes();
  auto file = GgufFile::of(MappedFile::of(std::as_bytes(std::span(bytes)), "m.gguf"));
  EXPECT_TRUE(file.ok()) << file.error().message;
  return *std::move(file);
}

/// Byte pair encoding of five tokens.
GgufBytes gpt2() {
  GgufBytes file;
  file.text("tokenizer.ggml.model", "gpt2");
  file.text("tokenizer.ggml.pre", "qwen2");
  file.texts("tokenizer.ggml.tokens", {"a", "b", "ab", "<|im_end|>", "<tool>", "[PAD5]"});
  file.numbers<int32_t>("tokenizer.ggml.token_type", 5, {1, 1, 1, 3, 4, 5});
  file.texts("tokenizer.ggml.merges", {"a b"});
  file.u32("tokenizer.ggml.eos_token_id", 3);
  return file;
}

json::Value json_of(const Result<std::string>& text) {
  EXPECT_TRUE(text.ok()) << text.error().message;
  return text.ok() ? *json::parse(*text, "made") : json::Value();
}

std::string refusal(const GgufBytes& made) {
  const auto text = gguf_tokenizer_json(file_of(made));
  return text.ok() ? "" : std::string(text.error().code) + " " + text.error().message;
}

TEST(GgufTokenizer, byte_pair_encoding) {
  const json::Value made = json_of(gguf_tokenizer_json(file_of(gpt2())));
  EXPECT_EQ(json::to_text(made["model"]["vocab"]), R"({"a":0,"b":1,"ab":2})");
  EXPECT_EQ(json::to_text(made["model"]["merges"]), R"(["a b"])");
  ASSERT_EQ(made["added_tokens"].size(), 2u);
  EXPECT_EQ(made["added_tokens"][0]["content"], "<|im_end|>");
  EXPECT_EQ(made["added_tokens"][0]["special"], true);
  EXPECT_EQ(made["added_tokens"][1]["special"], false);
  EXPECT_EQ(made["normalizer"]["type"], "NFC");
  EXPECT_TRUE(made["post_processor"].is_null());
}

TEST(GgufTokenizer, tokens_around_a_text) {
  GgufBytes file = gpt2();
  file.key("tokenizer.ggml.add_bos_token", 7, raw(uint8_t{1}));
  EXPECT_TRUE(refusal(file).starts_with(
      "gguf.tokenizer m.gguf: tokenizer.ggml.bos_token_id: expected the id of the token"));
  file.u32("tokenizer.ggml.bos_token_id", 4);
  const json::Value made = json_of(gguf_tokenizer_json(file_of(file)));
  EXPECT_EQ(made["post_processor"]["single"][0]["SpecialToken"]["id"], "<tool>");
  EXPECT_EQ(json::to_text(made["post_processor"]["special_tokens"]["<tool>"]["ids"]), "[4]");
}

TEST(GgufTokenizer, files_beside_it) {
  GgufBytes file = gpt2();
  file.text("tokenizer.chat_template", "{{ a }}");
  const json::Value alone = json_of(gguf_tokenizer_config(file_of(file)));
  EXPECT_EQ(alone["chat_template"], "{{ a }}");
  EXPECT_EQ(alone["eos_token"], "<|im_end|>");
  file.text("tokenizer.chat_template.tool_use", "{{ b }}");
  file.f32("general.sampling.temp", 0.5F);
  const json::Value both = json_of(gguf_tokenizer_config(file_of(file)));
  EXPECT_EQ(both["chat_template"][1]["name"], "tool_use");
  const json::Value generation = json_of(gguf_generation_config(file_of(file)));
  EXPECT_EQ(json::to_text(generation), R"({"eos_token_id":[3],"temperature":0.5})");
}

TEST(GgufTokenizer, refuses_what_does_not_fit) {
  const auto changed = [](const std::function<void(GgufBytes&)>& change) {
    GgufBytes file = gpt2();
    change(file);
    return refusal(file);
  };
  const auto without = [&](std::string_view key, const std::function<void(GgufBytes&)>& change) {
    GgufBytes file = gpt2();
    std::erase_if(file.keys, [&](const std::string& entry) {
      return std::string_view(entry).substr(8).starts_with(key);
    });
    change(file);
    return refusal(file);
  };
  EXPECT_EQ(changed([](GgufBytes&) {}), "");
  EXPECT_TRUE(without("tokenizer.ggml.model",
                      [](GgufBytes& file) { file.text("tokenizer.ggml.model", "t5"); })
                  .starts_with("gguf.tokenizer m.gguf: tokenizer.ggml.model: expected \"gpt2\", "
                               "\"llama\" or \"gemma4\", which are read, found \"t5\""));
  EXPECT_TRUE(without("tokenizer.ggml.pre", [](GgufBytes& file) {
                file.text("tokenizer.ggml.pre", "of-tomorrow");
              }).find("found \"of-tomorrow\"") != std::string::npos);
  EXPECT_TRUE(without("tokenizer.ggml.pre", [](GgufBytes&) {}).find("found none") !=
              std::string::npos);
  EXPECT_TRUE(without("tokenizer.ggml.token_type", [](GgufBytes& file) {
                file.numbers<int32_t>("tokenizer.ggml.token_type", 5, {1});
              }).find("expected 6 numbers, one for each token") != std::string::npos);
  EXPECT_TRUE(without("tokenizer.ggml.token_type", [](GgufBytes& file) {
                file.numbers<int32_t>("tokenizer.ggml.token_type", 5, {1, 1, 1, 1, 1, 7});
              }).find("[5]: expected a type from 1 to 6, found 7") != std::string::npos);
  EXPECT_TRUE(changed([](GgufBytes& file) {
                file.numbers<float>("tokenizer.ggml.scores", 6, {0, 1});
              }).find("tokenizer.ggml.scores: expected 6 numbers") != std::string::npos);
  EXPECT_TRUE(without("tokenizer.ggml.merges", [](GgufBytes&) {}).find("tokenizer.ggml.merges") !=
              std::string::npos);
  GgufBytes beyond = gpt2();
  beyond.u32("tokenizer.ggml.eot_token_id", 6);
  const auto generation = gguf_generation_config(file_of(beyond));
  ASSERT_FALSE(generation.ok());
  EXPECT_NE(generation.error().message.find("expected the id of a token, below 6, found 6"),
            std::string::npos);
}

/// By hand, as transformers' generate_merges orders them: the score of the whole, then the
/// characters of the halves, then their ids.
TEST(GgufTokenizer, merges_follow_from_scores) {
  const std::vector<std::string_view> pieces = {"a", "\u00E9", "a\u00E9", "aa", "aa\u00E9", "b"};
  const std::vector<float> scores = {-9, -9, -2, -1, -2, -9};
  const auto merges = merges_of_scores(pieces, scores);
  ASSERT_TRUE(merges.ok());
  const std::vector<std::pair<std::string_view, std::string_view>> expected = {
      {"a", "a"}, {"aa", "\u00E9"}, {"a", "a\u00E9"}, {"a", "\u00E9"}};
  EXPECT_EQ(*merges, expected);
}

TEST(GgufTokenizer, sentencepiece_becomes_pairs) {
  GgufBytes file;
  file.text("tokenizer.ggml.model", "llama");
  file.texts("tokenizer.ggml.tokens", {"<unk>", "<s>", "a", "b", "ab"});
  file.numbers<int32_t>("tokenizer.ggml.token_type", 5, {2, 3, 1, 1, 1});
  file.numbers<float>("tokenizer.ggml.scores", 6, {0, 0, -2, -3, -1});
  file.u32("tokenizer.ggml.bos_token_id", 1);
  const json::Value made = json_of(gguf_tokenizer_json(file_of(file)));
  EXPECT_EQ(json::to_text(made["model"]["merges"]), R"([["a","b"]])");
  EXPECT_EQ(made["model"]["unk_token"], "<unk>");
  EXPECT_EQ(made["model"]["vocab"].size(), 5u);
  EXPECT_EQ(made["normalizer"]["normalizers"][0]["prepend"], "\u2581");
  EXPECT_EQ(made["post_processor"]["single"][0]["SpecialToken"]["id"], "<s>");
}

/// As tokenizer.json of Gemma 4: blanks are letters, merges are listed, and each text has its
/// beginning.
TEST(GgufTokenizer, pairs_of_characters) {
  GgufBytes file;
  file.text("tokenizer.ggml.model", "gemma4");
  file.texts("tokenizer.ggml.tokens", {"<bos>", "a", "\u2581", "\u2581a", "<0x0A>", "<turn|>"});
  file.numbers<int32_t>("tokenizer.ggml.token_type", 5, {3, 1, 1, 1, 6, 3});
  file.texts("tokenizer.ggml.merges", {"\u2581 a"});
  file.u32("tokenizer.ggml.bos_token_id", 0);
  file.key("tokenizer.ggml.add_bos_token", 7, raw(uint8_t{0}));
  const json::Value made = json_of(gguf_tokenizer_json(file_of(file)));
  EXPECT_EQ(json::to_text(made["model"]["merges"]), "[\"\u2581 a\"]");
  EXPECT_EQ(made["model"]["byte_fallback"], true);
  EXPECT_EQ(made["normalizer"]["type"], "Replace");
  EXPECT_TRUE(made["pre_tokenizer"].is_null());
  EXPECT_EQ(made["post_processor"]["single"][0]["SpecialToken"]["id"], "<bos>");
  const json::Value generation = json_of(gguf_generation_config(file_of(file)));
  EXPECT_EQ(json::to_text(generation), R"({"eos_token_id":[5]})");
}

TEST(GgufTokenizer, no_name_of_a_pre_tokenizer_comes_twice) {
  std::set<std::string> names;
  for (const GgufPreTokenizer& known : all_gguf_pre_tokenizers()) {
    std::string word;
    for (const char c : std::string(known.names) + " ") {
      if (c != ' ') {
        word += c;
        continue;
      }
      EXPECT_TRUE(names.insert(word).second) << word;
      EXPECT_EQ(find_gguf_pre_tokenizer(word), &known);
      word.clear();
    }
  }
  EXPECT_EQ(find_gguf_pre_tokenizer("qwen"), nullptr);
  EXPECT_EQ(find_gguf_pre_tokenizer(""), nullptr);
}

}  // namespace
}  // namespace subbyte
