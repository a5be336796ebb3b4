// What the config of Gemma 4 says of layers that differ: heads, ropes, inputs, whose keys.

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "models/config_keys.h"
#include "models/model.h"
#include "models/model_config.h"
#include "models/tensor_spec.h"
#include "support/model_configs.h"
#include "support/refused_values.h"

namespace subbyte {
namespace {

using testing::changed;
using testing::code;
using testing::expect_refused;
using testing::RefusedValue;

constexpr const char* kGemma4 = R"({
  "model_type": "gemma4_text", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 6,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "global_head_dim": 32,
  "vocab_size": 128, "vocab_size_per_layer_input": 128, "sliding_window": 8,
  "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention",
                  "sliding_attention", "full_attention"]})";

ModelConfig config_of(const char* changes) {
  const auto config = changed(kGemma4, changes);
  EXPECT_TRUE(config.ok()) << config.error().message;
  return config.ok() ? *config : ModelConfig();
}

StepPlan step_of(const ModelConfig& config) {
  const auto plan = plan_of(config);
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  return plan.ok() ? *plan : StepPlan();
}

TEST(Gemma4Config, absent_keys_are_what_the_class_says) {
  const ModelConfig config = *changed(R"({"model_type": "gemma4_text", "hidden_size": 2304,
                                          "num_hidden_layers": 30})",
                                      "{}");
  EXPECT_EQ(config.num_heads, 8);
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.head_dim, 256);
  EXPECT_EQ(config.intermediate_size, 9216);
  EXPECT_EQ(config.vocab_size, 262'144);
  EXPECT_EQ(config.max_positions, 131'072);
  EXPECT_EQ(config.eos_tokens, std::vector<int32_t>{1});
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(std::ranges::count(config.windows, 512), 25);
  EXPECT_EQ(config.windows[5], 0);
  const StepPlan plan = step_of(config);
  ASSERT_EQ(plan.cache.groups.size(), 2u);
  EXPECT_EQ(plan.cache.groups[0].layers, 25);
  EXPECT_EQ(plan.cache.groups[0].head_dim, 256);
  EXPECT_EQ(plan.cache.groups[1].head_dim, 512);
  EXPECT_EQ(plan.cache.groups[1].kv_heads, 4);
  const std::vector<const AnglesOp*> angles = ops_of<AnglesOp>(plan);
  EXPECT_EQ(*angles[0]->rope, Rope(256, 10'000));
  std::vector<double> full = rope_frequencies(512, 1'000'000);
  std::fill(full.begin() + 64, full.end(), 0);
  EXPECT_EQ(*angles[1]->rope, Rope(full));
  EXPECT_EQ(ops_of<EmbedOp>(plan).back()->table.cols, 30 * 256);
  EXPECT_EQ(ops_of<LogitsOp>(plan).front()->cap, 0);
  for (const AttendOp* const attend : ops_of<AttendOp>(plan)) EXPECT_EQ(attend->shape.scale, 1);
}

TEST(Gemma4Config, the_last_layer_is_full_whatever_its_type) {
  const ModelConfig config = config_of(
      R"({"num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"]})");
  EXPECT_EQ(config.windows, (std::vector<int64_t>{0, 0}));
}

TEST(Gemma4Config, heads_of_full_layers_are_said_in_two_ways) {
  const ModelConfig older = config_of(
      R"({"attention_k_eq_v": true, "num_global_key_value_heads": 1, "global_head_dim": 64})");
  const ModelConfig newer = config_of(R"({"attention_k_eq_v": true, "per_layer_config": {
      "1": {"head_dim": 64, "num_key_value_heads": 1},
      "3": {"head_dim": 64, "num_key_value_heads": 1},
      "5": {"head_dim": 64, "num_key_value_heads": 1}}})");
  EXPECT_TRUE(older == newer);
  const StepPlan plan = step_of(older);
  EXPECT_EQ(plan.cache.groups[0].kv_heads, 2);
  EXPECT_EQ(plan.cache.groups[1].kv_heads, 1);
  EXPECT_EQ(plan.cache.groups[1].head_dim, 64);
  // Without it, transformers leaves the number of heads alone.
  const ModelConfig apart = config_of(R"({"num_global_key_value_heads": 1})");
  EXPECT_EQ(step_of(apart).cache.groups[1].kv_heads, 2);
  const auto has = [](const ModelConfig& config, std::string_view part) {
    return std::ranges::any_of(tensors_of(config), [&](const TensorSpec& tensor) {
      return std::ranges::find(tensor.parts, part, &PartSpec::name) != tensor.parts.end();
    });
  };
  EXPECT_TRUE(has(older, "layers.0.self_attn.v_proj"));
  EXPECT_FALSE(has(older, "layers.1.self_attn.v_proj"));
  EXPECT_TRUE(has(apart, "layers.1.self_attn.v_proj"));
}

TEST(Gemma4Config, layers_that_share_read_the_last_of_their_kind) {
  const ModelConfig config =
      config_of(R"({"num_kv_shared_layers": 2, "use_double_wide_mlp": true})");
  const StepPlan plan = step_of(config);
  EXPECT_EQ(plan.cache.groups[0].layers, 2);
  EXPECT_EQ(plan.cache.groups[1].layers, 2);
  const auto attends = ops_of<AttendOp>(plan);
  EXPECT_EQ(attends[4]->cache.group, 0);
  EXPECT_EQ(attends[4]->cache.layer, 1);
  EXPECT_EQ(attends[5]->cache.group, 1);
  EXPECT_EQ(attends[5]->cache.layer, 1);
  EXPECT_FALSE(attends[5]->shape.has_keys);
  const auto gated = ops_of<GatedLinearOp>(plan);
  EXPECT_EQ(gated[3]->gate_up.rows, 2 * 96);
  EXPECT_EQ(gated[4]->gate_up.rows, 4 * 96);
  EXPECT_EQ(step_of(config_of(R"({"use_double_wide_mlp": true})")).cache.groups[0].layers, 3);
}

TEST(Gemma4Config, layers_without_inputs_have_no_second_table) {
  const ModelConfig config =
      config_of(R"({"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 5})");
  EXPECT_EQ(ops_of<EmbedOp>(step_of(config)).size(), 1u);
  for (const TensorSpec& tensor : tensors_of(config)) {
    EXPECT_EQ(tensor.name.find("per_layer"), std::string::npos) << tensor.name;
  }
}

TEST(Gemma4Config, values_are_refused_by_the_name_of_the_key) {
  constexpr RefusedValue kAll[] = {
      {kGemma4, "num_kv_shared_layers", "6", "config.kv_shared_layers"},
      {kGemma4, "num_kv_shared_layers", "5", "config.kv_shared_layers"},
      {kGemma4, "num_kv_shared_layers", "7", "json.range"},
      {kGemma4, "num_kv_shared_layers", "-1", "json.range"},
      {kGemma4, "use_double_wide_mlp", "1", "json.type"},
      {kGemma4, "hidden_size_per_layer_input", "-1", "json.range"},
      {kGemma4, "hidden_size_per_layer_input", "1073741824", "json.range"},
      {kGemma4, "vocab_size_per_layer_input", "127", "config.vocab_size_per_layer_input"},
      {kGemma4, "vocab_size_per_layer_input", "129", "config.vocab_size_per_layer_input"},
      {kGemma4, "vocab_size_per_layer_input", "0", "json.range"},
      {kGemma4, "global_head_dim", "0", "json.range"},
      {kGemma4, "global_head_dim", "33", "config.heads"},
      {kGemma4, "layer_types", R"(["sliding_attention"])", "config.layer_types"},
      {kGemma4, "layer_types", "[1, 2, 3, 4, 5, 6]", "config.layer_types"},
      {kGemma4, "sliding_window", "0", "json.range"},
      {kGemma4, "attention_k_eq_v", "\"yes\"", "json.type"},
      {kGemma4, "final_logit_softcapping", "0", "json.range"},
      {kGemma4, "use_bidirectional_attention", "\"all\"", "config.not_computed"},
      {kGemma4, "per_layer_config", R"({"1": {"head_dim": 32}})", "config.per_layer_config"},
      {kGemma4, "per_layer_config", R"({"0": {"head_dim": 32}})", "config.per_layer_config"},
      {kGemma4, "per_layer_config", R"({"9": {"head_dim": 32}})", "config.per_layer_config"},
      {kGemma4, "hidden_activation", "\"silu\"", "config.hidden_act"},
  };
  expect_refused(kAll, [](const char* config) { return std::string(config); });
  const char* const experts[][2] = {
      {R"("num_experts": 4, "top_k_experts": 5, "moe_intermediate_size": 8)", "json.range"},
      {R"("num_experts": 0, "top_k_experts": 1, "moe_intermediate_size": 8)", "json.range"},
      {R"("num_experts": 4, "top_k_experts": 2)", "json.missing"},
      {R"("num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 0)", "json.range"},
      {R"("top_k_experts": 2, "moe_intermediate_size": 8)", "json.missing"}};
  for (const auto& [keys, expected] : experts) {
    const std::string changes = std::string(R"({"enable_moe_block": true, )") + keys + "}";
    EXPECT_EQ(code(kGemma4, changes.c_str()), expected) << keys;
  }
  EXPECT_EQ(code(kGemma4, R"({"vocab_size_per_layer_input": null})"),
            "config.vocab_size_per_layer_input");
  EXPECT_EQ(code(kGemma4, R"({"attention_k_eq_v": true, "num_global_key_value_heads": 3})"),
            "config.heads");
  EXPECT_EQ(code(kGemma4, R"({"per_layer_config": {"1": {"rope_theta": 5}, "3": {"rope_theta": 5},
                                                       "5": {"rope_theta": 5}}})"),
            "config.not_computed");
  EXPECT_TRUE(changed(kGemma4, R"({"use_bidirectional_attention": "vision"})").ok());
}

}  // namespace
}  // namespace subbyte
