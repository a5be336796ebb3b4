#include "models/conv_layers.h"

#include <fmt/format.h>

#include <algorithm>

namespace subbyte {

Result<std::vector<bool>> read_conv_layers(const json::Object& config, int64_t num_layers) {
  std::vector<bool> layers(static_cast<std::size_t>(num_layers), false);
  if (config.has("layer_types")) {
    const json::Value& types = *config.find("layer_types");
    const auto is_known = [](const json::Value& type) {
      return type == "conv" || type == "full_attention";
    };
    if (!types.is_array() || std::ssize(types) != num_layers ||
        !std::ranges::all_of(types, is_known)) {
      return config.error(
          "config.layer_types", "layer_types",
          fmt::format("an array of {} strings, each \"conv\" or \"full_attention\"", num_layers));
    }
    for (std::size_t i = 0; i < layers.size(); ++i) layers[i] = types[i] == "conv";
    return layers;
  }
  if (!config.has("full_attn_idxs")) return layers;
  layers.assign(layers.size(), true);
  const json::Value& attention = *config.find("full_attn_idxs");
  const auto is_index = [](const json::Value& i) { return i.is_number_integer(); };
  if (!attention.is_array() || !std::ranges::all_of(attention, is_index)) {
    return config.error("config.layer_types", "full_attn_idxs", "an array of integers");
  }
  for (const json::Value& i : attention) {
    const bool is_layer = i.is_number_unsigned() && i.get<uint64_t>() < layers.size();
    if (is_layer) layers[i.get<uint64_t>()] = false;
  }
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
