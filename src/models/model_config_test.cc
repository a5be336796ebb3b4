#include "models/model_config.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/goldens.h"
#include "support/model_configs.h"
#include "support/temp_dir.h"

namespace subbyte {
namespace {

using testing::changed;
using testing::code;
using testing::expert_use;
using testing::kGptOss;
using testing::kQwen3;
using testing::kQwen3_5;
using testing::kQwen3Moe;
using testing::parse_text;

void expect_same(const ModelConfig& a, const ModelConfig& b) {
  EXPECT_EQ(a.rope, b.rope);
  EXPECT_EQ(a.max_positions, b.max_positions);
  EXPECT_EQ(a.windows, b.windows);
}

/// A rope of qwen3 with a section.
Rope scaled(const std::string& section) {
  const auto config = changed(kQwen3, R"({"rope_scaling": )" + section + "}");
  EXPECT_TRUE(config.ok()) << config.error().message;
  return config.ok() ? config->rope : Rope();
}

TEST(ModelConfig, reads_qwen3) {
  const auto config = parse_text(kQwen3);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->model_type, "qwen3");
  EXPECT_EQ(config->hidden_size, 1024);
  EXPECT_EQ(config->intermediate_size, 3072);
  EXPECT_EQ(config->num_layers, 3);
  EXPECT_EQ(config->num_heads, 16);
  EXPECT_EQ(config->num_kv_heads, 8);
  EXPECT_EQ(config->head_dim, 128);  // not 1024 / 16
  EXPECT_EQ(config->vocab_size, 151'936);
  EXPECT_EQ(config->max_positions, 40'960);
  EXPECT_EQ(config->rms_norm_eps, 1e-6f);
  EXPECT_EQ(config->rope, Rope(128, 1e6));
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_EQ(config->windows, std::vector<int64_t>(3, 0));
  EXPECT_EQ(config->eos_tokens, std::vector<int32_t>{151'645});
}

TEST(ModelConfig, reads_gpt_oss) {
  const auto config = parse_text(kGptOss);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(testing::num_experts(*config), 32);
  EXPECT_EQ(expert_use(*config).per_token, 4);
  EXPECT_EQ(expert_use(*config).swiglu.limit, 7.0f);
  EXPECT_EQ(config->rms_norm_eps, 1e-5f);  // the family's, as the file says nothing
  EXPECT_EQ(config->rope.inv_freq()[31], Rope(64, 150'000).inv_freq()[31] / 32);
  EXPECT_EQ(config->windows, (std::vector<int64_t>{128, 0, 128, 0}));
  EXPECT_EQ(config->eos_tokens, (std::vector<int32_t>{200'002, 199'999}));
  EXPECT_FALSE(config->tie_word_embeddings);
}

TEST(ModelConfig, reads_qwen3_moe) {
  const auto config = parse_text(kQwen3Moe);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(testing::num_experts(*config), 128);
  EXPECT_EQ(expert_use(*config).per_token, 8);
  EXPECT_EQ(expert_stack_of(*config)->rows, 2 * 768);
  EXPECT_EQ(config->intermediate_size, 6144);
  EXPECT_TRUE(testing::routing_of(*config).normalises);
  EXPECT_EQ(testing::expert_layers(*config), std::vector<bool>(4, true));
  EXPECT_EQ(config->windows, std::vector<int64_t>(4, 0));
  // As transformers 5 writes it.
  const auto newer = changed(kQwen3Moe, R"({"num_experts": null, "num_local_experts": 128})");
  ASSERT_TRUE(newer.ok()) << newer.error().message;
  EXPECT_EQ(testing::num_experts(*newer), 128);
}

TEST(ModelConfig, layers_of_qwen3_moe_have_experts_or_are_dense) {
  const auto layers = [](const std::string& changes) {
    const auto config = changed(kQwen3Moe, changes);
    EXPECT_TRUE(config.ok()) << changes;
    return config.ok() ? testing::expert_layers(*config) : std::vector<bool>();
  };
  EXPECT_EQ(layers(R"({"decoder_sparse_step": 2})"), std::vector<bool>({false, true, false, true}));
  EXPECT_EQ(layers(R"({"mlp_only_layers": [3, 0, 0]})"),
            std::vector<bool>({false, true, true, false}));
  EXPECT_EQ(layers(R"({"mlp_only_layers": [4, -1, 1, 18446744073709551615]})"),
            std::vector<bool>({true, false, true, true}));
  EXPECT_EQ(layers(R"({"mlp_only_layers": null})"), std::vector<bool>(4, true));
  for (const char* wrong : {"3", "[true]", "[\"0\"]", "[0.5]"}) {
    EXPECT_EQ(code(kQwen3Moe, std::string(R"({"mlp_only_layers": )") + wrong + "}"),
              "config.layer_types");
  }
  EXPECT_EQ(code(kQwen3Moe, R"({"decoder_sparse_step": 0})"), "json.range");
  EXPECT_EQ(code(kQwen3Moe, R"({"moe_intermediate_size": null})"), "json.missing");
  EXPECT_EQ(code(kQwen3Moe, R"({"num_experts_per_tok": 129})"), "json.range");
}

TEST(ModelConfig, qwen3_moe_has_the_defaults_of_transformers) {
  const auto weights = changed(kQwen3Moe, R"({"norm_topk_prob": null})");
  ASSERT_TRUE(weights.ok());
  EXPECT_FALSE(testing::routing_of(*weights).normalises);
  const auto slides = changed(kQwen3Moe, R"({"sliding_window": 64, "use_sliding_window": true})");
  ASSERT_TRUE(slides.ok());
  EXPECT_EQ(slides->windows, std::vector<int64_t>(4, 64));
  const auto off = changed(kQwen3Moe, R"({"sliding_window": 64})");
  ASSERT_TRUE(off.ok());
  EXPECT_EQ(off->windows, std::vector<int64_t>(4, 0));
}

TEST(ModelConfig, both_schemas_of_rope_say_the_same) {
  const auto older = parse_text(kGptOss);
  const auto newer = changed(kGptOss, R"({"rope_theta": null, "rope_scaling": null,
      "rope_parameters": {"rope_theta": 150000.0, "rope_type": "yarn", "factor": 32.0,
      "beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 4096,
      "truncate": false}})");
  ASSERT_TRUE(older.ok() && newer.ok()) << newer.error().message;
  expect_same(*older, *newer);
  const auto oldest = changed(kGptOss, R"({"rope_scaling": {"rope_type": null, "type": "yarn"}})");
  ASSERT_TRUE(oldest.ok());
  expect_same(*older, *oldest);
  const auto plain = changed(kQwen3, R"({"rope_theta": null,
      "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"}})");
  ASSERT_TRUE(plain.ok());
  expect_same(*parse_text(kQwen3), *plain);
}

TEST(ModelConfig, the_base_of_rope_may_stand_in_either_section) {
  for (const char* content :
       {R"({"rope_theta": 500.0})", R"({"rope_type": "default", "rope_theta": 500.0})",
        R"({"type": "linear", "factor": 2.0, "rope_theta": 500})"}) {
    const std::string section = content;
    const auto older = changed(kQwen3, R"({"rope_theta": null, "rope_scaling": )" + section + "}");
    ASSERT_TRUE(older.ok()) << older.error().message;
    EXPECT_EQ(older->rope.inv_freq()[63] * (content[2] == 't' ? 2 : 1),
              Rope(128, 500).inv_freq()[63])
        << content;
    EXPECT_EQ(code(kQwen3, R"({"rope_theta": 1e6, "rope_scaling": )" + section + "}"),
              "config.rope");
    EXPECT_EQ(code(kQwen3, R"({"rope_theta": null, "rope_parameters": {"rope_theta": 400},
                               "rope_scaling": )" +
                               section + "}"),
              "config.rope");
  }
}

/// Of two sections transformers 5.24 reads rope_scaling alone.
TEST(ModelConfig, what_only_the_newer_of_two_sections_of_rope_says_is_refused) {
  const auto with = [](const std::string& newer, const std::string& beside = "") {
    return "{" + beside + R"("rope_theta": null, "rope_scaling": {"rope_type": "default"},
                             "rope_parameters": {"rope_type": "default", )" +
           newer + "}}";
  };
  EXPECT_EQ(code(kQwen3, with(R"("rope_theta": 500)")), "config.rope");
  EXPECT_EQ(changed(kQwen3, with(R"("rope_theta": 10000)"))->rope, Rope(128, 10'000));
  const std::string half = R"("rope_theta": null, "partial_rotary_factor": 0.5)";
  EXPECT_EQ(code(kQwen3_5, with(half)), "config.rope");
  EXPECT_EQ(changed(kQwen3_5, with(half, R"("partial_rotary_factor": 0.5, )"))->rope.dim(), 128);
  EXPECT_EQ(changed(kQwen3_5, with(R"("rope_theta": null)"))->rope.dim(), 64);
}

TEST(ModelConfig, reads_linear_scaling_and_yarn_defaults) {
  EXPECT_EQ(scaled(R"({"type": "linear", "factor": 2.5})").inv_freq()[5],
            Rope(128, 1e6).inv_freq()[5] / 2.5);
  EXPECT_EQ(scaled(R"({"rope_type": "yarn", "factor": 4})"),
            scaled(R"({"rope_type": "yarn", "factor": 4, "truncate": true, "beta_fast": 32,
                       "beta_slow": 1, "original_max_position_embeddings": 40960})"));
}

TEST(ModelConfig, layer_types_decide_about_windows) {
  const auto windows = [](const char* base, const std::string& changes) {
    const auto config = changed(base, changes);
    EXPECT_TRUE(config.ok()) << config.error().message;
    return config->windows;
  };
  using Windows = std::vector<int64_t>;
  EXPECT_EQ(windows(kGptOss, R"({"layer_types": ["full_attention", "sliding_attention",
                                 "full_attention", "sliding_attention"]})"),
            (Windows{0, 128, 0, 128}));
  EXPECT_EQ(windows(kGptOss, R"({"sliding_window": null})"), (Windows{128, 0, 128, 0}));
  EXPECT_EQ(windows(kGptOss, R"({"sliding_window": 16})"), (Windows{16, 0, 16, 0}));
  EXPECT_EQ(windows(kQwen3, R"({"sliding_window": 64})"), (Windows{0, 0, 0}));
  EXPECT_EQ(windows(kQwen3, R"({"sliding_window": 64, "use_sliding_window": true,
                                "max_window_layers": 1})"),
            (Windows{0, 64, 64}));
  EXPECT_EQ(windows(kQwen3, R"({"sliding_window": 64, "use_sliding_window": true})"),
            (Windows{0, 0, 0}));  // transformers leaves the first 28 layers alone
  const std::string slides = R"({"sliding_window": 64, "use_sliding_window": true,
                                 "max_window_layers": 1, "transformers_version": ")";
  for (const char* version : {"4.51.3", "4.52.4", "4.51.0.dev0"}) {
    EXPECT_EQ(windows(kQwen3, slides + version + "\"}"), (Windows{64, 64, 64})) << version;
  }
  for (const char* version : {"4.53.0", "5.23.0", "main"}) {
    EXPECT_EQ(windows(kQwen3, slides + version + "\"}"), (Windows{0, 64, 64})) << version;
  }
  EXPECT_EQ(windows(kQwen3, R"({"sliding_window": 64, "use_sliding_window": false,
                                "transformers_version": "4.51.3"})"),
            (Windows{0, 0, 0}));
}

TEST(ModelConfig, reads_what_the_goldens_say) {
  const auto root = std::filesystem::path(SUBBYTE_TEST_DATA) / "goldens";
  for (const char* name : testing::goldens(testing::kEveryWay, "qwen3")) {
    const auto config = read_model_config(root / name);
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->hidden_size, 256);
    EXPECT_EQ(config->intermediate_size, 512);
    EXPECT_EQ(config->num_layers, 2);
    EXPECT_EQ(config->num_heads, 4);
    EXPECT_EQ(config->num_kv_heads, 2);
    EXPECT_EQ(config->head_dim, 64);
    EXPECT_EQ(config->rope, Rope(64, 1e6));
  }
  const auto config = read_model_config(root / "gpt-oss-mxfp4");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->windows, (std::vector<int64_t>{8, 0, 8, 0}));
  EXPECT_EQ(testing::num_experts(*config), 8);
  EXPECT_EQ(config->rope.inv_freq().back(), Rope(32, 150'000).inv_freq().back() / 32);
}

TEST(ModelConfig, generation_config_names_the_stop_tokens) {
  const TempDir dir;
  dir.write("config.json", kQwen3);
  EXPECT_EQ(read_model_config(dir.path())->eos_tokens, std::vector<int32_t>{151'645});
  dir.write("generation_config.json", R"({"temperature": 0.6})");
  EXPECT_EQ(read_model_config(dir.path())->eos_tokens, std::vector<int32_t>{151'645});
  dir.write("generation_config.json", R"({"eos_token_id": [151645, 151643]})");
  EXPECT_EQ(read_model_config(dir.path())->eos_tokens, (std::vector<int32_t>{151'645, 151'643}));
  dir.write("generation_config.json", R"({"eos_token_id": 151936})");
  EXPECT_EQ(read_model_config(dir.path()).error().code, "config.eos_token_id");
  dir.write("generation_config.json", "{");
  EXPECT_EQ(read_model_config(dir.path()).error().code, "json.syntax");
}

TEST(ModelConfig, refuses_numbers_outside_their_range) {
  for (const char* key :
       {"hidden_size", "intermediate_size", "num_hidden_layers", "head_dim", "num_attention_heads",
        "num_key_value_heads", "vocab_size", "max_position_embeddings"}) {
    for (const char* value : {"0", "-1", "2147483648", "9223372036854775807", "1e300"}) {
      const std::string found = code(kQwen3, std::string("{\"") + key + "\": " + value + "}");
      EXPECT_TRUE(found == "json.range" || found == "json.type") << key << " " << value << found;
    }
    for (const char* value : {"\"4\"", "4.5", "true", "[4]", "{}"}) {
      EXPECT_EQ(code(kQwen3, std::string("{\"") + key + "\": " + value + "}"), "json.type") << key;
    }
  }
  for (const char* key : {"hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size",
                          "num_attention_heads", "model_type"}) {
    EXPECT_EQ(code(kQwen3, std::string("{\"") + key + "\": null}"), "json.missing") << key;
  }
}

TEST(ModelConfig, refuses_heads_that_do_not_fit) {
  EXPECT_EQ(code(kQwen3, R"({"num_key_value_heads": 3})"), "config.heads");
  EXPECT_EQ(code(kQwen3, R"({"num_key_value_heads": 32})"), "config.heads");
  EXPECT_EQ(code(kQwen3, R"({"head_dim": 127})"), "config.heads");
  EXPECT_EQ(code(kQwen3, R"({"num_key_value_heads": null})"), "config.heads");  // 32 of 16
  EXPECT_EQ(code(kQwen3Moe, R"({"head_dim": null, "num_attention_heads": 24})"), "config.heads");
  EXPECT_EQ(code(kQwen3Moe, R"({"head_dim": null, "hidden_size": 96})"), "config.heads");  // 3: odd
}

TEST(ModelConfig, refuses_what_would_turn_into_nan) {
  for (const char* value : {"0", "-1", "1", "1e-9", "1e16"}) {
    EXPECT_EQ(code(kQwen3, std::string(R"({"rope_theta": )") + value + "}"), "json.range");
  }
  EXPECT_EQ(code(kQwen3, R"({"rope_theta": "NaN"})"), "json.type");
  EXPECT_EQ(code(kQwen3, R"({"rope_parameters": {"rope_theta": 0}})"), "json.range");
  for (const char* value : {"0", "-1e-6", "1e-13", "2"}) {
    EXPECT_EQ(code(kQwen3, std::string(R"({"rms_norm_eps": )") + value + "}"), "json.range");
  }
  EXPECT_EQ(code(kQwen3, R"({"rms_norm_eps": "1e-6"})"), "json.type");
  EXPECT_EQ(parse_text(R"({"model_type": "qwen3", "rms_norm_eps": NaN})").error().code,
            "json.syntax");
}

TEST(ModelConfig, reads_biases_of_attention) {
  const auto has_biases = [](const char* base, const char* changes) {
    const auto config = changed(base, changes);
    EXPECT_TRUE(config.ok()) << config.error().message;
    return config.ok() && config->attention_bias;
  };
  EXPECT_TRUE(has_biases(kQwen3, R"({"attention_bias": true})"));
  EXPECT_FALSE(has_biases(kQwen3, R"({"attention_bias": null})"));
  EXPECT_TRUE(has_biases(kGptOss, R"({"attention_bias": null})"));
  EXPECT_FALSE(has_biases(kGptOss, R"({"attention_bias": false})"));
}

TEST(ModelConfig, refuses_rope_that_it_does_not_know) {
  for (const char* type : {"dynamic", "llama3", "longrope", "YARN", ""}) {
    EXPECT_EQ(code(kQwen3, std::string(R"({"rope_scaling": {"rope_type": ")") + type +
                               R"(", "factor": 2}})"),
              "config.rope");
  }
  EXPECT_EQ(code(kQwen3, R"({"rope_scaling": {"rope_type": "yarn"}})"), "json.missing");
  EXPECT_EQ(code(kQwen3, R"({"rope_scaling": {"rope_type": "linear", "factor": 0}})"),
            "json.range");
  EXPECT_EQ(code(kQwen3, R"({"partial_rotary_factor": 0.5})"), "config.not_computed");
  EXPECT_EQ(code(kGptOss, R"({"rope_scaling": {"truncate": 0}})"), "json.type");
  EXPECT_EQ(code(kGptOss, R"({"rope_scaling": {"beta_fast": 0}})"), "json.range");
  EXPECT_EQ(code(kQwen3, R"({"rope_scaling": []})"), "json.type");
}

/// transformers takes it for "default" and says nothing.
TEST(ModelConfig, refuses_scaling_that_does_not_say_how) {
  for (const char* section : {"rope_scaling", "rope_parameters"}) {
    for (const char* content :
         {R"({"factor": 4.0})", R"({"beta_fast": 32})", R"({"factor": 4.0, "rope_theta": 1e6})",
          R"({"original_max_position_embeddings": 4096})"}) {
      const auto config = changed(kQwen3, std::string("{\"") + section + "\": " + content + "}");
      ASSERT_FALSE(config.ok()) << section << content;
      EXPECT_EQ(config.error().code, "json.missing");
      EXPECT_TRUE(config.error().message.starts_with(std::string("config.json: ") + section +
                                                     ".rope_type: expected a string, as \""))
          << config.error().message;
      EXPECT_TRUE(config.error().message.ends_with("is there, found nothing"));
    }
    for (const char* content : {"{}", R"({"rope_theta": 1000000})", R"({"rope_type": "default"})",
                                R"({"partial_rotary_factor": 1.0})"}) {
      EXPECT_EQ(code(kQwen3, std::string("{\"") + section + "\": " + content + "}"), "") << content;
    }
    EXPECT_EQ(code(kQwen3, std::string("{\"") + section +
                               R"(": {"rope_type": "default", "partial_rotary_factor": 0.5}})"),
              "config.rope");
  }
}

TEST(ModelConfig, refuses_other_models_activations_and_layers) {
  for (const char* type : {"falcon", "qwen", "qwen3_omni", "Qwen3", ""}) {
    EXPECT_EQ(code(kQwen3, std::string(R"({"model_type": ")") + type + "\"}"), "config.model_type");
  }
  EXPECT_EQ(code(kQwen3, R"({"hidden_act": "gelu"})"), "config.hidden_act");
  EXPECT_EQ(code(kQwen3, R"({"hidden_act": "swish"})"), "");
  EXPECT_EQ(code(kQwen3Moe, R"({"layer_types": ["full_attention", "full_attention",
                                "sliding_attention", "full_attention"],
                                "use_sliding_window": true})"),
            "config.layer_types");
  EXPECT_EQ(code(kQwen3, R"({"layer_types": ["full_attention"]})"), "config.layer_types");
  EXPECT_EQ(code(kQwen3, R"({"layer_types": "full_attention"})"), "config.layer_types");
  EXPECT_EQ(code(kQwen3, R"({"layer_types": [1, 2, 3]})"), "config.layer_types");
  EXPECT_EQ(code(kQwen3, R"({"layer_types": ["full_attention", "sliding_attention",
                             "full_attention"]})"),
            "config.layer_types");  // no sliding_window
  EXPECT_EQ(code(kQwen3, R"({"layer_types": ["full_attention", "linear_attention",
                             "full_attention"]})"),
            "config.layer_types");
}

TEST(ModelConfig, refuses_experts_and_tokens_that_do_not_exist) {
  EXPECT_EQ(code(kGptOss, R"({"num_experts_per_tok": 33})"), "json.range");
  EXPECT_EQ(code(kGptOss, R"({"num_experts_per_tok": 0})"), "json.range");
  EXPECT_EQ(code(kGptOss, R"({"num_local_experts": null})"), "json.missing");
  EXPECT_EQ(code(kGptOss, R"({"num_local_experts": 5000})"), "json.range");
  for (const char* id : {"-1", "151936", "\"2\"", "1.5", "[0, -1]", "[[1]]", "4294967296"}) {
    EXPECT_EQ(code(kQwen3, std::string(R"({"eos_token_id": )") + id + "}"), "config.eos_token_id");
  }
}

TEST(ModelConfig, ignores_auto_map) {
  EXPECT_EQ(code(kQwen3, R"({"auto_map": {"AutoModel": "evil.Model"}})"), "");
}

}  // namespace
}  // namespace subbyte
