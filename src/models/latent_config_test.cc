// Latent attention and its mixtures as config.json says them.

#include <gtest/gtest.h>

#include <cmath>

#include "models/model.h"
#include "support/model_configs.h"
#include "support/refused_values.h"

namespace subbyte {
namespace {

using testing::changed;
using testing::code;
using testing::expect_refused;
using testing::parse_text;
using testing::RefusedValue;

std::string config_of(const std::string& type) {
  return R"({"model_type": ")" + type +
         R"(", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 5,
             "num_attention_heads": 20, "num_key_value_heads": 20, "vocab_size": 50304,
             "num_experts_per_tok": 6})";
}

StepPlan plan_with(const std::string& type, const char* changes) {
  const auto config = changed(config_of(type).c_str(), changes);
  EXPECT_TRUE(config.ok()) << config.error().message;
  auto plan = plan_of(*config);
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  return std::move(plan).value();
}

struct Absent {
  const char* type;
  int64_t query_rank, nope, value;
  int64_t experts, inner, shared_inner, mixtures;
  Routing routing;
  int64_t rank = 512;
  float scale = 1;  // of scores, beside the usual one
  int64_t index_heads = 0;
};

std::vector<Absent> absent_keys() {
  using Scores = Routing::Scores;
  return {{"deepseek_v3",
           1536,
           128,
           128,
           256,
           2048,
           2048,
           2,
           {.scores = Scores::kSigmoid,
            .added = 1e-20f,
            .factor = 2.5f,
            .groups = 8,
            .top_groups = 4,
            .groups_by_two = true}},
          {"deepseek_v2", 1536, 128, 128, 64, 1407, 2 * 1407, 5, {.normalises = false}},
          {"glm4_moe_lite",
           768,
           192,
           256,
           64,
           1536,
           1536,
           4,
           {.scores = Scores::kSigmoid, .added = 1e-20f, .factor = 1.8f, .groups_by_two = true}},
          {"mistral4",
           1024,
           64,
           128,
           128,
           2048,
           2048,
           5,
           {.added = 1e-20f, .groups_by_two = true},
           256,
           static_cast<float>(std::pow(0.1 * std::log(128) + 1, 2))}};
}

std::vector<Absent> absent_keys_with_indexers() {
  using Scores = Routing::Scores;
  return {{"deepseek_v32",
           1536,
           128,
           128,
           256,
           2048,
           2048,
           2,
           {.scores = Scores::kSigmoid,
            .added = 1e-20f,
            .factor = 2.5f,
            .groups = 8,
            .top_groups = 4,
            .groups_by_two = true},
           512,
           1,
           64},
          {"glm_moe_dsa",
           2048,
           192,
           256,
           256,
           2048,
           2048,
           2,
           {.scores = Scores::kSigmoid, .added = 1e-20f, .factor = 2.5f, .groups_by_two = true},
           512,
           1,
           32}};
}

void expect_absent(const Absent& absent) {
  SCOPED_TRACE(absent.type);
  const StepPlan plan = plan_with(absent.type, "{}");
  const auto mixtures = ops_of<ExpertsOp>(plan);
  ASSERT_EQ(std::ssize(mixtures), absent.mixtures);
  EXPECT_EQ(mixtures[0]->experts.count, absent.experts);
  EXPECT_EQ(mixtures[0]->experts.inner, absent.inner);
  EXPECT_EQ(mixtures[0]->router.rule, absent.routing);
  const bool chooses = absent.routing.scores == Routing::Scores::kSigmoid;
  EXPECT_EQ(mixtures[0]->router.biases.size, chooses ? absent.experts : 0);
  const AttentionShape& shape = ops_of<AttendOp>(plan).front()->shape;
  EXPECT_EQ(shape.kv_heads, 1);
  EXPECT_EQ(shape.head_dim, absent.rank + 64);
  EXPECT_EQ(shape.values_in_keys, absent.rank);
  EXPECT_FLOAT_EQ(shape.scale, absent.scale / std::sqrt(static_cast<float>(absent.nope + 64)));
  EXPECT_EQ(ops_of<HeadsLinearOp>(plan)[0]->weight.cols, absent.nope);
  EXPECT_EQ(ops_of<HeadsLinearOp>(plan)[1]->outputs(), absent.value);
  const int64_t index_key = absent.index_heads > 0 ? 128 : 0;
  EXPECT_EQ(cache_position_bytes(plan.cache, Element::kBF16),
            5 * (absent.rank + 64 + index_key) * 2);
  const auto selects = ops_of<SelectOp>(plan);
  EXPECT_EQ(std::ssize(selects), absent.index_heads > 0 ? 5 : 0);
  if (!selects.empty()) {
    EXPECT_EQ(selects[0]->shape.heads, absent.index_heads);
  }
  EXPECT_EQ(shape.top, selects.empty() ? 0 : 2048);
  EXPECT_EQ(ops_of<RotateOp>(plan).back()->pairs, RopePairs::kNeighbours);
  int64_t shared = 0;
  for (const GatedLinearOp* const gated : ops_of<GatedLinearOp>(plan)) {
    shared += gated->gate_up.rows == 2 * absent.shared_inner ? 1 : 0;
  }
  EXPECT_EQ(shared, absent.mixtures);
}

TEST(LatentConfigs, absent_keys_are_what_the_class_of_the_type_says) {
  for (const Absent& absent : absent_keys()) expect_absent(absent);
  for (const Absent& absent : absent_keys_with_indexers()) expect_absent(absent);
}

TEST(LatentConfigs, queries_grow_with_their_positions_where_the_rope_says_so) {
  const auto scale = [](const char* changes) {
    return ops_of<RotateOp>(plan_with("mistral4", changes)).front()->query_scale;
  };
  const QueryScale absent = scale("{}");
  EXPECT_FLOAT_EQ(absent.beta, 0.1f);
  EXPECT_EQ(absent.step, 8192);
  // What turns is qk_rope_head_dim, whatever partial_rotary_factor says.
  const QueryScale other =
      scale(R"({"rope_parameters": {"rope_type": "yarn", "factor": 2, "llama_4_scaling_beta": 0.5,
                                    "original_max_position_embeddings": 16,
                                    "partial_rotary_factor": 0.5}})");
  EXPECT_EQ(other.step, 16);
  EXPECT_EQ(ops_of<RotateOp>(plan_with("deepseek_v3", "{}")).front()->query_scale.beta, 0);
}

TEST(LatentConfigs, layers_may_take_what_the_one_before_selects) {
  const auto selected = [](const char* changes) {
    const StepPlan plan = plan_with("glm_moe_dsa", changes);
    const auto attends = ops_of<AttendOp>(plan);
    std::string letters = "F";
    for (std::size_t i = 1; i < attends.size(); ++i) {
      letters += attends[i]->selected == attends[i - 1]->selected ? 'S' : 'F';
    }
    return letters;
  };
  EXPECT_EQ(selected("{}"), "FFFFF");
  EXPECT_EQ(selected(R"({"index_topk_freq": 2})"), "FFSFS");
  EXPECT_EQ(selected(R"({"index_topk_freq": 3, "index_skip_topk_offset": 1})"), "FSSFS");
  EXPECT_EQ(selected(R"({"index_topk_pattern": "FSSFF"})"), "FSSFF");
  EXPECT_EQ(selected(R"({"index_topk_pattern": "FFFFF",
                         "indexer_types": ["full", "shared", "full", "shared", "shared"]})"),
            "FSFSS");
}

TEST(LatentConfigs, an_indexer_turns_as_its_type_does) {
  EXPECT_EQ(ops_of<RotateOp>(plan_with("deepseek_v32", "{}")).front()->pairs, RopePairs::kHalves);
  EXPECT_EQ(ops_of<RotateOp>(plan_with("glm_moe_dsa", "{}")).front()->pairs,
            RopePairs::kNeighbours);
}

TEST(LatentConfigs, queries_may_have_no_rank) {
  const std::string text = config_of("deepseek_v3");
  const auto without = parse_text(text.substr(0, text.rfind('}')) + R"(, "q_lora_rank": null})");
  ASSERT_TRUE(without.ok()) << without.error().message;
  EXPECT_EQ(ops_of<LinearOp>(plan_with("deepseek_v3", "{}")).size(),
            ops_of<LinearOp>(*plan_of(*without)).size() + 5);
  const std::string other = config_of("deepseek_v32");
  const auto refused = parse_text(other.substr(0, other.rfind('}')) + R"(, "q_lora_rank": null})");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, "config.heads");
}

TEST(LatentConfigs, mscale_all_dim_makes_scores_larger) {
  const auto scale = [](const char* changes) {
    return ops_of<AttendOp>(plan_with("deepseek_v3", changes)).front()->shape.scale *
           std::sqrt(192.0f);
  };
  EXPECT_FLOAT_EQ(scale(R"({"rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1,
                            "mscale_all_dim": 1, "original_max_position_embeddings": 4096}})"),
                  static_cast<float>(std::pow(0.1 * std::log(40) + 1, 2)));
  EXPECT_FLOAT_EQ(scale(R"({"rope_scaling": {"type": "yarn", "factor": 40,
                            "original_max_position_embeddings": 4096}})"),
                  1);
}

TEST(LatentConfigs, groups_count_where_the_method_says_so) {
  const auto groups = [](const char* changes) {
    return ops_of<ExpertsOp>(plan_with("deepseek_v2", changes)).front()->router.rule.groups;
  };
  EXPECT_EQ(groups(R"({"n_group": 8, "topk_group": 3})"), 1);
  EXPECT_EQ(groups(R"({"n_group": 8, "topk_group": 3, "topk_method": "group_limited_greedy"})"), 8);
}

TEST(LatentConfigs, kimi_is_one_by_other_names) {
  const auto v3 = changed(config_of("deepseek_v3").c_str(), "{}");
  const auto kimi = changed(config_of("kimi_k2").c_str(), "{}");
  ASSERT_TRUE(kimi.ok()) << kimi.error().message;
  EXPECT_TRUE(*kimi == *v3);
  for (const char* const inside : {"kimi_k2", "deepseek_v3"}) {
    json::Value wrapper = json_of(R"({"model_type": "kimi_k25"})");
    wrapper["text_config"] = json_of(config_of(inside).c_str());
    const auto wrapped = testing::parse_text(wrapper.text());
    ASSERT_TRUE(wrapped.ok()) << wrapped.error().message;
    EXPECT_TRUE(*wrapped == *v3);
  }
}

TEST(LatentConfigs, wrong_values_are_refused_by_the_name_of_the_key) {
  constexpr RefusedValue kAll[] = {
      {"deepseek_v3", "kv_lora_rank", "0", "json.range"},
      {"deepseek_v3", "kv_lora_rank", "2097152", "json.range"},
      {"deepseek_v3", "q_lora_rank", "0", "json.range"},
      {"deepseek_v3", "qk_nope_head_dim", "0", "json.range"},
      {"deepseek_v3", "qk_rope_head_dim", "0", "json.range"},
      {"deepseek_v3", "qk_rope_head_dim", "31", "config.heads"},
      {"deepseek_v3", "v_head_dim", "\"128\"", "json.type"},
      {"deepseek_v3", "num_key_value_heads", "10", "config.heads"},
      {"deepseek_v3", "n_group", "0", "json.range"},
      {"deepseek_v3", "n_group", "7", "config.experts"},
      {"deepseek_v3", "topk_group", "9", "json.range"},
      {"deepseek_v3", "n_routed_experts", "0", "json.range"},
      {"deepseek_v3", "num_experts_per_tok", "257", "json.range"},
      {"deepseek_v3", "moe_intermediate_size", "0", "json.range"},
      {"deepseek_v3", "n_shared_experts", "0", "json.range"},
      {"deepseek_v3", "first_k_dense_replace", "6", "json.range"},
      {"deepseek_v3", "routed_scaling_factor", "-1", "json.range"},
      {"deepseek_v3", "rope_interleave", "1", "json.type"},
      {"deepseek_v3", "scoring_func", "\"softmax\"", "config.not_computed"},
      {"deepseek_v3", "topk_method", "\"greedy\"", "config.not_computed"},
      {"deepseek_v3", "moe_layer_freq", "2", "config.not_computed"},
      {"deepseek_v2", "topk_method", "\"noaux_tc\"", "config.experts"},
      {"deepseek_v2", "norm_topk_prob", "true", "config.not_computed"},
      {"deepseek_v32", "index_topk", "0", "json.range"},
      {"deepseek_v32", "index_topk", "65537", "json.range"},
      {"deepseek_v32", "index_n_heads", "0", "json.range"},
      {"deepseek_v32", "index_head_dim", "32", "config.heads"},
      {"deepseek_v32", "indexer_rope_interleave", "true", "config.not_computed"},
      {"glm_moe_dsa", "indexer_rope_interleave", "false", "config.not_computed"},
      {"glm_moe_dsa", "indexer_types", R"(["full"])", "config.layer_types"},
      {"glm_moe_dsa", "index_topk_pattern", R"("SFFFF")", "config.layer_types"},
      {"glm_moe_dsa", "index_topk_pattern", R"("FFXFF")", "config.layer_types"},
      {"glm_moe_dsa", "index_topk_freq", "-1", "json.range"},
      {"glm_moe_dsa", "index_skip_topk_offset", R"(0, "index_topk_freq": 2)", "config.layer_types"},
      {"deepseek_v32", "index_n_heads", "4097", "json.range"},
      {"deepseek_v32", "max_position_embeddings", "16777217", "json.range"},
      {"mistral4", "scoring_func", "\"sigmoid\"", "config.not_computed"},
      {"mistral4", "rope_parameters", R"({"rope_theta": 100})", "json.missing"},
      {"glm4_moe_lite", "mlp_layer_types", R"(["dense"])", "config.layer_types"},
      {"glm4_moe_lite", "first_k_dense_replace", "2", "config.not_computed"},
  };
  expect_refused(kAll, config_of);
}

}  // namespace
}  // namespace subbyte
