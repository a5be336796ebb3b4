// What the config of Llama 4 says of its layers: chunks, turning heads, queries that grow, norms of
// heads, experts; and the text of a model that sees.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "models/model.h"
#include "models/model_config.h"
#include "support/model_configs.h"

namespace subbyte {
namespace {

using testing::changed;

constexpr const char* kLlama4 = R"({
  "model_type": "llama4_text", "hidden_size": 64, "intermediate_size": 32,
  "intermediate_size_mlp": 96, "num_hidden_layers": 4, "num_attention_heads": 4, "head_dim": 16,
  "num_key_value_heads": 2, "vocab_size": 128, "num_local_experts": 4, "num_experts_per_tok": 2})";

StepPlan plan_with(const char* changes) {
  const auto config = changed(kLlama4, changes);
  EXPECT_TRUE(config.ok()) << config.error().message;
  return std::move(plan_of(*config)).value();
}

TEST(Llama4Config, layers_that_turn_see_chunks_and_have_norms) {
  const StepPlan plan = plan_with(R"({"attention_chunk_size": 32})");
  const auto attends = ops_of<AttendOp>(plan);
  const auto rotates = ops_of<RotateOp>(plan);
  for (std::size_t i = 0; i < 4; ++i) {
    const bool turns = i != 3;
    EXPECT_EQ(attends[i]->shape.window, turns ? 32 : 0) << i;
    EXPECT_EQ(attends[i]->shape.in_chunks, turns) << i;
    EXPECT_EQ(rotates[i]->cos != kNoValue, turns) << i;
    EXPECT_EQ(rotates[i]->norms.are_plain, turns) << i;
    EXPECT_EQ(rotates[i]->norms.are_after_rope, turns) << i;
    EXPECT_EQ(rotates[i]->pairs, RopePairs::kNeighbours) << i;
    EXPECT_EQ(rotates[i]->query_scale, turns ? QueryScale{} : (QueryScale{0.1f, 8192, 1})) << i;
  }
}

TEST(Llama4Config, keys_change_one_thing_each) {
  const auto windows = [](const char* changes) { return changed(kLlama4, changes)->windows; };
  using Windows = std::vector<int64_t>;
  EXPECT_EQ(windows("{}"), (Windows{8192, 8192, 8192, 0}));
  EXPECT_EQ(windows(R"({"no_rope_layer_interval": 2})"), (Windows{8192, 0, 8192, 0}));
  EXPECT_EQ(windows(R"({"layer_types": ["full_attention", "chunked_attention", "full_attention",
                                        "chunked_attention"]})"),
            (Windows{0, 8192, 0, 8192}));
  json::Value config = json_of(kLlama4);
  config["attention_chunk_size"] = nullptr;
  EXPECT_EQ(testing::parse_text(config.text())->windows, Windows(4, 0));
  config["layer_types"] = json::Value::array(
      {"chunked_attention", "full_attention", "full_attention", "full_attention"});
  EXPECT_EQ(testing::parse_text(config.text()).error().code, "config.layer_types");
  const StepPlan still = plan_with(R"({"attn_temperature_tuning": 0, "use_qk_norm": false})");
  for (const RotateOp* const op : ops_of<RotateOp>(still)) {
    EXPECT_EQ(op->query_scale.beta, 0);
    EXPECT_FALSE(op->norms.are_plain);
  }
  EXPECT_EQ(ops_of<RotateOp>(plan_with(R"({"attn_temperature_tuning": 4})"))[3]->query_scale.beta,
            0.1f);
}

TEST(Llama4Config, layers_without_experts_have_a_size_of_their_own) {
  const StepPlan plan = plan_with(R"({"interleave_moe_layer_step": 2})");
  EXPECT_EQ(ops_of<ExpertsOp>(plan).size(), 2u);
  EXPECT_TRUE(ops_of<ExpertsOp>(plan)[0]->router.rule.weights_inputs);
  const auto gated = ops_of<GatedLinearOp>(plan);
  ASSERT_EQ(gated.size(), 4u);
  EXPECT_EQ(gated[0]->gate_up.rows, 2 * 96);
  EXPECT_EQ(gated[1]->gate_up.rows, 2 * 32);  // the expert that every token goes to
  EXPECT_EQ(testing::expert_layers(*changed(kLlama4, R"({"moe_layers": [1, 9]})")),
            (std::vector<bool>{false, true, false, false}));
}

TEST(Llama4Config, is_found_in_a_model_that_sees) {
  json::Value config = {{"model_type", "llama4"}, {"vision_config", {{"hidden_size", 8}}}};
  config["text_config"] = json_of(kLlama4);
  const auto found = testing::parse_text(config.text());
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->model_type, "llama4_text");
}

}  // namespace
}  // namespace subbyte
