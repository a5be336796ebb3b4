#include "models/expert_config.h"

#include <algorithm>

#include "json/strict_json.h"

namespace subbyte {

Result<std::vector<bool>> read_expert_layers(const json::Object& config, int64_t num_layers) {
  SUBBYTE_TRY(const auto step, config.integer("decoder_sparse_step", 1, num_layers + 1));
  std::vector<bool> layers(static_cast<std::size_t>(num_layers));
  for (int64_t i = 0; i < num_layers; ++i) layers[i] = (i + 1) % step.value_or(1) == 0;
  if (!config.has("mlp_only_layers")) return layers;
  const json::Value& dense = *config.find("mlp_only_layers");
  const auto is_integer = [](const json::Value& i) { return i.is_number_integer(); };
  if (!dense.is_array() || !std::ranges::all_of(dense, is_integer)) {
    return config.error("config.mlp_only_layers", "mlp_only_layers", "an array of integers");
  }
  for (const json::Value& i : dense) {
    const bool is_layer = i.is_number_unsigned() && i.get<uint64_t>() < layers.size();
    if (is_layer) layers[i.get<uint64_t>()] = false;
  }
  return layers;
}

}  // namespace subbyte
