#include "engine/generation_config.h"

#include <gtest/gtest.h>

#include "engine/end_tokens.h"
#include "support/json_of.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

using json::KeyRule;
using json::KeyUse;
using json::Value;

class GenerationConfig : public ::testing::Test {
 protected:
  Result<Sampling> read(const Value& config) {
    dir_.write("generation_config.json", config.text());
    return read_generation_config(dir_.path());
  }
  Value sampling(const Value& config) {
    const auto wishes = read(config);
    EXPECT_TRUE(wishes.ok()) << wishes.error().message;
    return to_json(SamplingDefaults::of({}, *wishes).alone);
  }

  TempDir dir_;
};

TEST_F(GenerationConfig, says_what_is_sampled_with) {
  EXPECT_EQ(to_json(SamplingDefaults::of({}, *read_generation_config(dir_.path())).alone),
            to_json(SamplingOptions{}));
  EXPECT_EQ(sampling(Value::object()), to_json(SamplingOptions{}));
  EXPECT_EQ(
      sampling({{"temperature", 0.6}, {"top_p", 0.9}, {"repetition_penalty", 1.05}}),
      to_json(
          {.temperature = 0.6, .top_k = 0, .top_p = 0.9, .min_p = 0, .repetition_penalty = 1.05}));
  EXPECT_EQ(sampling({{"top_k", -1}}), to_json(neutral_sampling()));
  EXPECT_EQ(sampling({{"do_sample", true}}), to_json(neutral_sampling()));
  EXPECT_EQ(sampling({{"do_sample", false}, {"temperature", 0.6}})["temperature"], 0);
  EXPECT_EQ(sampling({{"do_sample", nullptr}, {"top_k", nullptr}}), to_json(SamplingOptions{}));
}

TEST_F(GenerationConfig, stands_in_config_json_where_there_is_no_file_of_its_own) {
  dir_.write("config.json", R"({"model_type": "qwen3", "temperature": 0.1, "top_k": null})");
  const auto wishes = read_generation_config(dir_.path());
  ASSERT_TRUE(wishes.ok()) << wishes.error().message;
  EXPECT_EQ(wishes->temperature, 0.1);
  EXPECT_FALSE(wishes->top_k);
  // Of a wrapper what it says itself comes first.
  dir_.write("config.json", R"({"top_p": 0.5, "text_config": {"top_p": 0.7, "top_k": 3}})");
  EXPECT_EQ(read_generation_config(dir_.path())->top_p, 0.5);
  EXPECT_EQ(read_generation_config(dir_.path())->top_k, 3);
  dir_.write("config.json", R"({"model_type": "qwen3", "suppress_tokens": [5]})");
  const auto refused = read_generation_config(dir_.path());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, "config.not_computed");
  EXPECT_NE(refused.error().message.find("config.json: suppress_tokens"), std::string::npos);
  // The reference asks one of the two. What lies beside a model that is a file is not its config.
  dir_.write("model.ak48", "");
  EXPECT_TRUE(read_generation_config(dir_ / "model.ak48").ok());
  dir_.write("generation_config.json", "{}");
  EXPECT_TRUE(read_generation_config(dir_.path()).ok());
}

TEST_F(GenerationConfig, refuses_values_out_of_range) {
  EXPECT_EQ(read({{"temperature", -1}}).error().code, "json.range");
  EXPECT_EQ(read({{"top_k", "5"}}).error().code, "json.type");
  EXPECT_EQ(read(Value::array()).error().code, "json.type");
}

TEST_F(GenerationConfig, refuses_by_name_what_is_not_computed) {
  for (const KeyRule& rule : generation_config_rules()) {
    const std::string key(rule.key);
    if (rule.use != KeyUse::kRefused) continue;
    for (const Value& value : json_of("[null" + std::string(rule.neutral.empty() ? "" : ",") +
                                      std::string(rule.neutral) + "]")) {
      EXPECT_TRUE(read({{key, value}}).ok()) << key << value.text();
    }
    const auto refused = read({{key, Value::array({17})}});
    ASSERT_FALSE(refused.ok()) << key;
    EXPECT_EQ(refused.error().code, "config.not_computed");
    EXPECT_NE(refused.error().message.find("generation_config.json: " + key), std::string::npos)
        << refused.error().message;
  }
}

TEST_F(GenerationConfig, what_changes_nothing_may_say_anything) {
  for (const KeyRule& rule : generation_config_rules()) {
    if (rule.use != KeyUse::kIgnored) continue;
    for (const Value& value : {Value("x"), Value(17), Value(true)}) {
      EXPECT_EQ(sampling({{std::string(rule.key), value}}), to_json(SamplingOptions{})) << rule.key;
    }
  }
}

}  // namespace
}  // namespace subbyte
