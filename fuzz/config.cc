// config.json of a model. The input is the file.

#include "fuzz/fuzz.h"
#include "json/strict_json.h"
#include "models/model_config.h"
#include "models/tensor_spec.h"

using namespace subbyte;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const fuzz::Exact file(data, size);
  const auto value = json::parse(file.text(), "input");
  if (!value.ok()) {
    fuzz::require_line(value.error(), "input");
    return 0;
  }
  const auto object = json::Object::of(*value, "input");
  if (!object.ok()) return 0;
  const auto config = parse_model_config(*object);
  if (!config.ok()) {
    fuzz::require_line(config.error(), "input");
    return 0;
  }
  // Later code divides and allocates by these.
  const ModelConfig& model = *config;
  const auto experts = expert_stack_of(model);
  fuzz::require(model.hidden_size > 0, "a size");
  fuzz::require(experts ? experts->rows > 0 : model.intermediate_size > 0, "inner sizes");
  fuzz::require(model.num_kv_heads > 0 && model.num_heads % model.num_kv_heads == 0, "heads");
  fuzz::require(model.head_dim > 0 && model.head_dim % 2 == 0, "a head size");
  fuzz::require(model.num_layers == std::ssize(model.windows), "a window for every layer");
  fuzz::require(model.vocab_size > 0 && model.max_positions > 0, "a vocabulary and positions");
  fuzz::require(model.rope.dim() > 0 && model.rms_norm_eps > 0, "rope and norm");
  for (const int32_t id : model.eos_tokens) {
    fuzz::require(id >= 0 && id < model.vocab_size, "tokens of end");
  }
  fuzz::require(!experts || experts->use.per_token <= experts->experts, "experts");
  return 0;
}
