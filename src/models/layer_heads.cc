#include "models/layer_heads.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "json/strict_json.h"

namespace subbyte {
namespace {

Result<int64_t> read_kv_heads(const json::Object& object, const char* key,
                              const ModelConfig& model) {
  SUBBYTE_TRY(const auto heads, object.integer(key, 1, model.num_heads));
  const int64_t found = heads.value_or(model.num_kv_heads);
  if (model.num_heads % found == 0) return found;
  return object.error("config.heads", key,
                      fmt::format("a divisor of num_attention_heads ({})", model.num_heads));
}

Result<int64_t> read_head_dim(const json::Object& object, const char* key, int64_t absent) {
  SUBBYTE_TRY(const auto size, object.integer(key, 2, kMaxWidth));
  if (size.value_or(absent) % 2 == 0) return size.value_or(absent);
  return object.error("config.heads", key, "an even number (rotary embedding)");
}

/// Newer files say the heads of each layer that is full, all of which have the same.
Status read_each(const json::Object& config, const json::Object& layers, const ModelConfig& model,
                 LayerHeads& heads) {
  const auto entry = [&](int64_t layer) { return layers.find(std::to_string(layer)); };
  const json::Value* const last = entry(model.num_layers - 1);
  int64_t count = 0;
  for (int64_t i = 0; i < model.num_layers; ++i) {
    if (model.windows[i] > 0 || last == nullptr || entry(i) == nullptr) continue;
    if (*entry(i) == *last) ++count;
  }
  const bool is_of_all = count == std::ranges::count(model.windows, 0);
  if (count != std::ssize(layers.members()) || (count > 0 && !is_of_all)) {
    return config.error("config.per_layer_config", "per_layer_config",
                        "the same object for each layer that is full");
  }
  heads.full_head_dim = model.head_dim;
  heads.full_kv_heads = model.num_kv_heads;
  SUBBYTE_TRY(const auto said, layers.object(std::to_string(model.num_layers - 1)));
  if (!said) return {};
  for (const auto& [key, value] : said->members()) {
    if (key == "head_dim" || key == "num_key_value_heads") continue;
    return said->error("config.not_computed", key, "nothing");
  }
  SUBBYTE_TRY(heads.full_head_dim, read_head_dim(*said, "head_dim", model.head_dim));
  SUBBYTE_TRY(heads.full_kv_heads, read_kv_heads(*said, "num_key_value_heads", model));
  return {};
}

/// Layers that share have a layer of their kind before them that does not.
Result<int64_t> read_shared_layers(const json::Object& config, const ModelConfig& model) {
  SUBBYTE_TRY(const auto shared, config.integer("num_kv_shared_layers", 0, model.num_layers));
  const int64_t own = model.num_layers - shared.value_or(0);
  const auto first_shared = model.windows.begin() + own;
  for (auto layer = first_shared; layer != model.windows.end(); ++layer) {
    if (std::find(model.windows.begin(), first_shared, *layer) != first_shared) continue;
    return config.error(
        "config.kv_shared_layers", "num_kv_shared_layers",
        fmt::format("so few layers that one before them {}, whose keys layer {} reads",
                    *layer > 0 ? "slides" : "is full", layer - model.windows.begin()));
  }
  return model.num_layers - own;
}

}  // namespace

Result<LayerHeads> read_layer_heads(const json::Object& config, const ModelConfig& model,
                                    int64_t head_dim) {
  LayerHeads heads;
  SUBBYTE_TRY(const auto are_keys, config.boolean("attention_k_eq_v"));
  heads.values_are_keys = are_keys.value_or(false);
  SUBBYTE_TRY(heads.shared_layers, read_shared_layers(config, model));
  SUBBYTE_TRY(const auto layers, config.object("per_layer_config"));
  if (layers) {
    SUBBYTE_CHECK(read_each(config, *layers, model, heads));
    return heads;
  }
  SUBBYTE_TRY(heads.full_head_dim, read_head_dim(config, "global_head_dim", head_dim));
  heads.full_kv_heads = model.num_kv_heads;
  if (heads.values_are_keys) {
    SUBBYTE_TRY(heads.full_kv_heads, read_kv_heads(config, "num_global_key_value_heads", model));
  }
  return heads;
}

int64_t source_of_keys(const ModelConfig& config, const LayerHeads& heads, int64_t layer) {
  const int64_t own = config.num_layers - heads.shared_layers;
  if (layer < own) return -1;
  int64_t source = own - 1;
  while (source >= 0 && config.windows[source] != config.windows[layer]) --source;
  return source;
}

StepRecorder::Attention layer_attention(const ModelConfig& config, const LayerHeads& heads,
                                        int64_t layer, StepRecorder& step) {
  StepRecorder::Attention attention = {.shape = attention_shape(config, layer),
                                       .keys_of = source_of_keys(config, heads, layer)};
  if (config.windows[layer] == 0) {
    attention.shape.head_dim = heads.full_head_dim;
    attention.shape.kv_heads = heads.full_kv_heads;
    attention.values_are_keys = heads.values_are_keys;
  }
  if (attention.keys_of >= 0) {
    for (const char* const name : {"k_proj", "v_proj", "k_norm"}) {
      step.leave(attention.prefix + name);
    }
  }
  return attention;
}

}  // namespace subbyte
