// Configs of models with blocks of Mamba 2: what absent keys mean, and what is refused by its key.

#include <gtest/gtest.h>

#include <string>

#include "models/model.h"
#include "models/model_config.h"
#include "support/model_configs.h"
#include "support/refused_values.h"

namespace subbyte {
namespace {

using testing::changed;
using testing::code;
using testing::expect_refused;
using testing::RefusedValue;

constexpr const char* kBamba = R"({"model_type": "bamba", "hidden_size": 512,
    "num_hidden_layers": 4, "attn_layer_indices": [1, 9], "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100, "mamba_n_heads": 16})";

constexpr const char* kNemotron = R"({"model_type": "nemotron_h", "hidden_size": 512,
    "num_hidden_layers": 4, "hybrid_override_pattern": "M-*E", "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100})";
constexpr const char* kGranite = R"({"model_type": "granitemoehybrid", "hidden_size": 512,
    "num_hidden_layers": 2, "layer_types": ["mamba", "attention"], "num_attention_heads": 4,
    "vocab_size": 100, "mamba_n_heads": 16})";

StepPlan plan_for(const Result<ModelConfig>& config) {
  EXPECT_TRUE(config.ok()) << config.error().message;
  return config.ok() ? *plan_of(*config) : StepPlan();
}

MambaShape mamba_of(const Result<ModelConfig>& config) {
  const StepPlan plan = plan_for(config);
  const auto found = ops_of<MambaOp>(plan);
  return found.empty() ? MambaShape() : found.front()->shape;
}

TEST(MambaConfigs, have_what_the_classes_have_where_nothing_is_said) {
  const MambaShape shape = {
      .heads = 16, .head_size = 64, .groups = 1, .state_size = 256, .taps = 4, .eps = 1e-5f};
  EXPECT_EQ(mamba_of(changed(kBamba, "{}")), shape);
  EXPECT_EQ(mamba_of(changed(kBamba, R"({"mamba_d_head": "auto"})")), shape);
  EXPECT_EQ(mamba_of(changed(kBamba, R"({"time_step_limit": [0.0, {"__float__": "Infinity"}]})")),
            shape);
  EXPECT_EQ(mamba_of(changed(kNemotron, "{}")), (MambaShape{.heads = 128,
                                                            .head_size = 64,
                                                            .groups = 8,
                                                            .state_size = 128,
                                                            .taps = 4,
                                                            .norm_groups = 8}));
  EXPECT_EQ(
      mamba_of(changed(kGranite, "{}")),
      (MambaShape{
          .heads = 16, .head_size = 64, .groups = 1, .state_size = 256, .taps = 4, .eps = 1e-6f}));
}

TEST(MambaConfigs, list_their_layers) {
  const StepPlan plan = plan_for(changed(kBamba, "{}"));
  EXPECT_EQ(ops_of<MambaOp>(plan).size(), 3U);
  EXPECT_EQ(ops_of<AttendOp>(plan).size(), 1U);
  EXPECT_EQ(plan.cache.groups.size(), 2U);
  const StepPlan none = plan_for(changed(kBamba, R"({"attn_layer_indices": null})"));
  EXPECT_EQ(ops_of<MambaOp>(none).size(), 4U);
  EXPECT_EQ(none.cache.groups.size(), 1U);
}

TEST(MambaConfigs, list_their_layers_in_several_ways) {
  const auto kinds = [](const Result<ModelConfig>& config) {
    const StepPlan plan = plan_for(config);
    return std::vector<int64_t>{std::ssize(ops_of<MambaOp>(plan)),
                                std::ssize(ops_of<AttendOp>(plan)),
                                std::ssize(ops_of<ExpertsOp>(plan)), std::ssize(plan.cache.groups)};
  };
  EXPECT_EQ(kinds(changed(kNemotron, "{}")), (std::vector<int64_t>{1, 1, 1, 2}));
  EXPECT_EQ(kinds(changed(kNemotron, R"({"num_hidden_layers": null,
                  "hybrid_override_pattern": "MM*"})")),
            (std::vector<int64_t>{2, 1, 0, 2}));
  EXPECT_EQ(kinds(changed(kNemotron, R"({"layers_block_type": ["mamba", "attention", "mlp",
                  "linear_attention"]})")),
            (std::vector<int64_t>{2, 1, 0, 2}));
  EXPECT_EQ(kinds(changed(kGranite, "{}")), (std::vector<int64_t>{1, 1, 2, 2}));
  EXPECT_EQ(kinds(changed(kGranite, R"({"layer_types": null, "num_local_experts": 0})")),
            (std::vector<int64_t>{2, 0, 0, 1}));
}

TEST(MambaConfigs, say_limits_of_steps) {
  const MambaShape held = mamba_of(changed(kBamba, R"({"time_step_limit": [0.01, 0.5]})"));
  EXPECT_EQ(held.least_step, 0.01f);
  EXPECT_EQ(held.largest_step, 0.5f);
  for (const char* wrong : {"[0.5, 0.01]", "[-1, 1]", "[0]", "1", R"([0, "x"])",
                            R"([{"__float__": "Infinity"}, 1])", "[1e300, 1e300]"}) {
    const std::string change = std::string(R"({"time_step_limit": )") + wrong + "}";
    EXPECT_EQ(code(kBamba, change), "config.mamba") << wrong;
  }
}

TEST(MambaConfigs, have_older_names) {
  const auto same = [](const char* config, const char* older, const char* newer) {
    const auto a = changed(config, older);
    const auto b = changed(config, newer);
    ASSERT_TRUE(a.ok()) << a.error().message;
    ASSERT_TRUE(b.ok()) << b.error().message;
    EXPECT_TRUE(*a == *b) << older;
  };
  same(kGranite, R"({"layer_types": null, "layers_block_type": ["attention", "mamba"]})",
       R"({"layer_types": ["full_attention", "linear_attention"]})");
  same(kNemotron, R"({"layer_types": ["mamba", "mlp", "attention", "moe"]})",
       R"({"layers_block_type": ["mamba", "mlp", "attention", "moe"]})");
  same(kNemotron, R"({"mamba_n_groups": 2, "n_groups": null})", R"({"n_groups": 2})");
  same(kNemotron, R"({"mamba_d_conv": 3})", R"({"conv_kernel": 3})");
  same(kNemotron, R"({"mamba_conv_bias": false})", R"({"use_conv_bias": false})");
  same(kNemotron, R"({"mamba_dt_limit": [0.5, 2]})", R"({"time_step_limit": [0.5, 2]})");
  same(kNemotron, R"({"num_local_experts": 16, "n_routed_experts": null})",
       R"({"n_routed_experts": 16})");
}

TEST(MambaConfigs, refuse_by_the_key_what_does_not_fit) {
  constexpr RefusedValue kAll[] = {
      {kBamba, "attn_layer_indices", R"("x")", "config.layer_types"},
      {kBamba, "mamba_n_heads", "7", "config.mamba"},
      {kBamba, "mamba_n_heads", "2", "config.mamba"},
      {kBamba, "mamba_n_heads", "0", "json.range"},
      {kBamba, "mamba_d_head", "32", "config.mamba"},
      {kBamba, "mamba_d_head", R"("x")", "json.type"},
      {kBamba, "mamba_expand", "0", "json.range"},
      {kBamba, "mamba_n_groups", "5", "config.mamba"},
      {kBamba, "mamba_n_groups", "0", "json.range"},
      {kBamba, "mamba_d_state", "257", "json.range"},
      {kBamba, "mamba_d_conv", "17", "json.range"},
      {kBamba, "mamba_chunk_size", "0", "json.range"},
      {kBamba, "partial_rotary_factor", "1.0", "config.not_computed"},
      {kNemotron, "hybrid_override_pattern", R"("M-*")", "config.layer_types"},
      {kNemotron, "hybrid_override_pattern", R"("M-*X")", "config.layer_types"},
      {kNemotron, "layers_block_type", R"(["mamba", "mlp"])", "config.layer_types"},
      {kNemotron, "layers_block_type", R"(["mamba", "mlp", "x", "moe"])", "config.layer_types"},
      {kNemotron, "n_groups", "3", "config.mamba"},
      {kNemotron, "n_groups", "0", "json.range"},
      {kNemotron, "chunk_size", "0", "json.range"},
      {kNemotron, "conv_kernel", "17", "json.range"},
      {kNemotron, "ssm_state_size", "257", "json.range"},
      {kNemotron, "mamba_head_dim", "0", "json.range"},
      {kNemotron, "moe_latent_size", "64", "config.not_computed"},
      {kNemotron, "n_group", "3", "config.experts"},
      {kNemotron, "mlp_hidden_act", R"("silu")", "config.hidden_act"},
      {kGranite, "layers_block_type", R"(["mamba"], "layer_types": null)", "config.layer_types"},
      {kNemotron, "mamba_n_groups", R"(2, "n_groups": 4)", "config.contradiction", "n_groups"},
      {kNemotron, "mamba_d_conv", R"(17, "conv_kernel": null)", "json.range"},
      {kGranite, "layer_types", R"(["mamba"])", "config.layer_types"},
      {kGranite, "mamba_n_heads", "7", "config.mamba"},
      {kGranite, "mamba_n_heads", "2", "config.mamba"},
      {kGranite, "mamba_d_head", "32", "config.mamba"},
      {kGranite, "mamba_n_groups", "5", "config.mamba"},
      {kGranite, "mamba_chunk_size", "0", "json.range"},
      {kGranite, "num_experts_per_tok", "9", "json.range"},
  };
  expect_refused(kAll, [](const char* config) { return std::string(config); });
}

}  // namespace
}  // namespace subbyte
