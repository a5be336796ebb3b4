#include "models/conv_layers.h"

#include <algorithm>

#include "models/layer_lists.h"

namespace subbyte {

Result<std::vector<bool>> read_conv_layers(const json::Object& config, int64_t num_layers) {
  constexpr std::string_view kKinds[] = {"full_attention", "conv"};
  SUBBYTE_TRY(const auto kinds, read_layer_kinds(config, "layer_types", kKinds, num_layers));
  if (kinds) return std::vector<bool>(kinds->begin(), kinds->end());
  SUBBYTE_TRY(auto layers, read_layer_numbers(config, "full_attn_idxs", num_layers));
  if (config.has("full_attn_idxs")) layers.flip();
  return layers;
}

void add_conv_layers(const GgufModel& model, std::string_view key, json::Value& config) {
  const GgufValue* const heads = model.keys().find(key);
  if (heads == nullptr || !heads->is_array()) return;
  json::Value types = json::Value::array();
  const auto layers = config["num_hidden_layers"].get<uint64_t>();
  for (uint64_t i = 0; i < std::min(heads->size(), layers); ++i) {
    types.push_back(heads->integer(i) == 0 ? "conv" : "full_attention");
  }
  config["layer_types"] = std::move(types);
}

void add_conv_keys(const std::vector<bool>& conv_layers, std::string_view key, int64_t kv_heads,
                   GgufKeys& keys) {
  std::vector<int32_t> heads;
  for (const bool is_conv : conv_layers) {
    heads.push_back(is_conv ? 0 : static_cast<int32_t>(kv_heads));
  }
  keys.wholes(key, heads);
}

}  // namespace subbyte
