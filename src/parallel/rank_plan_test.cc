#include "parallel/rank_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "models/model.h"
#include "parallel/group_weights.h"
#include "support/family_models.h"

namespace subbyte {
namespace {

/// The plan of each rank of a plan without weights.
std::vector<StepPlan> plans_of(const StepPlan& plan, int ranks) {
  const Division division = divide(plan, ranks, GroupBorders());
  std::vector<StepPlan> plans;
  for (int rank = 0; rank < ranks; ++rank) {
    RankCutter cutter(nullptr, rank, ranks);
    auto own = plan_of_rank(plan, division, rank, cutter);
    EXPECT_TRUE(own.ok()) << own.error().message;
    if (own.ok()) plans.push_back(std::move(own).value());
  }
  return plans;
}

/// The names of all that the ranks exchange, in the order of a step.
std::vector<std::string> exchanges_of(const StepPlan& plan) {
  std::vector<std::string> names;
  for (const Op& op : plan.ops) {
    if (std::holds_alternative<AllReduceOp>(op.what) ||
        std::holds_alternative<AllGatherOp>(op.what)) {
      names.push_back(op.name);
    }
  }
  return names;
}

ModelConfig qwen3(int64_t heads, int64_t kv_heads) {
  const std::string text = R"({"model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 1,
    "intermediate_size": 96, "head_dim": 16, "vocab_size": 512, "tie_word_embeddings": false,
    "max_position_embeddings": 128, "num_attention_heads": )" +
                           std::to_string(heads) + R"(, "num_key_value_heads": )" +
                           std::to_string(kv_heads) + "}";
  auto config = testing::parsed_config(*json::parse(text, "config.json"));
  EXPECT_TRUE(config.ok()) << config.error().message;
  return *config;
}

TEST(RankPlan, dense_layers_have_two_sums) {
  const std::vector<StepPlan> plans = plans_of(*plan_of(qwen3(4, 2)), 2);
  ASSERT_EQ(plans.size(), 2u);
  for (const StepPlan& plan : plans) {
    EXPECT_EQ(exchanges_of(plan),
              (std::vector<std::string>{"layers.0.self_attn.o_proj.sum",
                                        "layers.0.mlp.down_proj.sum", "lm_head.all"}));
    const auto linears = ops_of<LinearOp>(plan);
    EXPECT_EQ(size_text(linears[0]->weight), "[64][64]");   // q, k and v
    EXPECT_EQ(size_text(linears[1]->weight), "[64][32]");   // of heads
    EXPECT_EQ(size_text(linears[2]->weight), "[64][48]");   // of the dense block
    EXPECT_EQ(size_text(linears[3]->weight), "[256][64]");  // of the head
    EXPECT_EQ(ops_of<AttendOp>(plan)[0]->shape.heads, 2);
    EXPECT_EQ(plan.cache.groups[0].kv_heads, 1);
    EXPECT_EQ(plan.vocab_size(), 512);
  }
}

TEST(RankPlan, ranks_beyond_the_heads_of_keys_share_them) {
  const std::vector<StepPlan> plans = plans_of(*plan_of(qwen3(8, 2)), 4);
  ASSERT_EQ(plans.size(), 4u);
  for (const StepPlan& plan : plans) {
    EXPECT_EQ(ops_of<AttendOp>(plan)[0]->shape.heads, 2);
    EXPECT_EQ(plan.cache.groups[0].kv_heads, 1);
  }
}

TEST(RankPlan, heads_that_do_not_divide_are_those_of_every_rank_between_products_that_do) {
  const std::vector<StepPlan> plans = plans_of(*plan_of(qwen3(2, 1)), 4);
  ASSERT_EQ(plans.size(), 4u);
  EXPECT_EQ(ops_of<AttendOp>(plans[3])[0]->shape.heads, 2);
  EXPECT_EQ(
      exchanges_of(plans[3]),
      (std::vector<std::string>{"layers.0.self_attn.qkv_proj.all", "layers.0.self_attn.o_proj.sum",
                                "layers.0.mlp.down_proj.sum", "lm_head.all"}));
}

TEST(RankPlan, products_around_what_is_whole_are_divided) {
  for (const testing::FamilyModel& model : testing::family_models()) {
    if (model.name != "bamba") continue;  // its norm is over all heads
    const StepPlan whole = *plan_of(*testing::parsed_config(model.config));
    const StepPlan plan = plans_of(whole, 2).front();
    const MambaOp& mamba = *ops_of<MambaOp>(plan).front();
    EXPECT_EQ(mamba.shape, ops_of<MambaOp>(whole).front()->shape);
    const std::vector<std::string> names = exchanges_of(plan);
    const auto ends = [&](std::string_view with) {
      return std::ranges::any_of(names, [&](const auto& name) { return name.ends_with(with); });
    };
    EXPECT_TRUE(ends("in_proj.all"));
    EXPECT_TRUE(ends("out_proj.sum"));
  }
}

TEST(RankPlan, ranks_of_every_family_exchange_the_same_in_one_order) {
  for (const testing::FamilyModel& model : testing::family_models()) {
    SCOPED_TRACE(model.name);
    const auto config = testing::parsed_config(model.config);
    ASSERT_TRUE(config.ok()) << config.error().message;
    const StepPlan whole = *plan_of(*config);
    for (const int ranks : {1, 2, 3, 4, 8}) {
      const std::vector<StepPlan> plans = plans_of(whole, ranks);
      ASSERT_EQ(std::ssize(plans), ranks);
      for (const StepPlan& plan : plans) {
        EXPECT_EQ(exchanges_of(plan), exchanges_of(plans.front()));
        EXPECT_EQ(plan.vocab_size(), whole.vocab_size());
        EXPECT_EQ(plan.cache.groups.size(), whole.cache.groups.size());
      }
    }
  }
}

}  // namespace
}  // namespace subbyte
