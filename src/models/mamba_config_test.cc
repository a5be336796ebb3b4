// Configs of models with blocks of Mamba 2: what absent keys mean, and what is refused by its key.

#include <gtest/gtest.h>

#include <string>

#include "models/model.h"
#include "models/model_config.h"
#include "support/model_configs.h"

namespace subbyte {
namespace {

using testing::changed;
using testing::code;

constexpr const char* kBamba = R"({"model_type": "bamba", "hidden_size": 512,
    "num_hidden_layers": 4, "attn_layer_indices": [1, 9], "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100, "mamba_n_heads": 16})";

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

TEST(MambaConfigs, say_limits_of_steps) {
  const MambaShape held = mamba_of(changed(kBamba, R"({"time_step_limit": [0.01, 0.5]})"));
  EXPECT_EQ(held.least_step, 0.01f);
  EXPECT_EQ(held.largest_step, 0.5f);
  for (const char* wrong :
       {"[0.5, 0.01]", "[-1, 1]", "[0]", "1", R"([0, "x"])", R"([{"__float__": "Infinity"}, 1])"}) {
    const std::string change = std::string(R"({"time_step_limit": )") + wrong + "}";
    EXPECT_EQ(code(kBamba, change), "config.mamba") << wrong;
  }
}

struct Refused {
  const char* config;
  const char* change;
  const char* code;
  const char* key;
};

TEST(MambaConfigs, refuse_by_the_key_what_does_not_fit) {
  for (const Refused& refused : std::vector<Refused>{
           {kBamba, R"({"attn_layer_indices": "x"})", "config.layer_types", "attn_layer_indices"},
           {kBamba, R"({"mamba_n_heads": 7})", "config.mamba", "mamba_n_heads"},
           {kBamba, R"({"mamba_n_heads": 2})", "config.mamba", "mamba_n_heads"},
           {kBamba, R"({"mamba_n_heads": 0})", "json.range", "mamba_n_heads"},
           {kBamba, R"({"mamba_d_head": 32})", "config.mamba", "mamba_d_head"},
           {kBamba, R"({"mamba_d_head": "x"})", "json.type", "mamba_d_head"},
           {kBamba, R"({"mamba_expand": 0})", "json.range", "mamba_expand"},
           {kBamba, R"({"mamba_n_groups": 5})", "config.mamba", "mamba_n_groups"},
           {kBamba, R"({"mamba_n_groups": 0})", "json.range", "mamba_n_groups"},
           {kBamba, R"({"mamba_d_state": 257})", "json.range", "mamba_d_state"},
           {kBamba, R"({"mamba_d_conv": 17})", "json.range", "mamba_d_conv"},
           {kBamba, R"({"mamba_chunk_size": 0})", "json.range", "mamba_chunk_size"},
           {kBamba, R"({"partial_rotary_factor": 1.0})", "config.not_computed",
            "partial_rotary_factor"},
       }) {
    const auto config = changed(refused.config, refused.change);
    ASSERT_FALSE(config.ok()) << refused.change;
    EXPECT_EQ(config.error().code, refused.code) << refused.change;
    EXPECT_NE(config.error().message.find(refused.key), std::string::npos)
        << config.error().message;
  }
}

}  // namespace
}  // namespace subbyte
