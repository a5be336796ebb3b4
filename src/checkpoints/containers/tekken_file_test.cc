#include "checkpoints/containers/tekken_file.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "checkpoints/config/model_files.h"
#include "support/json_of.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

/// The bytes, "ab", which base64 has as "YWI=", and one more that the size leaves out.
json::Value sound() {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  json::Value vocab = json::Value::array();
  const auto add = [&](const std::string& text) {
    vocab.push_back({{"rank", vocab.size()}, {"token_bytes", text}, {"token_str", nullptr}});
  };
  for (unsigned byte = 0; byte < 256; ++byte) {
    add({kDigits[byte >> 2], kDigits[(byte & 3) << 4], '=', '='});
  }
  add("YWI=");
  add("YWJj");
  return {{"config",
           {{"pattern", "\\p{L}+|\\s+|[^\\s\\p{L}]+"},
            {"default_num_special_tokens", 5},
            {"default_vocab_size", 5 + 257}}},
          {"vocab", vocab},
          {"special_tokens", json::Value::array({{{"rank", 0}, {"token_str", "<unk>"}},
                                                 {{"rank", 1}, {"token_str", "<s>"}}})}};
}

Result<std::string> read(const json::Value& file) {
  const TempDir folder;
  folder.write(kTekkenFile, json::to_text(file));
  return tekken_tokenizer_json(SideFiles(folder.path()));
}

TEST(TekkenFile, special_tokens_come_before_ranks) {
  const auto text = read(sound());
  ASSERT_TRUE(text.ok()) << text.error().message;
  const json::Value made = json_of(*text);
  EXPECT_EQ(made["model"]["vocab"].size(), 257);
  EXPECT_EQ(made["model"]["vocab"]["ab"], 5 + 256);
  EXPECT_EQ(made["model"]["merges"], json_of(R"([["a", "b"]])"));
  EXPECT_EQ(made["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"],
            "\\p{L}+|\\s+|[^\\s\\p{L}]+");
  EXPECT_EQ(made["added_tokens"].size(), 5);
  EXPECT_EQ(made["added_tokens"][1]["content"], "<s>");
  EXPECT_EQ(made["added_tokens"][4]["content"], "<SPECIAL_4>");
}

TEST(TekkenFile, stands_for_tokenizer_json_where_there_is_none) {
  const TempDir folder;
  folder.write(kTekkenFile, json::to_text(sound()));
  const ModelFiles files(folder.path());
  EXPECT_TRUE(check_tokenizer_file(files).ok());
  EXPECT_EQ(**files.text("tokenizer.json"), *tekken_tokenizer_json(files));
}

TEST(TekkenFile, what_is_wrong_is_said_by_its_place) {
  const std::pair<const char*, std::function<void(json::Value&)>> all[] = {
      {"vocab[7]", [](json::Value& file) { file["vocab"][7]["token_bytes"] = "x"; }},
      {"vocab[7]", [](json::Value& file) { file["vocab"][7].erase("token_bytes"); }},
      {"vocab[7]", [](json::Value& file) { file["vocab"][7]["rank"] = 8; }},
      {"vocab[7]", [](json::Value& file) { file["vocab"][7] = 3; }},
      {"vocab[256]", [](json::Value& file) { file["vocab"][256]["token_bytes"] = "YQ=="; }},
      {"special_tokens[1]", [](json::Value& file) { file["special_tokens"][1]["rank"] = 0; }},
      {"special_tokens[1]",
       [](json::Value& file) { file["special_tokens"][1].erase("token_str"); }},
      {"special_tokens", [](json::Value& file) { file.erase("special_tokens"); }},
      {"pattern", [](json::Value& file) { file["config"].erase("pattern"); }},
      {"config", [](json::Value& file) { file.erase("config"); }},
      {"default_num_special_tokens",
       [](json::Value& file) { file["config"]["default_num_special_tokens"] = 1; }},
      {"default_vocab_size", [](json::Value& file) { file["config"]["default_vocab_size"] = 4; }},
      {"no token for the byte",
       [](json::Value& file) { file["config"]["default_vocab_size"] = 5 + 200; }}};
  for (const auto& [place, change] : all) {
    json::Value file = sound();
    change(file);
    const auto text = read(file);
    ASSERT_FALSE(text.ok()) << place;
    EXPECT_NE(text.error().message.find(place), std::string::npos) << text.error().message;
  }
}

}  // namespace
}  // namespace subbyte
