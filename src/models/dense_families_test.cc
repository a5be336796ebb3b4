// What dense families that are like Llama have otherwise: in the plan that follows from a
// config.json, and what of a config.json they refuse. The values are those of the classes of
// transformers 5.24.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "models/model.h"
#include "models/model_config.h"
#include "models/tensor_spec.h"
#include "support/model_configs.h"
#include "support/refused_values.h"

namespace subbyte {
namespace {

using testing::changed;
using testing::expect_refused;
using testing::RefusedValue;

/// What no family has a default for.
std::string config_of(const char* family) {
  return std::string(R"({"model_type": ")") + family +
         R"(", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4,
             "num_attention_heads": 32, "head_dim": 64, "vocab_size": 200000})";
}

StepPlan plan_of_family(const char* family, const char* changes) {
  const auto config = changed(config_of(family).c_str(), changes);
  EXPECT_TRUE(config.ok()) << config.error().message;
  return std::move(plan_of(*config)).value();
}

/// By layer.
std::vector<bool> turning_layers(const StepPlan& plan) {
  std::vector<bool> turning;
  for (const RotateOp* const op : ops_of<RotateOp>(plan)) turning.push_back(op->cos != kNoValue);
  return turning;
}

TEST(DenseFamilies, have_queries_that_become_larger) {
  const auto scale_of = [](const char* changes) {
    return ops_of<RotateOp>(plan_of_family("ministral3", changes)).front()->query_scale;
  };
  EXPECT_EQ(scale_of("{}"), (QueryScale{0.1f, 16384, 0}));
  EXPECT_EQ(scale_of(R"({"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000,
      "factor": 2, "original_max_position_embeddings": 64, "llama_4_scaling_beta": 0.5}})"),
            (QueryScale{0.5f, 64, 0}));
  const StepPlan plan = plan_of_family("mistral", "{}");
  EXPECT_EQ(ops_of<RotateOp>(plan).front()->query_scale.beta, 0);
}

/// Where no section of the rope is there, the base is that of the section that stands for it.
TEST(DenseFamilies, have_a_base_in_the_section_that_is_absent) {
  const auto config = changed(config_of("ministral3").c_str(), "{}");
  ASSERT_TRUE(config.ok()) << config.error().message;
  const std::vector<double> usual = rope_frequencies(64, 1e6);
  EXPECT_EQ(config->rope.inv_freq().front(), usual.front());
  EXPECT_NEAR(config->rope.inv_freq().back(), usual.back() / 16, usual.back() * 1e-6);
  EXPECT_EQ(config->rope.attention_factor(), 1);
}

TEST(DenseFamilies, have_layers_whose_heads_do_not_turn) {
  using Layers = std::vector<bool>;
  EXPECT_EQ(turning_layers(plan_of_family("smollm3", "{}")), (Layers{true, true, true, false}));
  EXPECT_EQ(turning_layers(plan_of_family("smollm3", R"({"no_rope_layer_interval": 2})")),
            (Layers{true, false, true, false}));
  EXPECT_EQ(turning_layers(plan_of_family("smollm3", R"({"no_rope_layers": [0, 1, 1, 0, 1]})")),
            (Layers{false, true, true, false}));
  EXPECT_EQ(turning_layers(plan_of_family("exaone4", "{}")), (Layers{true, true, true, false}));
  EXPECT_EQ(turning_layers(plan_of_family("exaone4", R"({"sliding_window_pattern": 2})")),
            (Layers{true, false, true, false}));
  // Words of older files, beside which the list says it.
  EXPECT_EQ(turning_layers(plan_of_family("exaone4", R"({"sliding_window_pattern": "LG",
      "layer_types": ["full_attention", "sliding_attention", "sliding_attention",
                      "full_attention"]})")),
            (Layers{false, true, true, false}));
  json::Value full = json_of(config_of("exaone4").c_str());
  full["sliding_window"] = nullptr;
  const auto config = testing::parse_text(full.text());
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(turning_layers(*plan_of(*config)), (Layers{true, true, true, true}));
}

TEST(DenseFamilies, turn_neighbours) {
  using Turning = std::pair<const char*, int64_t>;
  for (const auto& [family, turning] :
       {Turning("glm4", 32), Turning("ernie4_5", 64), Turning("cohere2", 64)}) {
    const StepPlan plan = plan_of_family(family, "{}");
    const RotateOp* const op = ops_of<RotateOp>(plan).front();
    EXPECT_EQ(op->pairs, RopePairs::kNeighbours) << family;
    EXPECT_EQ(2 * plan.value(op->cos).cols, turning) << family;
  }
}

TEST(DenseFamilies, have_layer_norms) {
  const StepPlan nemotron = plan_of_family("nemotron", R"({"norm_eps": 0.001})");
  for (const AddNormOp* const op : ops_of<AddNormOp>(nemotron)) {
    EXPECT_TRUE(op->norm.is_centred);
    EXPECT_EQ(op->norm.eps, 0.001f);
    EXPECT_EQ(op->norm.bias.size, 512);
  }
  const auto config = changed(config_of("nemotron").c_str(), "{}");
  EXPECT_EQ(tensors_of(*config)[1].offset, 1);
  EXPECT_EQ(ops_of<LinearOp>(nemotron)[2]->squares_relu, true);
  const StepPlan cohere = plan_of_family("cohere2", R"({"layer_norm_eps": 0.001})");
  ASSERT_EQ(ops_of<AddNormOp>(cohere).size(), 5u);  // of two blocks at once
  EXPECT_TRUE(ops_of<AddNormOp>(cohere)[0]->norm.is_centred);
  EXPECT_EQ(ops_of<AddNormOp>(cohere)[0]->norm.eps, 0.001f);
  EXPECT_EQ(ops_of<AddNormOp>(cohere)[0]->norm.bias.size, 0);
  EXPECT_EQ(turning_layers(cohere), (std::vector<bool>{true, true, true, false}));
  EXPECT_EQ(ops_of<LogitsOp>(cohere).front()->factor, 0.0625f);
}

TEST(DenseFamilies, normalise_heads_that_have_turned) {
  const StepPlan plan = plan_of_family("hunyuan_v1_dense", R"({"rope_scaling": {
      "type": "dynamic", "alpha": 1000.0, "factor": 1.0, "beta_fast": 32, "beta_slow": 1,
      "mscale": 1.0, "mscale_all_dim": 0.0}})");
  EXPECT_TRUE(ops_of<RotateOp>(plan).front()->norms.are_after_rope);
  const double base = 10'000 * std::pow(1000.0, 64.0 / 62);
  EXPECT_EQ(*ops_of<AnglesOp>(plan).front()->rope, Rope(64, base));
}

TEST(DenseFamilies, refuse_values_by_the_name_of_the_key) {
  constexpr RefusedValue kAll[] = {
      {"ministral3", "rope_parameters",
       R"({"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 64})",
       "json.missing", "llama_4_scaling_beta"},
      {"ministral3", "rope_parameters",
       R"({"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 64,
           "llama_4_scaling_beta": -1})",
       "json.range", "llama_4_scaling_beta"},
      {"ministral3", "rope_parameters",
       R"({"rope_type": "yarn", "factor": 2, "llama_4_scaling_beta": 1})", "json.missing",
       "original_max_position_embeddings"},
      {"hunyuan_v1_dense", "rope_parameters", R"({"rope_type": "dynamic", "factor": 2})",
       "config.rope", "alpha"},
      {"hunyuan_v1_dense", "rope_parameters", R"({"rope_type": "dynamic", "alpha": 0})",
       "json.range", "alpha"},
      {"glm4", "partial_rotary_factor", "0.01", "config.rope"},
      {"glm4", "attention_bias", "1", "json.type"},
      {"smollm3", "no_rope_layers", "[1, 1, 1]", "config.no_rope_layers"},
      {"smollm3", "no_rope_layers", "[1, 1, 1, 2]", "config.no_rope_layers"},
      {"smollm3", "no_rope_layers", "\"all\"", "config.no_rope_layers"},
      {"smollm3", "no_rope_layer_interval", "0", "json.range"},
      {"smollm3", "use_sliding_window", "true", "config.not_computed"},
      {"smollm3", "layer_types", R"(["sliding_attention", "full_attention", "full_attention",
                                     "full_attention"])",
       "config.layer_types"},
      {"seed_oss", "attention_out_bias", "\"no\"", "json.type"},
      {"seed_oss", "mlp_bias", "0", "json.type"},
      {"ernie4_5", "use_bias", "\"no\"", "json.type"},
      {"ernie4_5", "hidden_act", "\"gelu\"", "config.hidden_act"},
      {"exaone4", "sliding_window", "0", "json.range"},
      {"exaone4", "sliding_window_pattern", "0", "json.range"},
      {"exaone4", "sliding_window_pattern", "\"LLLG\"", "json.type"},
      {"exaone4", "layer_types", R"(["sliding_attention"])", "config.layer_types"},
      {"nemotron", "norm_eps", "0", "json.range"},
      {"nemotron", "hidden_act", "\"silu\"", "config.hidden_act"},
      {"nemotron", "mlp_bias", "0", "json.type"},
      {"nemotron", "partial_rotary_factor", "0.01", "config.rope"},
      {"cohere2", "logit_scale", "0", "json.range"},
      {"cohere2", "layer_norm_eps", "2", "json.range"},
      {"cohere2", "sliding_window_pattern", "0", "json.range"},
      {"cohere2", "sliding_window", "0", "json.range"},
  };
  expect_refused(kAll, config_of);
}

TEST(DenseFamilies, without_biases_read_no_key_of_them) {
  for (const char* const family : {"mistral", "phi3", "exaone4", "qwen2", "ernie4_5"}) {
    const auto plain = changed(config_of(family).c_str(), "{}");
    for (const char* const any : {"true", "17"}) {
      const auto config =
          changed(config_of(family).c_str(), std::string(R"({"attention_bias": )") + any + "}");
      ASSERT_TRUE(config.ok()) << config.error().message;
      EXPECT_TRUE(*config == *plain) << family;
    }
  }
}

/// A model that sees says which of several it has inside.
TEST(DenseFamilies, are_found_in_one_wrapper) {
  for (const char* const inside : {"mistral", "ministral3", "mistral3"}) {
    json::Value config = {{"model_type", "mistral3"}, {"vision_config", {{"depth", 1}}}};
    config["text_config"] = json_of(config_of(inside).c_str());
    const auto found = testing::parse_text(config.text());
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found->model_type, std::string(inside) == "ministral3" ? "ministral3" : "mistral");
  }
  json::Value other = {{"model_type", "mistral3"}};
  other["text_config"] = json_of(config_of("llama").c_str());
  const auto refused = testing::parse_text(other.text());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, "config.model_type");
  EXPECT_NE(refused.error().message.find("ministral3"), std::string::npos);
}

}  // namespace
}  // namespace subbyte
