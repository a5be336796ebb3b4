// What families make of keys that say how experts are chosen, and of values that they do not take.
// The defaults are those of the classes of transformers 5.24.

#include <gtest/gtest.h>

#include <vector>

#include "models/config_keys.h"
#include "models/model.h"
#include "models/tensor_spec.h"
#include "support/model_configs.h"
#include "support/refused_values.h"

namespace subbyte {
namespace {

using testing::changed;
using testing::expect_refused;
using testing::RefusedValue;

constexpr auto kSigmoid = Routing::Scores::kSigmoid;

std::string config_of(const char* family) {
  return std::string(R"({"model_type": ")") + family +
         R"(", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4,
             "num_attention_heads": 16, "vocab_size": 200064, "layer_types": [
             "full_attention", "full_attention", "full_attention", "full_attention"]})";
}

struct Absent {
  const char* family;
  int64_t count, per_token, inner;
  int64_t shared = 0;  // inner size of the shared expert
  std::vector<bool> layers = {true, true, true, true};
  Routing routing = {};
  bool has_choice_bias = false;
};

class ExpertConfigs : public ::testing::TestWithParam<Absent> {};

TEST_P(ExpertConfigs, absent_keys_are_what_the_class_of_the_family_says) {
  const Absent& absent = GetParam();
  const auto config = changed(config_of(absent.family).c_str(), "{}");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(testing::expert_layers(*config), absent.layers);
  const auto plan = plan_of(*config);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const auto all = ops_of<ExpertsOp>(*plan);
  ASSERT_FALSE(all.empty());
  for (const ExpertsOp* const op : all) {
    EXPECT_EQ(op->experts.count, absent.count);
    EXPECT_EQ(op->experts.top_k, absent.per_token);
    EXPECT_EQ(op->experts.inner, absent.inner);
    EXPECT_EQ(op->router.rule, absent.routing);
    EXPECT_EQ(op->router.biases.size, absent.has_choice_bias ? absent.count : 0);
  }
  int64_t shared = 0;
  for (const TensorSpec& tensor : tensors_of(*config)) {
    const bool is_shared =
        tensor.name.find(".shared_") != std::string::npos && tensor.name.ends_with("down_proj");
    if (is_shared) shared = tensor.cols;
  }
  EXPECT_EQ(shared, absent.shared);
}

INSTANTIATE_TEST_SUITE_P(
    Families, ExpertConfigs,
    ::testing::Values(
        Absent{.family = "qwen2_moe",
               .count = 60,
               .per_token = 4,
               .inner = 1408,
               .shared = 5632,
               .routing = {.normalises = false}},
        Absent{.family = "mixtral", .count = 8, .per_token = 2, .inner = 1024},
        Absent{.family = "granitemoe", .count = 8, .per_token = 2, .inner = 1024},
        Absent{.family = "glm4_moe",
               .count = 128,
               .per_token = 8,
               .inner = 1408,
               .shared = 1408,
               .layers = {false, true, true, true},
               .routing = {.scores = kSigmoid, .added = 1e-20f, .groups_by_two = true},
               .has_choice_bias = true},
        Absent{.family = "minimax_m2",
               .count = 256,
               .per_token = 8,
               .inner = 1024,
               .routing = {.scores = kSigmoid},
               .has_choice_bias = true},
        Absent{.family = "ernie4_5_moe",
               .count = 64,
               .per_token = 6,
               .inner = 1536,
               .shared = 3072,
               .layers = {false, true, true, true},
               .routing = {.smallest_sum = 1e-12f},
               .has_choice_bias = true},
        Absent{
            .family = "hunyuan_v1_moe", .count = 1, .per_token = 1, .inner = 1024, .shared = 1024},
        Absent{.family = "llama4_text",
               .count = 16,
               .per_token = 1,
               .inner = 1024,
               .shared = 1024,
               .routing = {.scores = kSigmoid, .normalises = false, .weights_inputs = true}},
        Absent{.family = "lfm2_moe",
               .count = 32,
               .per_token = 4,
               .inner = 1792,
               .layers = {false, false, true, true},
               .routing = {.scores = kSigmoid, .added = 1e-6f},
               .has_choice_bias = true}),
    [](const auto& one) { return std::string(one.param.family); });

constexpr const char* kOfToken = "num_experts_per_tok";
constexpr RefusedValue kRefused[] = {
    {"qwen2_moe", "num_experts", "0", "json.range"},
    {"qwen2_moe", "num_experts", "3", "config.experts", kOfToken},
    {"qwen2_moe", "num_experts_per_tok", "61", "json.range"},
    {"qwen2_moe", "moe_intermediate_size", "0", "json.range"},
    {"qwen2_moe", "shared_expert_intermediate_size", "-1", "json.range"},
    {"qwen2_moe", "norm_topk_prob", "1", "json.type"},
    {"qwen2_moe", "decoder_sparse_step", "0", "json.range"},
    {"mixtral", "num_local_experts", "1", "config.experts", kOfToken},
    {"mixtral", "num_local_experts", "5000", "json.range"},
    {"mixtral", "sliding_window", "0", "json.range"},
    {"glm4_moe", "n_group", "0", "json.range"},
    {"glm4_moe", "n_group", "3", "config.experts"},
    {"glm4_moe", "n_group", "64", "json.range"},
    {"glm4_moe", "topk_group", "2", "json.range"},
    {"glm4_moe", "n_shared_experts", "0", "json.range"},
    {"glm4_moe", "n_routed_experts", "7", "config.experts", kOfToken},
    {"glm4_moe", "first_k_dense_replace", "5", "json.range"},
    {"glm4_moe", "routed_scaling_factor", "0", "json.range"},
    {"glm4_moe", "routed_scaling_factor", "\"1\"", "json.type"},
    {"glm4_moe", "partial_rotary_factor", "0.01", "config.rope"},
    {"minimax_m2", "rotary_dim", "1", "json.range"},
    {"minimax_m2", "rotary_dim", "256", "json.range"},
    {"minimax_m2", "num_local_experts", "4", "config.experts", kOfToken},
    {"lfm2_moe", "num_dense_layers", "-1", "json.range"},
    {"lfm2_moe", "layer_types", "null", "json.missing"},
    {"lfm2_moe", "conv_L_cache", "1", "json.range"},
    {"granitemoe", "num_experts_per_tok", "9", "json.range"},
    {"ernie4_5_moe", "moe_k", "65", "json.range"},
    {"ernie4_5_moe", "moe_num_experts", "5", "config.experts", "moe_k"},
    {"ernie4_5_moe", "num_experts", "5000", "json.range"},
    {"ernie4_5_moe", "moe_num_shared_experts", "-1", "json.range"},
    {"ernie4_5_moe", "moe_layer_start_index", "-1", "json.range"},
    {"ernie4_5_moe", "moe_layer_end_index", "-2", "json.range"},
    {"ernie4_5_moe", "moe_layer_interval", "0", "json.range"},
    {"ernie4_5_moe", "moe_norm_min", "-1", "json.range"},
    {"ernie4_5_moe", "use_bias", "true", "config.not_computed"},
    {"hunyuan_v1_moe", "moe_topk", "2", "json.range"},
    {"hunyuan_v1_moe", "moe_topk", "[1, 1, 1]", "config.experts"},
    {"hunyuan_v1_moe", "moe_topk", "[1, 1, 1, 2]", "config.experts"},
    {"hunyuan_v1_moe", "moe_topk", "[]", "config.experts"},
    {"hunyuan_v1_moe", "num_experts", "0", "json.range"},
    {"hunyuan_v1_moe", "num_experts", "[1]", "json.type"},
    {"llama4_text", "num_local_experts", "0", "json.range"},
    {"llama4_text", "num_experts_per_tok", "17", "json.range"},
    {"llama4_text", "moe_layers", "3", "config.layer_types"},
    {"llama4_text", "interleave_moe_layer_step", "0", "json.range"},
    {"llama4_text", "attention_chunk_size", "0", "json.range"},
    {"llama4_text", "layer_types", R"(["chunked_attention"])", "config.layer_types"},
    {"llama4_text", "no_rope_layers", "[1]", "config.no_rope_layers"},
    {"llama4_text", "floor_scale", "0", "json.range"},
    {"llama4_text", "attn_scale", "\"1\"", "json.type"},
    {"llama4_text", "attn_temperature_tuning", "\"no\"", "json.type"},
    {"llama4_text", "intermediate_size_mlp", "0", "json.range"},
};

TEST(ExpertValues, are_refused_by_the_name_of_the_key) {
  expect_refused(kRefused, config_of);
}

TEST(ExpertValues, of_all_layers_may_be_a_list) {
  const std::string hunyuan = config_of("hunyuan_v1_moe");
  const auto listed =
      changed(hunyuan.c_str(), R"({"num_experts": 8, "moe_topk": [2, 2, 2, 2, 2]})");
  const auto one = changed(hunyuan.c_str(), R"({"num_local_experts": 8, "moe_topk": 2})");
  ASSERT_TRUE(listed.ok()) << listed.error().message;
  EXPECT_TRUE(*listed == *one);
  EXPECT_EQ(testing::code(hunyuan.c_str(), R"({"num_experts": 8, "num_local_experts": 4})"),
            "config.contradiction");
}

/// What files of GGUF say where config.json does not.
TEST(ExpertValues, say_how_many_are_shared_and_not_how_large_they_are) {
  const auto config = changed(config_of("ernie4_5_moe").c_str(), "{}");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(said_of(*config, "moe_num_shared_experts"), json::Value(2));
}

TEST(ExpertValues, say_which_layers_of_ernie_have_experts) {
  const auto layers = [](const char* changes) {
    return testing::expert_layers(*changed(config_of("ernie4_5_moe").c_str(), changes));
  };
  using Layers = std::vector<bool>;
  EXPECT_EQ(layers(R"({"moe_layer_interval": 2})"), (Layers{false, true, false, true}));
  EXPECT_EQ(layers(R"({"moe_layer_start_index": 0, "moe_layer_end_index": 1})"),
            (Layers{true, true, false, false}));
  EXPECT_EQ(layers(R"({"moe_layer_start_index": 9})"), Layers(4, false));
}

TEST(ExpertValues, groups_need_as_many_experts_as_a_token_goes_to) {
  const auto with = [](const char* changes) {
    return testing::code(config_of("glm4_moe").c_str(), changes);
  };
  EXPECT_EQ(with(R"({"n_group": 32, "topk_group": 2})"), "");
  EXPECT_EQ(with(R"({"n_group": 32, "topk_group": 1})"), "config.experts");
}

}  // namespace
}  // namespace subbyte
