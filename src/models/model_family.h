#pragma once
// What distinguishes a family of models before its weights are loaded. A new family is one
// ModelFamily in a file of its own or of its relatives, and one line in models.def.

#include <memory>
#include <string>
#include <string_view>

#include "json/strict_json.h"
#include "models/model.h"
#include "models/model_weights.h"
#include "models/tensor_spec.h"

namespace subbyte {

struct ModelFamily {
  std::string_view model_type;  // of config.json
  double default_eps;           // when config.json has no rms_norm_eps
  int64_t alternating_window;   // sliding window of even layers without layer_types; 0: none
  /// Reads what config.json says of this family alone; nullptr: nothing.
  Status (*read)(const json::Object& config, ModelConfig& model);
  std::vector<TensorSpec> (*tensors)(const ModelConfig& config);
  ExpertLayout experts;
  std::unique_ptr<Model> (*make)(const ModelConfig& config, const ModelWeights& weights);
};

/// nullptr when this version does not know the type.
const ModelFamily* find_family(std::string_view model_type);

/// "\"qwen3\" or \"gpt_oss\"".
std::string family_names();

}  // namespace subbyte
