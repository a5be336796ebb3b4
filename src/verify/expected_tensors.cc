#include "verify/expected_tensors.h"

#include <algorithm>
#include <functional>

#include "checkpoints/expert_names.h"
#include "checkpoints/importer.h"
#include "synth/synth_tensors.h"

namespace subbyte {
namespace {

/// The shape whose synthetic checkpoint has the tensors of such a model.
std::optional<ModelShape> shape_of(const ModelConfig& config) {
  ModelShape shape = {};
  if (config.model_type == "qwen3") shape.arch = "qwen3";
  if (config.model_type == "gpt_oss") shape.arch = kGptOss;
  const bool all_have_experts = std::ranges::all_of(config.expert_layers, std::identity());
  if (config.model_type == "qwen3_moe" && all_have_experts) shape.arch = "qwen3-moe";
  if (shape.arch.empty()) return std::nullopt;
  shape.hidden = config.hidden_size;
  shape.intermediate = config.intermediate_size;
  shape.layers = config.num_layers;
  shape.heads = config.num_heads;
  shape.kv_heads = config.num_kv_heads;
  shape.head_dim = config.head_dim;
  shape.experts = config.num_experts;
  shape.per_token = config.experts_per_token;
  shape.expert_size = config.expert_size;
  shape.vocabulary = config.vocab_size;
  shape.tied = config.tie_word_embeddings;
  return shape;
}

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kStackBias = "_bias";
constexpr std::string_view kGateUp = "gate_up_proj";

/// What the stack of experts is made of in these tensors: itself, or modules of each expert.
class ExpertTensors {
 public:
  ExpertTensors(const TensorSource& tensors, const ExpectedModule& stack) : stack_(stack) {
    const std::string prefix = stack.name.substr(0, stack.name.size() - kGateUp.size());
    const bool pairs =
        stack.name.ends_with(kGateUp) && has_module(tensors, expert_name(prefix + "gate_proj", 0));
    const bool apart =
        !has_module(tensors, stack.name) && has_module(tensors, expert_name(stack.name, 0));
    if (pairs) parts_ = {prefix + "gate_proj", prefix + "up_proj"};
    if (!pairs && apart) parts_ = {stack.name};
    has_stack_bias_ = tensors.find(stack.name + std::string(kStackBias)) != nullptr;
  }

  void add_modules(ExpectedTensors& expected) const {
    if (parts_.empty()) expected.modules.push_back(stack_);
    for (const std::string& part : parts_) {
      for (int64_t e = 0; e < stack_.experts; ++e) {
        expected.modules.push_back({expert_name(part, e), 1, part_rows(), stack_.cols});
      }
    }
  }

  void add_biases(ExpectedTensors& expected) const {
    const auto size = [](int64_t value) { return static_cast<uint64_t>(value); };
    if (parts_.empty() || has_stack_bias_) {
      expected.plain.push_back(
          {stack_.name + std::string(kStackBias), {size(stack_.experts), size(stack_.rows)}});
      return;
    }
    for (const std::string& part : parts_) {
      for (int64_t e = 0; e < stack_.experts; ++e) {
        expected.plain.push_back({expert_name(part, e) + ".bias", {size(part_rows())}});
      }
    }
  }

 private:
  int64_t part_rows() const { return stack_.rows / static_cast<int64_t>(parts_.size()); }

  ExpectedModule stack_;
  std::vector<std::string> parts_;  // names of stacks whose experts are modules; empty: one stack
  bool has_stack_bias_ = false;
};

bool is_bias_of(const std::string& name, const std::string& stack) {
  return name.ends_with(kStackBias) && name.size() == stack.size() + kStackBias.size() &&
         name.starts_with(stack);
}

}  // namespace

std::optional<ExpectedTensors> expected_tensors(const ModelConfig& config,
                                                const TensorSource& tensors) {
  const auto shape = shape_of(config);
  if (!shape) return std::nullopt;
  SynthOptions options;
  options.format = "bf16";  // one tensor for each matrix
  const auto list = synthetic_tensors(*shape, shape->layers, options);
  if (!list.ok()) return std::nullopt;
  ExpectedTensors expected;
  std::string stack;  // the last one
  for (const SynthTensor& tensor : *list) {
    const std::string& name = tensor.declaration.name;
    const Shape& sizes = tensor.declaration.shape;
    const auto size = [&](std::size_t i) { return static_cast<int64_t>(sizes[i]); };
    if (sizes.size() == 3) {  // [experts][inputs][outputs], and its bias comes next
      const ExpertTensors experts(tensors, {name, size(0), size(2), size(1)});
      experts.add_modules(expected);
      experts.add_biases(expected);
      stack = name;
    } else if (sizes.size() == 2 && name.ends_with(kWeight)) {
      expected.modules.push_back(
          {name.substr(0, name.size() - kWeight.size()), 1, size(0), size(1)});
    } else if (!is_bias_of(name, stack)) {
      expected.plain.push_back({name, sizes});
    }
  }
  return expected;
}

}  // namespace subbyte
