#include "checkpoints/config/kept_modules.h"

#include <gtest/gtest.h>

namespace subbyte {
namespace {

std::string entry(const std::vector<std::string>& list, std::string_view module) {
  const json::Value section = {{"ignore", list}};
  KeptModules kept;
  EXPECT_TRUE(kept.add(*json::Object::of(section, "config.json"), "ignore").ok());
  return std::string(kept.entry_of(module));
}

TEST(KeptModules, are_named_by_whole_parts_of_their_names) {
  EXPECT_EQ(entry({"lm_head"}, "lm_head"), "lm_head");
  EXPECT_EQ(entry({"mlp.gate"}, "model.layers.0.mlp.gate"), "mlp.gate");
  EXPECT_EQ(entry({"mlp.gate"}, "model.layers.0.mlp.gate_proj"), "");
  EXPECT_EQ(entry({"gate"}, "model.layers.0.mlp.gate_proj"), "");
  EXPECT_EQ(entry({"model.layers.1"}, "model.layers.1.mlp.up_proj"), "model.layers.1");
  EXPECT_EQ(entry({"model.layers.1"}, "model.layers.11.mlp.up_proj"), "");
  EXPECT_EQ(entry({"Linear"}, "model.layers.1.mlp.up_proj"), "");
}

TEST(KeptModules, are_named_by_patterns) {
  EXPECT_NE(entry({"model.layers.*.self_attn"}, "model.layers.7.self_attn.q_proj"), "");
  EXPECT_EQ(entry({"model.layers.*.self_attn"}, "model.layers.7.mlp.up_proj"), "");
  EXPECT_NE(entry({"re:.*lm_head"}, "lm_head"), "");
  EXPECT_NE(entry({R"(re:^model\.layers\..*\.mlp\.gate$)"}, "model.layers.3.mlp.gate"), "");
  EXPECT_EQ(entry({R"(re:^model\.layers\..*\.mlp\.gate$)"}, "model.layers.3.mlp.gate_proj"), "");
  EXPECT_NE(entry({"*embed*"}, "model.embed_tokens"), "");
  // What is more than that names nothing.
  EXPECT_EQ(entry({"re:model.layers.(1|2).*", "re:.*[", "model+"}, "model.layers.1.mlp"), "");
}

TEST(KeptModules, of_long_lists_are_found_quickly) {
  std::vector<std::string> list;
  for (int i = 0; i < 100'000; ++i) list.push_back("model.layers." + std::to_string(i) + ".x");
  for (int i = 0; i < 1000; ++i) list.push_back("*" + std::to_string(i) + "a*b*c*d");
  const json::Value section = {{"ignore", list}};
  KeptModules kept;
  ASSERT_TRUE(kept.add(*json::Object::of(section, "config.json"), "ignore").ok());
  for (int i = 0; i < 2000; ++i) {
    EXPECT_EQ(kept.entry_of("model.layers." + std::to_string(i) + ".aaaaaaaaaaaaaaaaaaaaaa.y"), "");
  }
}

TEST(KeptModules, have_to_be_a_list_of_texts) {
  KeptModules kept;
  for (const json::Value& value : {json::Value("lm_head"), json::Value::array({1})}) {
    const json::Value section = {{"ignore", value}};
    EXPECT_EQ(kept.add(*json::Object::of(section, "f"), "ignore").error().code, "json.type");
  }
}

}  // namespace
}  // namespace subbyte
