// Configs of models of which some layers are gated delta nets, flat and within a wrapper.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "models/config_keys.h"
#include "models/model_family.h"
#include "support/json_of.h"
#include "support/model_configs.h"

namespace subbyte {
namespace {

using testing::changed;
using testing::code;
using testing::expert_use;
using testing::kQwen3_5;
using testing::kQwen3_5Moe;
using testing::kQwen3Next;
using testing::parse_text;

/// The config of a wrapper with that of a text model inside.
std::string wrapped(const char* text, const std::string& wrapper, const std::string& changes) {
  json::Value value = json_of(changes);
  value["model_type"] = wrapper;
  value["text_config"] = json_of(text);
  value["vision_config"] = {{"model_type", wrapper}, {"depth", 1}};
  value["image_token_id"] = 3;
  return value.text();
}

/// Says of each layer whether it is a gated delta net.
std::vector<bool> delta_net_layers(const Result<ModelConfig>& config) {
  std::vector<bool> layers(config->num_layers);
  for (const TensorSpec& spec : tensors_of(*config)) {
    const auto name = std::string_view(spec.name);
    if (!name.ends_with(".linear_attn.out_proj")) continue;
    layers[std::stoul(std::string(name.substr(name.find('.') + 1)))] = true;
  }
  return layers;
}

DeltaNetShape delta_net(const ModelConfig& config) {
  const StepPlan plan = *plan_of(config);
  return ops_of<DeltaNetOp>(plan).front()->shape;
}

TEST(DeltaNetConfigs, say_what_the_layers_are) {
  const auto config = parse_text(kQwen3_5);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(delta_net_layers(config),
            std::vector<bool>({true, true, true, false, true, true, true, false}));
  EXPECT_EQ(config->rope.dim(), 64);
  EXPECT_EQ(delta_net(*config), (DeltaNetShape{16, 16, 128, 128, 4, 1e-6f, false}));
  EXPECT_EQ(testing::expert_layers(*config), std::vector<bool>(8, false));
  EXPECT_EQ(config->windows, std::vector<int64_t>(8, 0));
  EXPECT_EQ(delta_net_layers(changed(kQwen3_5, R"({"full_attention_interval": 2})")),
            std::vector<bool>({true, false, true, false, true, false, true, false}));
  EXPECT_EQ(delta_net_layers(changed(kQwen3_5, R"({"num_hidden_layers": 2,
                "layer_types": ["full_attention", "linear_attention"]})")),
            std::vector<bool>({false, true}));
  EXPECT_EQ(delta_net_layers(changed(kQwen3_5, R"({"num_hidden_layers": 2,
                "layer_types": ["attention", "linear_attention"]})")),
            std::vector<bool>({false, true}));  // the older word
}

TEST(DeltaNetConfigs, have_what_the_classes_have_where_nothing_is_said) {
  const auto bare = [](const std::string& type) {
    auto config = parse_text(R"({"hidden_size": 64, "vocab_size": 10, "num_hidden_layers": 4,
                                 "num_attention_heads": 16, "model_type": ")" +
                             type + "\"}");
    EXPECT_TRUE(config.ok()) << config.error().message;
    return config.ok() ? *config : ModelConfig();
  };
  for (const std::string type : {"qwen3_5_text", "qwen3_5_moe_text", "qwen3_next"}) {
    const ModelConfig config = bare(type);
    EXPECT_EQ(config.head_dim, 256) << type;
    EXPECT_EQ(config.rope, Rope(64, 10'000)) << type;
    EXPECT_EQ(config.max_positions, 32768) << type;
    EXPECT_EQ(delta_net(config), (DeltaNetShape{16, 32, 128, 128, 4, 1e-6f, type == "qwen3_next"}));
    EXPECT_EQ(delta_net_layers(config), std::vector<bool>({true, true, true, false})) << type;
  }
  EXPECT_EQ(bare("qwen3_5_text").intermediate_size, 12288);
  EXPECT_EQ(bare("qwen3_5_text").num_kv_heads, 4);
  const ModelConfig moe = bare("qwen3_5_moe_text");
  EXPECT_EQ(moe.num_kv_heads, 2);
  EXPECT_EQ(testing::num_experts(moe), 256);
  EXPECT_EQ(expert_use(moe).per_token, 8);
  EXPECT_EQ(expert_stack_of(moe)->rows, 2 * 512);
  const auto tensors = tensors_of(moe);
  const auto shared =
      std::ranges::find(tensors, "layers.0.mlp.shared_expert.down_proj", &TensorSpec::name);
  ASSERT_NE(shared, tensors.end());
  EXPECT_EQ(shared->cols, 512);
  EXPECT_TRUE(testing::routing_of(moe).normalises);
  const ModelConfig next = bare("qwen3_next");
  EXPECT_EQ(testing::num_experts(next), 512);
  EXPECT_EQ(expert_use(next).per_token, 10);
  EXPECT_EQ(next.intermediate_size, 5632);
  EXPECT_EQ(testing::expert_layers(next), std::vector<bool>(4, true));
  EXPECT_TRUE(testing::routing_of(next).normalises);
  EXPECT_FALSE(
      testing::routing_of(*changed(kQwen3Next, R"({"norm_topk_prob": false})")).normalises);
  EXPECT_EQ(testing::expert_layers(
                *changed(kQwen3Next, R"({"mlp_only_layers": [1, 9], "decoder_sparse_step": 2})")),
            std::vector<bool>({false, false, false, true}));
}

/// The factor inside the section counts before the one beside it.
TEST(DeltaNetConfigs, say_which_part_of_a_head_turns) {
  EXPECT_EQ(changed(kQwen3Next, R"({"partial_rotary_factor": 0.5})")->rope.dim(), 128);
  EXPECT_EQ(changed(kQwen3Next, R"({"partial_rotary_factor": null})")->rope.dim(), 64);  // absent
  json::Value null = json_of(kQwen3Next);
  null["partial_rotary_factor"] = nullptr;
  null.erase("rope_parameters");
  EXPECT_EQ(parse_text(null.text())->rope.dim(), 256);
  EXPECT_EQ(changed(kQwen3Next, R"({"partial_rotary_factor": 0.5, "rope_parameters":
                                    {"rope_type": "default", "partial_rotary_factor": 0.125}})")
                ->rope.dim(),
            32);
  EXPECT_EQ(code(kQwen3Next, R"({"partial_rotary_factor": 0})"), "config.rope");
  EXPECT_EQ(code(kQwen3Next, R"({"partial_rotary_factor": 0.0118})"), "config.rope");  // 3
  EXPECT_EQ(code(testing::kQwen3, R"({"partial_rotary_factor": 0.5})"), "config.not_computed");
  EXPECT_EQ(changed(kQwen3_5, R"({"rope_parameters": {"mrope_section": [11, 11, 10],
                                  "rope_type": null}})")
                ->rope.dim(),
            64);
}

TEST(DeltaNetConfigs, are_found_in_wrappers) {
  const auto config = parse_text(wrapped(kQwen3_5, "qwen3_5", R"({"tie_word_embeddings": true})"));
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(*config, *parse_text(kQwen3_5));
  EXPECT_EQ(parse_text(wrapped(kQwen3_5Moe, "qwen3_5_moe", "{}"))->model_type, "qwen3_5_moe_text");
  const auto other = parse_text(wrapped(kQwen3_5Moe, "qwen3_5", "{}"));
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, "config.model_type");
  EXPECT_EQ(parse_text(R"({"model_type": "qwen3_5"})").error().code, "json.missing");
  // End tokens outside count before those inside; there are tokens for both.
  EXPECT_EQ(parse_text(wrapped(kQwen3_5, "qwen3_5", R"({"eos_token_id": [5, 6]})"))->eos_tokens,
            std::vector<int32_t>({5, 6}));
  json::Value outer = json_of(wrapped(kQwen3_5, "qwen3_5", "{}"));
  outer["per_layer_config"] = {{"odd", 1}};
  EXPECT_EQ(parse_text(outer.text()).error().code, "config.not_computed");
}

/// Where a wrapper and its text part contradict each other, the head is what the files have.
TEST(DeltaNetConfigs, of_wrappers_may_contradict_themselves_about_the_head) {
  const auto same = parse_text(wrapped(kQwen3_5, "qwen3_5", R"({"tie_word_embeddings": true})"));
  EXPECT_TRUE(same->tie_word_embeddings);
  EXPECT_FALSE(same->contradicts_ties);
  const auto differs = parse_text(wrapped(kQwen3_5, "qwen3_5", R"({})"));
  EXPECT_TRUE(differs->contradicts_ties);
  const TensorSpec head = tensors_of(*differs).back();
  EXPECT_EQ(head.tied_to, kTable);
  EXPECT_TRUE(head.is_untied_if_there);
}

TEST(DeltaNetConfigs, refuse_sizes_that_do_not_fit) {
  EXPECT_EQ(code(kQwen3_5, R"({"linear_num_value_heads": 24})"), "config.heads");
  EXPECT_EQ(code(kQwen3_5, R"({"linear_conv_kernel_dim": 17})"), "json.range");
  EXPECT_EQ(code(kQwen3_5, R"({"layer_types": ["linear_attention"]})"), "config.layer_types");
  EXPECT_EQ(code(kQwen3_5, R"({"num_hidden_layers": 1, "layer_types": ["sliding_attention"]})"),
            "config.layer_types");
  EXPECT_EQ(code(kQwen3_5Moe, R"({"num_experts_per_tok": 300})"), "json.range");
  EXPECT_EQ(code(kQwen3_5Moe, R"({"num_experts": 4, "num_experts_per_tok": null})"),
            "config.experts");
}

TEST(DeltaNetConfigs, know_the_keys_of_both_parts) {
  json::Value value = json_of(wrapped(kQwen3_5, "qwen3_5", R"({"brand_new": 1})"));
  value["text_config"]["other_new"] = 1;
  value["text_config"]["rope_parameters"]["third_new"] = 1;
  const auto object = json::Object::of(value, "config.json");
  EXPECT_EQ(unknown_config_keys(*object, "qwen3_5_text"),
            std::vector<std::string>(
                {"brand_new", "text_config.other_new", "text_config.rope_parameters.third_new"}));
}

TEST(DeltaNetConfigs, know_the_keys_of_each_section_of_a_rope) {
  const json::Value value = json_of(R"({"model_type": "gemma3_text", "rope_parameters": {
      "full_attention": {"rope_type": "linear", "factor": 2, "new": 1}, "other": 1}})");
  const auto object = json::Object::of(value, "config.json");
  EXPECT_EQ(
      unknown_config_keys(*object, "gemma3_text"),
      std::vector<std::string>({"rope_parameters.other", "rope_parameters.full_attention.new"}));
  EXPECT_EQ(unknown_config_keys(*object, "gemma2").front(), "rope_parameters.full_attention");
}

TEST(DeltaNetConfigs, know_what_is_read_inside_of_the_text_part_alone) {
  const auto keys = [](const char* beside) {
    const json::Value value = json_of(wrapped(kQwen3_5, "qwen3_5", beside));
    return keys_beside_text_part(*json::Object::of(value, "config.json"));
  };
  EXPECT_EQ(keys(R"({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}, "rms_norm_eps": 0.5})"),
            std::vector<std::string>({"rope_scaling", "rms_norm_eps"}));
  EXPECT_EQ(keys(R"({"rope_scaling": null, "tie_word_embeddings": true, "eos_token_id": 3,
                     "use_cache": false, "brand_new": 1})"),
            std::vector<std::string>());
  json::Value same = json_of(wrapped(kQwen3_5, "qwen3_5", "{}"));
  same["hidden_size"] = same["text_config"]["hidden_size"];
  EXPECT_EQ(keys_beside_text_part(*json::Object::of(same, "config.json")),
            std::vector<std::string>());
  const json::Value flat = json_of(kQwen3_5);
  EXPECT_EQ(keys_beside_text_part(*json::Object::of(flat, "config.json")),
            std::vector<std::string>());
}

TEST(DeltaNetConfigs, list_the_tensors_of_both_ways_to_join_projections) {
  const auto names = [](const char* text) {
    const ModelConfig config = *parse_text(text);
    std::vector<std::string> found;
    for (const TensorSpec& spec : tensors_of(config)) {
      if (!spec.name.starts_with("layers.0.linear_attn.")) continue;
      for (const PartSpec& part : spec.parts) found.push_back(part.name.substr(21));
      if (spec.parts.empty()) found.push_back(spec.name.substr(21));
    }
    return found;
  };
  EXPECT_EQ(names(kQwen3_5),
            std::vector<std::string>({"in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a",
                                      "conv1d", "A_log", "dt_bias", "norm", "out_proj"}));
  EXPECT_EQ(names(kQwen3Next), std::vector<std::string>({"in_proj_qkvz", "in_proj_ba", "conv1d",
                                                         "A_log", "dt_bias", "norm", "out_proj"}));
}

}  // namespace
}  // namespace subbyte
