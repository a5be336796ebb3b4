#include "models/layer_inputs.h"

#include <fmt/format.h>

#include <cmath>

#include "json/strict_json.h"
#include "models/model_family.h"

namespace subbyte {

Status check_layer_inputs(const json::Object& config, const ModelConfig& model) {
  const int64_t usual = type_of(model).defaults.vocab;
  SUBBYTE_TRY(const auto vocab, config.integer("vocab_size_per_layer_input", 1, kMaxVocabulary));
  if (vocab.value_or(usual) == model.vocab_size) return {};
  return config.error("config.vocab_size_per_layer_input", "vocab_size_per_layer_input",
                      fmt::format("vocab_size ({}){}", model.vocab_size,
                                  vocab ? "" : fmt::format("; absent, it is {}", usual)));
}

ValueId record_layer_inputs(const ModelConfig& config, StepRecorder& step, ValueId x,
                            int64_t size) {
  const float half = std::sqrt(0.5f);
  const int64_t all = config.num_layers * size;
  ValueId rows = step.embed_far("embed_tokens_per_layer", all, half * step.root_of(size));
  const ValueId product = step.linear("per_layer_model_projection",
                                      step.add("per_layer_model_input", x, kNoValue), all, {});
  const ValueId normed = step.norm_runs("per_layer_projection_norm", product, size,
                                        static_cast<float>(config.hidden_size));
  return step.add("per_layer_inputs", rows, normed, half);
}

ValueId record_layer_input(const ModelConfig& config, StepRecorder& step, ValueId& x, ValueId delta,
                           ValueId inputs, int64_t size, int64_t layer) {
  ValueId h = step.add("per_layer_input", x, delta);
  h = step.linear("per_layer_input_gate", h, size, {});
  h = step.gate("per_layer_input_gated", h, inputs, layer * size, Gate::kGelu);
  h = step.linear("per_layer_projection", h, config.hidden_size, {});
  return step.norm("post_per_layer_input_norm", h);
}

}  // namespace subbyte
