// Names of experts that published files and transformers' modules have otherwise.

#include "models/checkpoint_names.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "models/tensor_spec.h"
#include "support/model_configs.h"

namespace subbyte {
namespace {

constexpr const char* kMixtral = R"({"model_type": "mixtral", "hidden_size": 64,
    "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 8, "vocab_size": 128,
    "num_local_experts": 2})";
constexpr const char* kLfm2Moe = R"({"model_type": "lfm2_moe", "hidden_size": 64,
    "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 8, "vocab_size": 128,
    "num_experts": 2, "num_experts_per_tok": 1, "num_dense_layers": 0, "layer_types": ["conv"]})";

/// The modules of the first layer's mixture, as a file with these tensors has them.
std::vector<std::string> mixture_of(const TensorSource& tensors, const char* text = kMixtral) {
  const auto config = testing::parse_text(text);
  const auto names = CheckpointNames::find(tensors, ExpertLayout::kModules);
  std::vector<std::string> modules;
  for (const TensorSpec& spec : tensors_of(*config)) {
    if (!spec.is_of_experts() && spec.role != TensorRole::kRouter) continue;
    for (const FileMatrix& matrix : names->tensors_of(spec).matrices) {
      modules.push_back(matrix.module);
    }
  }
  return modules;
}

TEST(CheckpointNames, of_experts_are_those_of_published_files) {
  const std::string experts = "model.layers.0.block_sparse_moe.experts.";
  EXPECT_EQ(mixture_of(TensorSource::of({{experts + "0.w1.weight", {}}})),
            (std::vector<std::string>{"model.layers.0.block_sparse_moe.gate", experts + "0.w1",
                                      experts + "0.w3", experts + "1.w1", experts + "1.w3",
                                      experts + "0.w2", experts + "1.w2"}));
}

TEST(CheckpointNames, of_experts_may_be_those_of_modules) {
  const std::string mlp = "model.layers.0.mlp.";
  EXPECT_EQ(mixture_of(TensorSource::of({{mlp + "experts.gate_up_proj", {}},
                                         {mlp + "experts.down_proj", {}},
                                         {mlp + "gate.weight", {}}})),
            (std::vector<std::string>{mlp + "gate", mlp + "experts.gate_up_proj",
                                      mlp + "experts.down_proj"}));
  EXPECT_EQ(mixture_of(TensorSource::of({{mlp + "experts.0.gate_proj.weight", {}},
                                         {mlp + "experts.0.down_proj.weight", {}}}))[1],
            mlp + "experts.0.gate_proj");
}

TEST(CheckpointNames, of_experts_under_feed_forward_may_be_those_of_modules) {
  const std::string block = "model.layers.0.feed_forward.";
  EXPECT_EQ(mixture_of(TensorSource::of({{block + "experts.gate_up_proj", {}},
                                         {block + "experts.down_proj", {}},
                                         {block + "gate.weight", {}}}),
                       kLfm2Moe),
            (std::vector<std::string>{block + "gate", block + "experts.gate_up_proj",
                                      block + "experts.down_proj"}));
  EXPECT_EQ(mixture_of(TensorSource::of({{block + "experts.0.w1.weight", {}}}), kLfm2Moe)[1],
            block + "experts.0.w1");
}

}  // namespace
}  // namespace subbyte
