#include "text/tokenizer_config.h"

#include <gtest/gtest.h>

#include "support/small_tokenizer.h"

namespace subbyte {
namespace {

using Json = TokenizerJson;
using json::KeyUse;

Json described(std::string_view content, bool special) {
  return {{"content", content}, {"special", special}, {"normalized", false}};
}

/// Bytes, "ab" as 256, and <|a|> as 257 among the added tokens.
class SideFiles : public ::testing::Test {
 protected:
  SideFiles() {
    Json json = small_tokenizer({"ab", "<|v|>"}, {"a b"});
    json["added_tokens"].push_back(added_token(258, "<|a|>"));
    dir_.write("tokenizer.json", json.dump());
  }

  Result<Tokenizer> load() { return Tokenizer::load(dir_ / "tokenizer.json"); }
  std::string ids(std::string_view text) {
    const auto tokenizer = load();
    if (!tokenizer.ok()) return std::string(tokenizer.error().code);
    std::string list;
    const auto ids = tokenizer->encode(text, SpecialTokens::kRecognize);
    for (const TokenId id : *ids) {
      list += (list.empty() ? "" : ",") + std::to_string(id);
    }
    return list;
  }
  void config(const Json& json) { dir_.write("tokenizer_config.json", json.dump()); }

  TempDir dir_;
};

TEST_F(SideFiles, add_the_tokens_of_added_tokens_decoder) {
  EXPECT_EQ(ids("x<|b|>"), "120,60,124,98,124,62");
  config({{"added_tokens_decoder", {{"300", described("<|b|>", true)}}}});
  EXPECT_EQ(ids("x<|b|>y"), "120,300,121");
  const auto tokenizer = load();
  EXPECT_TRUE(tokenizer->is_special(300));
  EXPECT_EQ(*tokenizer->decode(std::vector<TokenId>{120, 300}, false), "x<|b|>");
  // The other files do not count beside it.
  dir_.write("added_tokens.json", R"({"<|c|>": 301})");
  dir_.write("special_tokens_map.json", R"({"eos_token": "<|d|>"})");
  EXPECT_EQ(ids("<|c|>").substr(0, 3), "60,");
  EXPECT_FALSE(load()->end_token());
  // But for the token that ends a text, where nothing else names it.
  for (const char* const end : {R"("<|v|>")", R"({"content": "<|v|>", "special": true})"}) {
    dir_.write("special_tokens_map.json", std::string(R"({"eos_token": )") + end + "}");
    EXPECT_EQ(load()->end_token(), 257);
  }
  config({{"added_tokens_decoder", {{"300", described("<|b|>", true)}}}, {"eos_token", nullptr}});
  EXPECT_EQ(load()->end_token(), 257);
  config({{"added_tokens_decoder", {{"300", described("<|b|>", true)}}}, {"eos_token", "<|b|>"}});
  EXPECT_EQ(load()->end_token(), 300);
}

TEST_F(SideFiles, add_the_tokens_of_older_files_where_there_is_no_decoder) {
  dir_.write("added_tokens.json", R"({"<|c|>": 301, "<|d|>": 302})");
  dir_.write("special_tokens_map.json",
             R"({"eos_token": "<|d|>", "additional_special_tokens": []})");
  EXPECT_EQ(ids("<|c|><|d|>"), "301,302");
  const auto tokenizer = load();
  EXPECT_FALSE(tokenizer->is_special(301));
  EXPECT_TRUE(tokenizer->is_special(302));
  EXPECT_EQ(tokenizer->end_token(), 302);
}

TEST_F(SideFiles, make_special_what_they_name) {
  config({{"eos_token", "<|v|>"},
          {"extra_special_tokens", {described("<|n|>", false)}},
          {"model_specific_special_tokens", {{"audio", "<|s|>"}}},
          {"image_token", "<|i|>"}});
  EXPECT_EQ(ids("<|v|><|n|><|s|><|i|><|a|>"), "257,259,260,261,258");  // the next free ids
  const auto tokenizer = load();
  EXPECT_EQ(tokenizer->end_token(), 257);
  EXPECT_TRUE(tokenizer->is_special(257) && tokenizer->is_special(259));
  EXPECT_FALSE(tokenizer->is_special(258));  // tokenizer.json says what it is
}

/// transformers 5.24 raises for these types, and takes objects of other names for tokens only where
/// they say that they are.
TEST_F(SideFiles, tokens_are_texts_or_objects) {
  const Json wrong[] = {17, 1.5, true, Json::array({"<|b|>"})};
  for (const char* const key : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                                "cls_token", "mask_token"}) {
    for (const Json& value : wrong) {
      config({{key, value}});
      const auto refused = load();
      ASSERT_FALSE(refused.ok()) << key << value;
      EXPECT_EQ(refused.error().code, "json.type");
      EXPECT_NE(refused.error().message.find(key), std::string::npos) << refused.error().message;
    }
  }
  for (const char* const key :
       {"additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens"}) {
    for (const Json& value : {Json(17), Json("<|b|>"), Json(true), Json::array({17})}) {
      config({{key, value}});
      EXPECT_EQ(ids(""), "json.type") << key << value;
    }
  }
  const Json token = {{"content", "<|b|>"}};
  const Json written = {{"__type", "AddedToken"}, {"content", "<|b|>"}};
  config(Json::object());
  const auto without = ids("<|b|>");
  config({{"odd_token", token}, {"add_bos_token", "<|b|>"}, {"other_token", true}});
  EXPECT_EQ(ids("<|b|>"), without);
  config({{"odd_token", written}});
  EXPECT_EQ(ids("<|b|>"), "259");
  config({{"odd_token", nullptr}});
  dir_.write("special_tokens_map.json", Json{{"odd_token", token}}.dump());
  EXPECT_EQ(ids("<|b|>"), "259");
  // Of a key that both files have, the map counts.
  config({{"eos_token", "<|b|>"}});
  dir_.write("special_tokens_map.json", R"({"eos_token": "<|v|>"})");
  EXPECT_EQ(ids("<|b|><|v|>"), without + ",257");
  EXPECT_EQ(load()->end_token(), 257);
}

TEST_F(SideFiles, that_contradict_tokenizer_json_are_refused) {
  config({{"added_tokens_decoder", {{"300", described("<|a|>", true)}}}});
  EXPECT_EQ(ids(""), "tokenizer.added_token_mismatch");
  config({{"added_tokens_decoder", {{"258", described("<|b|>", true)}}}});
  EXPECT_EQ(ids(""), "tokenizer.duplicate_id");
  config({{"added_tokens_decoder", {{"256", described("<|b|>", true)}}}});
  EXPECT_EQ(ids(""), "tokenizer.added_token_conflict");
  config({{"added_tokens_decoder", {{"9999999", described("<|b|>", true)}}}});
  EXPECT_EQ(ids(""), "tokenizer.id_out_of_range");
  config({{"added_tokens_decoder", {{"x", described("<|b|>", true)}}}});
  EXPECT_EQ(ids(""), "json.range");
  config({{"added_tokens_decoder", {{"300", {{"special", true}}}}}});
  EXPECT_EQ(ids(""), "json.missing");
  dir_.write("tokenizer_config.json", "{");
  EXPECT_EQ(ids(""), "json.syntax");
}

TEST_F(SideFiles, what_a_container_says_in_their_words_is_named_by_the_container) {
  const std::string text = small_tokenizer({"ab"}, {"a zz"}).dump();
  subbyte::SideFiles beside;
  beside.put_text("tokenizer.json", [text] { return text; });
  const auto tokenizer = open_tokenizer("models/m.gguf/tokenizer.json", beside);
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.error().message,
            "m.gguf (in the words of tokenizer.json): model.merges[0]: \"zz\" is not in the "
            "vocabulary");
}

/// transformers 5.24 applies it to files of these families that are from before its version 5 and
/// have more than 100,000 tokens.
TEST_F(SideFiles, may_have_a_flag_that_concerns_mistral_alone) {
  const auto is_concerned = [&](const Json& model) {
    dir_.write("config.json", model.dump());
    return read_tokenizer_config(dir_.path())->has_mistral_pattern;
  };
  config({{"fix_mistral_regex", true}});
  EXPECT_FALSE(read_tokenizer_config(dir_.path())->has_mistral_pattern);  // of no family
  EXPECT_FALSE(is_concerned({{"model_type", "qwen3"}, {"transformers_version", "4.57.1"}}));
  EXPECT_FALSE(is_concerned({{"model_type", "mistral"}, {"transformers_version", "5.0.0"}}));
  EXPECT_FALSE(is_concerned({{"model_type", "mistral"}, {"transformers_version", "5.17.0"}}));
  for (const char* const type : {"mistral", "mistral3", "voxtral", "ministral", "pixtral"}) {
    EXPECT_TRUE(is_concerned({{"model_type", type}, {"transformers_version", "4.57.1"}})) << type;
  }
  EXPECT_TRUE(is_concerned({{"model_type", "mistral"}, {"transformers_version", "5.0.0.dev0"}}));
  EXPECT_TRUE(is_concerned(Json::object()));
  EXPECT_TRUE(is_concerned({{"model_type", "mistral"}}));
  EXPECT_EQ(ids("ab<|a|>"), "256,258");  // few tokens
  // In the text, as objects of JSON that keep their order look through all of it for each key.
  std::string many = small_tokenizer({"ab"}, {"a b"}).dump();
  const std::string last = "\"ab\":256";
  std::string more;
  for (int i = 0; i < 100'000; ++i) {
    more += ",\"<" + std::to_string(i) + ">\":" + std::to_string(257 + i);
  }
  many.insert(many.find(last) + last.size(), more);
  dir_.write("tokenizer.json", many);
  EXPECT_EQ(ids("ab"), "tokenizer.unsupported");
  config({{"fix_mistral_regex", false}});
  EXPECT_FALSE(is_concerned({{"model_type", "mistral"}}));
}

/// What TokeNicer 0.0.14, with which GPTQModel saves, makes of tests/data/tokenizers/qwen35 beside
/// a config.json of Qwen3; ids are those of transformers 5.24.
TEST(SideFilesOfGptqModel, open_as_they_are) {
  const std::filesystem::path folder =
      std::filesystem::path(SUBBYTE_TEST_DATA) / "tokenizers" / "gptqmodel";
  const auto read = [&](const char* name) {
    std::ifstream file(folder / name);
    return Json::parse(file);
  };
  ASSERT_EQ(read("tokenizer_config.json").at("fix_mistral_regex"), true);
  const auto tokenizer = Tokenizer::load(folder / "tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  for (const auto& item : read("cases.json")) {
    EXPECT_EQ(*tokenizer->encode(item["text"].get<std::string>(), SpecialTokens::kRecognize),
              item["ids"].get<std::vector<TokenId>>());
  }
  EXPECT_EQ(tokenizer->end_token(), tokenizer->find("<|im_end|>"));
}

TEST_F(SideFiles, may_ask_for_a_space_that_is_there) {
  config({{"add_prefix_space", true}});
  const auto refused = load();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(to_string(refused.error()),
            "tokenizer_config.json: add_prefix_space: expected false, as tokenizer.json puts no "
            "space before a text, found true [tokenizer.unsupported]");
  const Json plain = small_tokenizer();
  const auto opens = [&](const char* part, const char* value) {
    Json json = plain;
    json[part] = Json::parse(value);
    if (json["pre_tokenizer"]["type"] == "Metaspace") json["decoder"] = Json::parse(value);
    dir_.write("tokenizer.json", json.dump());
    return load().ok();
  };
  EXPECT_TRUE(opens("pre_tokenizer", R"({"type": "ByteLevel", "add_prefix_space": true})"));
  EXPECT_TRUE(opens("pre_tokenizer", R"({"type": "Metaspace", "replacement": "\u2581",
                                        "prepend_scheme": "first"})"));
  EXPECT_FALSE(opens("pre_tokenizer", R"({"type": "Metaspace", "replacement": "\u2581",
                                         "prepend_scheme": "never"})"));
  EXPECT_TRUE(opens("normalizer", R"({"type": "Prepend", "prepend": " "})"));
  EXPECT_FALSE(opens("normalizer", R"({"type": "NFC"})"));
}

TEST_F(SideFiles, are_not_read_for_a_file_by_another_name) {
  config({{"added_tokens_decoder", {{"300", described("<|b|>", true)}}}});
  std::filesystem::rename(dir_ / "tokenizer.json", dir_ / "other.json");
  EXPECT_EQ(Tokenizer::load(dir_ / "other.json")->size(), 259);
}

TEST_F(SideFiles, keys_that_would_change_tokens_are_refused_by_name) {
  for (const json::KeyRule& rule : tokenizer_config_rules()) {
    const std::string key(rule.key);
    if (rule.use == KeyUse::kRefused) {
      for (const Json& value : Json::parse("[null, " + std::string(rule.neutral) + "]")) {
        config({{key, value}});
        EXPECT_EQ(ids("ab<|a|>"), "256,258") << key << value;
      }
      config({{key, {{"odd", 1}}}});
      const auto refused = load();
      ASSERT_FALSE(refused.ok()) << key;
      EXPECT_EQ(refused.error().code, "tokenizer.unsupported");
      EXPECT_NE(refused.error().message.find(key), std::string::npos) << refused.error().message;
    }
    if (rule.use == KeyUse::kIgnored) {
      for (const Json& value : {Json(17), Json("ab"), Json(true), Json::array({"ab"})}) {
        config({{key, value}});
        EXPECT_EQ(ids("ab<|a|>"), "256,258") << key << value;
      }
    }
  }
}

}  // namespace
}  // namespace subbyte
