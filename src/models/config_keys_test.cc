#include "models/config_keys.h"

#include <gtest/gtest.h>

#include "support/json_of.h"
#include "support/model_configs.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

using testing::changed;
using testing::code;
using testing::expert_use;
using testing::kGptOss;
using testing::kQwen3;
using testing::kQwen3Moe;
using testing::kQwen3Next;
using testing::parse_text;

/// `base` with a key that is null, which the reference refuses of most, and here says nothing.
Result<ModelConfig> with_null(const char* base, const std::string& key) {
  json::Value value = json_of(base);
  value[key] = nullptr;
  return parse_text(value.text());
}

// What Qwen3Config, Qwen3MoeConfig and GptOssConfig of transformers 5.24 have where nothing is
// given; tools/interop/keys.py compares with them.
TEST(ConfigKeys, absent_keys_mean_what_the_class_of_the_reference_means) {
  const char* const sizes = R"("hidden_size": 512, "intermediate_size": 96, "vocab_size": 100,
      "num_hidden_layers": 30, "num_attention_heads": 64)";
  const auto bare = [&](const std::string& rest) {
    auto config = parse_text(std::string("{") + sizes + ", " + rest + "}");
    EXPECT_TRUE(config.ok()) << config.error().message;
    return config.ok() ? *config : ModelConfig();
  };
  const ModelConfig qwen3 = bare(R"("model_type": "qwen3")");
  EXPECT_EQ(qwen3.num_kv_heads, 32);
  EXPECT_EQ(qwen3.head_dim, 128);
  EXPECT_EQ(qwen3.max_positions, 32'768);
  EXPECT_EQ(qwen3.rms_norm_eps, 1e-6f);
  EXPECT_EQ(qwen3.rope, Rope(128, 10'000));
  EXPECT_EQ(qwen3.windows, std::vector<int64_t>(30, 0));
  EXPECT_FALSE(qwen3.tie_word_embeddings);
  EXPECT_TRUE(qwen3.eos_tokens.empty());
  const ModelConfig slides = bare(R"("model_type": "qwen3", "use_sliding_window": true)");
  EXPECT_EQ(slides.windows[27], 0);
  EXPECT_EQ(slides.windows[28], 4096);

  const std::string experts = R"(, "num_experts": 16, "num_experts_per_tok": 2)";
  const ModelConfig moe =
      bare(R"("model_type": "qwen3_moe", "moe_intermediate_size": 32)" + experts);
  EXPECT_EQ(moe.num_kv_heads, 4);
  EXPECT_EQ(moe.head_dim, 8);  // 512 / 64
  EXPECT_EQ(moe.max_positions, 32'768);
  EXPECT_EQ(moe.rope, Rope(8, 10'000));
  EXPECT_FALSE(testing::routing_of(moe).normalises);
  EXPECT_EQ(testing::expert_layers(moe), std::vector<bool>(30, true));
  EXPECT_EQ(bare(R"("model_type": "qwen3_moe", "moe_intermediate_size": 32,
                    "use_sliding_window": true)" +
                 experts)
                .windows,
            std::vector<int64_t>(30, 4096));

  const ModelConfig oss = bare(R"("model_type": "gpt_oss")" + experts);
  EXPECT_EQ(oss.num_kv_heads, 8);
  EXPECT_EQ(oss.head_dim, 64);
  EXPECT_EQ(oss.max_positions, 131'072);
  EXPECT_EQ(oss.rms_norm_eps, 1e-5f);
  EXPECT_EQ(oss.rope, bare(R"("model_type": "gpt_oss", "rope_theta": 150000, "rope_scaling":
                    {"type": "yarn", "factor": 32, "original_max_position_embeddings": 4096,
                     "beta_fast": 32, "beta_slow": 1, "truncate": false})" +
                           experts)
                          .rope);
  EXPECT_EQ(oss.windows[0], 128);
  EXPECT_EQ(oss.windows[1], 0);
  EXPECT_EQ(expert_use(oss).swiglu.limit, 7.0f);
  EXPECT_EQ(expert_use(oss).swiglu.alpha, 1.702f);
  // A section that is there and empty says that nothing is scaled.
  EXPECT_EQ(bare(R"("model_type": "gpt_oss", "rope_parameters": {})" + experts).rope,
            Rope(64, 150'000));
  EXPECT_EQ(bare(R"("model_type": "gpt_oss", "rope_scaling": null)" + experts).rope, oss.rope);
}

TEST(ConfigKeys, null_says_nothing_but_where_the_reference_knows_it) {
  EXPECT_EQ(with_null(kQwen3, "num_key_value_heads")->num_kv_heads, 16);  // all
  EXPECT_EQ(with_null(kQwen3, "head_dim")->head_dim, 64);                 // 1024 / 16
  EXPECT_EQ(with_null(kGptOss, "sliding_window")->windows, std::vector<int64_t>(4, 0));
  for (const char* key : {"tie_word_embeddings", "rms_norm_eps", "eos_token_id", "rope_theta",
                          "hidden_act", "use_sliding_window", "max_position_embeddings",
                          "attention_bias", "layer_types", "max_window_layers"}) {
    EXPECT_TRUE(with_null(kQwen3, key).ok()) << key;
  }
}

/// As transformers 5.24: attention is to all tokens then.
TEST(ConfigKeys, attention_to_later_tokens_is_refused_in_all_families) {
  for (const char* model : {kQwen3, kGptOss, kQwen3Next}) {
    EXPECT_EQ(code(model, R"({"is_causal": false})"), "config.not_computed");
    EXPECT_TRUE(changed(model, R"({"is_causal": true})").ok());
    const auto null = with_null(model, "is_causal");  // false to the reference
    ASSERT_FALSE(null.ok());
    EXPECT_EQ(null.error().code, "config.not_computed");
  }
}

/// The cache of the reference forgets what lies before a window, although nothing is masked.
TEST(ConfigKeys, windows_are_refused_where_the_reference_knows_them_in_its_cache_alone) {
  constexpr const char* kLlama = R"({"model_type": "llama", "hidden_size": 64, "vocab_size": 96,
      "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2})";
  const int64_t all = parse_text(kLlama)->max_positions;
  const auto with = [&](const std::string& value) {
    return code(kLlama, "{\"sliding_window\": " + value + "}");
  };
  EXPECT_EQ(with("8"), "config.not_computed");
  EXPECT_EQ(with(std::to_string(all - 1)), "config.not_computed");
  EXPECT_TRUE(changed(kLlama, "{\"sliding_window\": " + std::to_string(all) + "}").ok());
  EXPECT_TRUE(changed(kLlama, R"({"sliding_window": null})").ok());
  EXPECT_TRUE(changed(kLlama, R"({"sliding_window": 8, "layer_types":
                                  ["full_attention", "full_attention"]})")
                  .ok());
  for (const char* model : {kLlama, kQwen3Moe}) {
    EXPECT_EQ(code(model, R"({"attention_chunk_size": 8})"), "config.not_computed");
    EXPECT_TRUE(changed(model, R"({"attention_chunk_size": null})").ok());
  }
}

TEST(ConfigKeys, yarn_makes_more_positions) {
  const auto positions = [](const std::string& changes) {
    const auto config = changed(kQwen3, changes);
    EXPECT_TRUE(config.ok()) << config.error().message;
    return config->max_positions;
  };
  EXPECT_EQ(positions(R"({"rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                          "original_max_position_embeddings": 32768}})"),
            131'072);
  EXPECT_EQ(positions(R"({"rope_scaling": {"rope_type": "yarn", "factor": 1.0,
                          "original_max_position_embeddings": 32768}})"),
            40'960);
  EXPECT_EQ(positions(R"({"original_max_position_embeddings": 32768,
                          "rope_scaling": {"rope_type": "yarn", "factor": 2.0}})"),
            65'536);
  EXPECT_EQ(positions(R"({"rope_scaling": {"rope_type": "linear", "factor": 4.0}})"), 40'960);
  EXPECT_EQ(parse_text(kGptOss)->max_positions, 131'072);
  EXPECT_EQ(code(kQwen3, R"({"original_max_position_embeddings": 100, "rope_scaling":
                {"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 200}})"),
            "config.rope");
}

TEST(ConfigKeys, reads_mscale_and_a_factor_that_is_null) {
  const auto rope = [](const char* section) {
    json::Value value = json_of(kQwen3);
    value["rope_scaling"] = json_of(section);
    const auto config = parse_text(value.text());
    EXPECT_TRUE(config.ok()) << config.error().message;
    return config.ok() ? config->rope : Rope();
  };
  EXPECT_EQ(rope(R"({"type": "yarn", "factor": null, "original_max_position_embeddings": 10240})"),
            rope(R"({"type": "yarn", "factor": 4, "original_max_position_embeddings": 10240})"));
  const double log4 = 1.3862943611198906;
  EXPECT_DOUBLE_EQ(rope(R"({"type": "yarn", "factor": 4, "mscale": 1, "mscale_all_dim": 0.5})")
                       .attention_factor(),
                   (0.1 * log4 + 1) / (0.05 * log4 + 1));
  EXPECT_DOUBLE_EQ(rope(R"({"type": "yarn", "factor": 4, "mscale": 1})").attention_factor(),
                   0.1 * log4 + 1);
  EXPECT_EQ(rope(R"({"type": "yarn", "factor": 4, "mscale": 1, "mscale_all_dim": 1,
                     "attention_factor": 1.5})")
                .attention_factor(),
            1.5);
}

TEST(ConfigKeys, keys_that_would_change_the_model_are_refused_by_name) {
  for (const char* base :
       {kQwen3, kQwen3Moe, kGptOss, testing::kQwen3_5, testing::kQwen3_5Moe, testing::kQwen3Next}) {
    const std::string type = json_of(base)["model_type"].string();
    const ModelConfig plain = *parse_text(base);
    for (const json::KeyRule& rule : config_rules(type)) {
      const std::string key(rule.key);
      json::Value value = json_of(base);
      if (rule.use == json::KeyUse::kRefused) {
        for (const json::Value& neutral :
             json_of("[null" + std::string(rule.neutral.empty() ? "" : ",") +
                     std::string(rule.neutral) + "]")) {
          value[key] = neutral;
          EXPECT_EQ(*parse_text(value.text()), plain) << key;
        }
        value[key] = {{"odd", 1}};
        const auto refused = parse_text(value.text());
        ASSERT_FALSE(refused.ok()) << key;
        EXPECT_EQ(refused.error().code, "config.not_computed");
        EXPECT_TRUE(refused.error().message.starts_with("config.json: " + key + ": "));
      }
      if (rule.use != json::KeyUse::kIgnored) continue;
      for (const json::Value& any : {json::Value("x"), json::Value(17), json::Value(true)}) {
        value[key] = any;
        const auto config = parse_text(value.text());
        ASSERT_TRUE(config.ok()) << config.error().message;
        EXPECT_EQ(*config, plain) << key;
      }
    }
  }
}

TEST(ConfigKeys, an_adapter_beside_the_weights_is_refused) {
  const TempDir dir;
  dir.write("config.json", kQwen3);
  dir.write("adapter_config.json", "{}");
  EXPECT_EQ(read_model_config(dir.path()).error().code, "model.adapter");
}

}  // namespace
}  // namespace subbyte
