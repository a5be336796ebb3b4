#include "engine/verify/expected_tensors.h"

#include "engine/synth_tensors.h"

namespace subbyte {
namespace {

/// The shape whose synthetic checkpoint has the tensors of such a model.
std::optional<ModelShape> shape_of(const ModelConfig& config) {
  if (config.model_type != "qwen3" && config.model_type != "gpt_oss") return std::nullopt;
  ModelShape shape = {};
  shape.hidden = config.hidden_size;
  shape.intermediate = config.intermediate_size;
  shape.layers = config.num_layers;
  shape.heads = config.num_heads;
  shape.kv_heads = config.num_kv_heads;
  shape.head_dim = config.head_dim;
  shape.experts = config.num_experts;
  shape.vocabulary = config.vocab_size;
  shape.tied = config.tie_word_embeddings;
  return shape;
}

}  // namespace

std::optional<ExpectedTensors> expected_tensors(const ModelConfig& config) {
  const auto shape = shape_of(config);
  if (!shape) return std::nullopt;
  SynthOptions options;
  options.format = "bf16";  // one tensor for each matrix
  const auto tensors = synthetic_tensors(*shape, shape->layers, options);
  if (!tensors.ok()) return std::nullopt;
  constexpr std::string_view kWeight = ".weight";
  ExpectedTensors expected;
  for (const SynthTensor& tensor : *tensors) {
    const auto& [name, dtype, sizes] = tensor.declaration;
    const auto size = [&](std::size_t i) { return static_cast<int64_t>(sizes[i]); };
    if (sizes.size() == 3) {  // [experts][inputs][outputs]
      expected.modules.push_back({name, size(0), size(2), size(1)});
    } else if (sizes.size() == 2 && name.ends_with(kWeight)) {
      expected.modules.push_back(
          {name.substr(0, name.size() - kWeight.size()), 1, size(0), size(1)});
    } else {
      expected.plain.push_back({name, sizes});
    }
  }
  return expected;
}

}  // namespace subbyte
