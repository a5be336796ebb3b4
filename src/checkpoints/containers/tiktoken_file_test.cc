#include "checkpoints/containers/tiktoken_file.h"

#include <gtest/gtest.h>

#include <string>

#include "checkpoints/config/model_files.h"
#include "support/json_of.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

constexpr const char* kConfig = R"({"tokenizer_class": "TikTokenTokenizer",
    "added_tokens_decoder": {"260": {"content": "[EOS]", "special": true}}})";

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (std::size_t j = i; j < i + 3; ++j) {
      bits = bits << 8 | (j < bytes.size() ? static_cast<uint8_t>(bytes[j]) : 0U);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      text += i + j > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * j) & 63];
    }
  }
  return text;
}

/// All bytes, and then some tokens.
std::string ranks() {
  std::string text;
  int rank = 0;
  const auto add = [&](std::string_view token) {
    text += base64(token) + " " + std::to_string(rank++) + "\n";
  };
  for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
  for (const char* const token : {"ab", "bc", "abc"}) add(token);
  return text;
}

Result<std::string> read(const std::string& ranks, const char* config = kConfig) {
  const TempDir folder;
  folder.write(kTiktokenFile, ranks);
  folder.write("tokenizer_config.json", config);
  return tiktoken_tokenizer_json(SideFiles(folder.path()));
}

TEST(TiktokenFile, is_a_byte_pair_encoding_with_the_merges_that_ranks_imply) {
  const auto text = read(ranks());
  ASSERT_TRUE(text.ok()) << text.error().message;
  const json::Value made = json_of(text->c_str());
  EXPECT_EQ(made["model"]["vocab"]["abc"], 258);
  EXPECT_EQ(made["model"]["vocab"]["\u0120"], 32);
  EXPECT_EQ(made["model"]["merges"].size(), 4);
  EXPECT_EQ(made["model"]["merges"][0], json_of(R"(["a", "b"])"));
  EXPECT_EQ(made["model"]["ignore_merges"], true);
  // 256 ids after the ranks are reserved; tokenizer_config.json names one of them.
  EXPECT_EQ(made["added_tokens"].size(), 255);
  EXPECT_EQ(made["added_tokens"][0]["content"], "<|reserved_token_259|>");
  EXPECT_EQ(made["added_tokens"][1]["id"], 261);
}

TEST(TiktokenFile, order_ends_of_lines_and_empty_lines_say_nothing) {
  const auto usual = read(ranks());
  std::string other = "\n" + base64("abc") + " 258\r\n" + ranks();
  other.erase(other.rfind(base64("abc")));
  const auto turned = read(other);
  ASSERT_TRUE(turned.ok()) << turned.error().message;
  EXPECT_EQ(json_of(turned->c_str())["model"]["vocab"]["abc"], 258);
  EXPECT_EQ(json_of(turned->c_str())["model"]["merges"],
            json_of(usual->c_str())["model"]["merges"]);
}

TEST(TiktokenFile, stands_for_tokenizer_json_where_there_is_none) {
  const TempDir folder;
  folder.write(kTiktokenFile, ranks());
  folder.write("tokenizer_config.json", kConfig);
  const ModelFiles files(folder.path());
  EXPECT_TRUE(check_tokenizer_file(files).ok());
  const auto made = files.text("tokenizer.json");
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(**made, *tiktoken_tokenizer_json(files));
  folder.write("tokenizer.json", "{}");
  EXPECT_FALSE(ModelFiles(folder.path()).text("tokenizer.json")->has_value());
}

TEST(TiktokenFile, what_is_wrong_is_said_by_line) {
  const std::pair<std::string, const char*> all[] = {
      {"YQ== 0 1\n", "line 260: expected a rank"},  {"YWI\n", "line 260: expected a token"},
      {"Y!I= 259\n", "line 260: expected a token"}, {" 259\n", "line 260: expected a token"},
      {"YWJj\n", "line 260: expected a rank"},      {"YWJjZA== -1\n", "line 260: expected a rank"},
      {"YWJjZA== 300000\n", "line 260: expected"},  {"YWJj 259\n", "line 260: its token"},
      {"YWJjZA== 7\n", "line 260: its rank"}};
  for (const auto& [line, message] : all) {
    const auto text = read(ranks() + line);
    ASSERT_FALSE(text.ok()) << line;
    EXPECT_EQ(text.error().code, "tokenizer.tiktoken");
    EXPECT_NE(text.error().message.find(message), std::string::npos) << text.error().message;
  }
  std::string lacks = ranks();
  lacks.erase(0, lacks.find('\n') + 1);
  const auto text = read(lacks);
  ASSERT_FALSE(text.ok());
  EXPECT_NE(text.error().message.find("no token for the byte 0x00"), std::string::npos)
      << text.error().message;
}

TEST(TiktokenFile, other_classes_are_refused_by_name) {
  for (const char* const config : {R"({"tokenizer_class": "QWenTokenizer"})", "{}"}) {
    const auto text = read(ranks(), config);
    ASSERT_FALSE(text.ok());
    EXPECT_NE(text.error().message.find("tokenizer_class"), std::string::npos);
  }
}

}  // namespace
}  // namespace subbyte
