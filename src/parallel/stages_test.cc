#include "parallel/stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "models/model.h"
#include "models/tensor_spec.h"
#include "support/family_models.h"

namespace subbyte {
namespace {

ModelConfig parsed(const std::string& text) {
  auto config = testing::parsed_config(*json::parse(text, "config.json"));
  EXPECT_TRUE(config.ok()) << config.error().message;
  return *config;
}

/// The head has as many weights as two of the layers.
StepPlan six_layers(int64_t bytes_of_head = 1) {
  const ModelConfig config = parsed(R"({"model_type": "qwen3", "hidden_size": 64,
      "num_hidden_layers": 6, "intermediate_size": 128, "head_dim": 16, "vocab_size": 1152,
      "tie_word_embeddings": false, "max_position_embeddings": 128, "num_attention_heads": 4,
      "num_key_value_heads": 4})");
  WeightBytes bytes;
  for (const TensorSpec& spec : tensors_of(config)) {
    bytes[spec.name] = spec.rows * spec.cols * (spec.role == TensorRole::kHead ? bytes_of_head : 1);
  }
  return *plan_of(config, {}, bytes);
}

std::vector<std::string> texts_of(const std::vector<Stage>& stages) {
  std::vector<std::string> texts;
  for (const Stage& stage : stages) texts.push_back(to_string(stage));
  return texts;
}

using Texts = std::vector<std::string>;

TEST(Stages, have_as_many_weights_as_each_other) {
  const StepPlan plan = six_layers();
  EXPECT_EQ(texts_of(*even_stages(plan, 1)), (Texts{"layers 0 to 5 and the head"}));
  EXPECT_EQ(texts_of(*even_stages(plan, 2)),
            (Texts{"layers 0 to 3", "layers 4 to 5 and the head"}));
  // What counts are bytes, not numbers.
  EXPECT_EQ(texts_of(*even_stages(six_layers(2), 2)),
            (Texts{"layers 0 to 4", "layer 5 and the head"}));
  EXPECT_EQ(texts_of(*even_stages(six_layers(0), 2)),
            (Texts{"layers 0 to 2", "layers 3 to 5 and the head"}));
  EXPECT_EQ(even_stages(plan, 6)->size(), 6u);
  const auto refused = even_stages(plan, 7);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, "device.stages");
}

TEST(Stages, last_layers_count_the_head) {
  const StepPlan plan = six_layers();
  EXPECT_EQ(texts_of(*stages_with_last(plan, 1)), (Texts{"layers 0 to 5", "the head"}));
  EXPECT_EQ(texts_of(*stages_with_last(plan, 2)), (Texts{"layers 0 to 4", "layer 5 and the head"}));
  EXPECT_EQ(texts_of(*stages_with_last(plan, 6)), (Texts{"layer 0", "layers 1 to 5 and the head"}));
  EXPECT_FALSE(stages_with_last(plan, 7).ok());
  EXPECT_FALSE(stages_with_last(plan, 0).ok());
}

TEST(Stages, send_the_stream_and_what_is_added_to_it) {
  const StepPlan plan = six_layers();
  const std::vector<Stage> stages = *even_stages(plan, 3);
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const StepPlan own = plan_of_stage(plan, stages[i]);
    const auto received = ops_of<ReceiveOp>(own);
    const auto sent = ops_of<SendOp>(own);
    EXPECT_EQ(received.size(), i == 0 ? 0u : 2u);
    EXPECT_EQ(sent.size(), i == 2 ? 0u : 2u);
    EXPECT_EQ(ops_of<EmbedOp>(own).size(), i == 0 ? 1u : 0u);
    EXPECT_EQ(ops_of<AnglesOp>(own).size(), 1u);
    EXPECT_EQ(own.vocab_size(), i == 2 ? 1152 : 0);
    ASSERT_EQ(own.cache.groups.size(), 1u);
    EXPECT_EQ(own.cache.groups[0].layers, std::ssize(ops_of<AttendOp>(own)));
    EXPECT_EQ(ops_of<AttendOp>(own).front()->cache.layer, 0);
    if (i == 0) continue;
    EXPECT_EQ(received[0]->type, ValueType::kFloat);
    EXPECT_EQ(received[1]->type, ValueType::kActivation);
    EXPECT_EQ(received[1]->before, 64);
  }
}

}  // namespace
}  // namespace subbyte
