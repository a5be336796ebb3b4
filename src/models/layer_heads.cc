#include "models/layer_heads.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "json/strict_json.h"
#include "models/gguf_config.h"

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
  SUBBYTE_TRY(const auto are_wide, config.boolean("use_double_wide_mlp"));
  heads.are_double_wide = are_wide.value_or(false);
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

namespace {

/// Inner sizes are twice as much in layers that read the keys of others, or all the same.
Status add_inner_sizes(const GgufFile& file, uint64_t layers, json::Value& config) {
  const auto shared = config["num_kv_shared_layers"].get<uint64_t>();
  SUBBYTE_TRY(const auto inner, gguf_integers(file, "feed_forward_length", layers));
  for (uint64_t i = 0; i < layers; ++i) {
    const bool fits = !inner.empty() &&
                      (inner[i] == inner[0] || (i + shared >= layers && inner[i] == 2 * inner[0]));
    if (fits) continue;
    return file.error("gguf.value", gguf_key_in(file, "feed_forward_length"),
                      "one number, or twice that of layers that read the keys of others");
  }
  config["intermediate_size"] = static_cast<uint64_t>(inner[0]);
  config["use_double_wide_mlp"] = inner[0] != inner[layers - 1];
  return {};
}

}  // namespace

Status add_layer_heads(const GgufModel& model, json::Value& config) {
  const GgufFile& file = model.keys();
  const auto layers = config["num_hidden_layers"].get<uint64_t>();
  const auto shared = config["num_kv_shared_layers"].get<uint64_t>();
  SUBBYTE_TRY(const auto size, gguf_integer(file, "attention.key_length"));
  SUBBYTE_TRY(const auto heads, gguf_integers(file, "attention.head_count_kv", layers));
  if (!size || heads.empty() || !config.contains("layer_types")) {
    return file.error("gguf.value", gguf_key_in(file, "attention.key_length"),
                      "a number, beside attention.head_count_kv and the layers that slide");
  }
  bool are_keys = false;
  json::Value full = json::Value::object();
  for (uint64_t i = 0; i < layers; ++i) {
    const auto count = static_cast<uint64_t>(heads[i]);
    if (config["layer_types"][i] != "full_attention" && i + 1 < layers) {
      config["num_key_value_heads"] = count;
      continue;
    }
    full[std::to_string(i)] = {{"head_dim", static_cast<uint64_t>(*size)},
                               {"num_key_value_heads", count}};
    const bool has_values = model.find(fmt::format("blk.{}.attn_v.weight", i)) != nullptr;
    are_keys = are_keys || (!has_values && i + shared < layers);
  }
  config["per_layer_config"] = std::move(full);
  config["attention_k_eq_v"] = are_keys;
  return add_inner_sizes(file, layers, config);
}

int64_t source_of_keys(const ModelConfig& config, const LayerHeads& heads, int64_t layer) {
  const int64_t own = config.num_layers - heads.shared_layers;
  if (layer < own) return -1;
  int64_t source = own - 1;
  while (source >= 0 && config.windows[source] != config.windows[layer]) --source;
  return source;
}

int64_t inner_size_of(const ModelConfig& config, const LayerHeads& heads, int64_t layer) {
  const bool is_shared = layer >= config.num_layers - heads.shared_layers;
  return (heads.are_double_wide && is_shared ? 2 : 1) * config.intermediate_size;
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
