#include "models/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "base/model_file.h"
#include "base/quote.h"
#include "json/strict_json.h"
#include "models/model_family.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxVocabulary = int64_t{1} << 24;
constexpr double kMinTheta = 1.0 + 1e-9;
constexpr double kMaxTheta = 1e15;
constexpr int64_t kDefaultFullLayers = 28;  // max_window_layers of transformers
constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();

Status read_sizes(const json::Object& config, ModelConfig& model) {
  SUBBYTE_TRY(model.hidden_size, config.required_integer("hidden_size", 1, kMaxWidth));
  SUBBYTE_TRY(model.intermediate_size, config.required_integer("intermediate_size", 1, kMaxWidth));
  SUBBYTE_TRY(model.num_layers, config.required_integer("num_hidden_layers", 1, kMaxLayers));
  SUBBYTE_TRY(model.num_heads, config.required_integer("num_attention_heads", 1, kMaxHeads));
  SUBBYTE_TRY(model.vocab_size, config.required_integer("vocab_size", 1, kMaxVocabulary));
  SUBBYTE_TRY(const auto kv_heads, config.integer("num_key_value_heads", 1, kMaxHeads));
  SUBBYTE_TRY(const auto head_dim, config.integer("head_dim", 2, kMaxWidth));
  SUBBYTE_TRY(const auto positions, config.integer("max_position_embeddings", 1, kMaxPositions));
  model.num_kv_heads = kv_heads.value_or(model.num_heads);
  model.max_positions = positions.value_or(2048);
  if (model.num_heads % model.num_kv_heads != 0) {
    return config.error("config.heads", "num_key_value_heads",
                        fmt::format("a divisor of num_attention_heads ({})", model.num_heads));
  }
  if (!head_dim && model.hidden_size % model.num_heads != 0) {
    return config.error(
        "config.heads", "num_attention_heads",
        fmt::format("a divisor of hidden_size ({}), as head_dim is not given", model.hidden_size));
  }
  model.head_dim = head_dim.value_or(model.hidden_size / model.num_heads);
  if (model.head_dim % 2 != 0) {
    return config.error("config.heads", "head_dim", "an even number (rotary embedding)");
  }
  return {};
}

Status read_yarn(const json::Object& rope, ModelConfig& model) {
  RopeScaling& scaling = model.rope_scaling;
  SUBBYTE_TRY(const auto original,
              rope.number("original_max_position_embeddings", 1, kMaxPositions));
  SUBBYTE_TRY(const auto fast, rope.number("beta_fast", 1e-6, 1e6));
  SUBBYTE_TRY(const auto slow, rope.number("beta_slow", 1e-6, 1e6));
  SUBBYTE_TRY(const auto truncate, rope.boolean("truncate"));
  SUBBYTE_TRY(const auto attention, rope.number("attention_factor", 1e-6, 1e6));
  for (const char* key : {"mscale", "mscale_all_dim"}) {
    if (rope.has(key)) return rope.error("config.rope", key, "nothing: this is not supported");
  }
  scaling.original_max_positions = original.value_or(static_cast<double>(model.max_positions));
  scaling.beta_fast = fast.value_or(32);
  scaling.beta_slow = slow.value_or(1);
  scaling.truncate = truncate.value_or(true);
  scaling.attention_factor = attention.value_or(0);
  return {};
}

/// Of a section without a type: rope_parameters may hold rope_theta alone. Whoever wrote anything
/// else meant positions to be scaled, and did not say how.
Status require_nothing_to_scale(const json::Object& rope) {
  for (const auto& [key, value] : rope.members()) {
    if (key == "rope_theta" || key == "partial_rotary_factor" || value.is_null()) continue;
    return rope.error("json.missing", "rope_type", "a string, as " + quote(key) + " is there");
  }
  return {};
}

Status read_scaling(const json::Object& rope, ModelConfig& model) {
  const char* key = rope.has("rope_type") ? "rope_type" : "type";
  SUBBYTE_TRY(const auto partial, rope.number("partial_rotary_factor", 0, 1));
  if (partial.value_or(1) != 1) {
    return rope.error("config.rope", "partial_rotary_factor", "1 (every part of a head turns)");
  }
  SUBBYTE_TRY(const auto type, rope.string(key));
  if (!type) return require_nothing_to_scale(rope);
  if (*type == "default") return {};
  SUBBYTE_TRY(const auto factor, rope.number("factor", 1, 1e6));
  if (!factor) return rope.error("json.missing", "factor", "a number");
  model.rope_scaling.factor = *factor;
  if (*type == "linear") {
    model.rope_scaling.type = RopeScaling::Type::kLinear;
    return {};
  }
  if (*type == "yarn") {
    model.rope_scaling.type = RopeScaling::Type::kYarn;
    return read_yarn(rope, model);
  }
  return rope.error("config.rope", key, "\"default\", \"linear\" or \"yarn\"");
}

/// Newer: rope_parameters {rope_theta, rope_type, ...}. Older: rope_theta beside rope_scaling. Both
/// may be there when they agree.
Status read_rope(const json::Object& config, ModelConfig& model) {
  SUBBYTE_TRY(const auto parameters, config.object("rope_parameters"));
  SUBBYTE_TRY(const auto scaling, config.object("rope_scaling"));
  SUBBYTE_TRY(const auto theta, config.number("rope_theta", kMinTheta, kMaxTheta));
  model.rope_theta = theta.value_or(10000);
  if (scaling) SUBBYTE_CHECK(read_scaling(*scaling, model));
  if (!parameters) return {};

  SUBBYTE_TRY(const auto newer_theta, parameters->number("rope_theta", kMinTheta, kMaxTheta));
  if (theta && newer_theta && *theta != *newer_theta) {
    return config.error("config.rope", "rope_theta",
                        fmt::format("the {} of rope_parameters", *newer_theta));
  }
  model.rope_theta = newer_theta.value_or(model.rope_theta);
  const RopeScaling older = std::exchange(model.rope_scaling, RopeScaling{});
  SUBBYTE_CHECK(read_scaling(*parameters, model));
  if (scaling && older != model.rope_scaling) {
    return config.error("config.rope", "rope_scaling", "the same as rope_parameters");
  }
  return {};
}

/// Which layers slide without layer_types: those from max_window_layers on. transformers before
/// 4.53, which wrote no layer_types, masked all layers alike with its own attention (FlashAttention
/// had the other rule), and that is how its models were run.
Result<int64_t> first_sliding_layer(const json::Object& config) {
  SUBBYTE_TRY(const auto full_layers, config.integer("max_window_layers", 0, kMaxTokens));
  SUBBYTE_TRY(const auto version, config.string("transformers_version"));
  int major = 0, minor = 0;
  const bool old = version && std::sscanf(version->c_str(), "%d.%d", &major, &minor) == 2 &&
                   std::pair(major, minor) < std::pair(4, 53);
  return old ? int64_t{0} : full_layers.value_or(kDefaultFullLayers);
}

/// layer_types when it is there, else the rule of the family.
Status read_windows(const json::Object& config, const ModelFamily& family, ModelConfig& model) {
  SUBBYTE_TRY(const auto window, config.integer("sliding_window", 1, kMaxPositions));
  SUBBYTE_TRY(const auto uses_window, config.boolean("use_sliding_window"));
  SUBBYTE_TRY(const int64_t first_sliding, first_sliding_layer(config));
  model.windows.assign(model.num_layers, 0);
  const json::Value* types = config.find("layer_types");
  if (types != nullptr && !types->is_null()) {
    if (!types->is_array() || types->size() != static_cast<std::size_t>(model.num_layers)) {
      return config.error("config.layer_types", "layer_types",
                          fmt::format("an array of {} strings", model.num_layers));
    }
    for (int64_t i = 0; i < model.num_layers; ++i) {
      const json::Value& type = (*types)[i];
      if (type == "sliding_attention" && window) {
        model.windows[i] = *window;
      } else if (type != "full_attention") {
        return config.error("config.layer_types", "layer_types",
                            "\"full_attention\", or \"sliding_attention\" beside sliding_window");
      }
    }
  } else if (family.alternating_window > 0) {
    for (int64_t i = 0; i < model.num_layers; i += 2) {
      model.windows[i] = window.value_or(family.alternating_window);
    }
  } else if (uses_window.value_or(false) && window) {
    for (int64_t i = first_sliding; i < model.num_layers; ++i) model.windows[i] = *window;
  }
  return {};
}

/// eos_token_id is a number, a list of numbers, or null.
Status read_eos(const json::Object& config, ModelConfig& model) {
  const json::Value* value = config.find("eos_token_id");
  if (value == nullptr || value->is_null()) return {};
  const json::Value list = value->is_array() ? *value : json::Value::array({*value});
  model.eos_tokens.clear();
  for (const json::Value& id : list) {
    const bool valid =
        id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(model.vocab_size);
    if (!valid) {
      return config.error("config.eos_token_id", "eos_token_id",
                          fmt::format("token ids below vocab_size ({})", model.vocab_size));
    }
    model.eos_tokens.push_back(id.get<int32_t>());
  }
  return {};
}

Status require_activation(const json::Object& config) {
  SUBBYTE_TRY(const auto activation, config.string("hidden_act"));
  if (activation.value_or("silu") == "silu") return {};
  return config.error("config.hidden_act", "hidden_act", "\"silu\"");
}

}  // namespace

Result<ModelConfig> parse_model_config(const json::Object& config) {
  ModelConfig model;
  SUBBYTE_TRY(model.model_type, config.required_string("model_type"));
  const ModelFamily* family = find_family(model.model_type);
  if (family == nullptr) {
    return config.error("config.model_type", "model_type",
                        fmt::format("{} (what this version runs)", family_names()));
  }
  const bool is_container =
      std::ranges::find(family->containers, model.model_type) != family->containers.end();
  if (is_container) model.model_type = family->model_types.front().name;
  SUBBYTE_CHECK(require_activation(config));
  SUBBYTE_CHECK(read_sizes(config, model));
  SUBBYTE_CHECK(read_rope(config, model));
  SUBBYTE_CHECK(read_windows(config, *family, model));
  SUBBYTE_TRY(const auto eps, config.number("rms_norm_eps", 1e-12, 1.0));
  SUBBYTE_TRY(const auto tied, config.boolean("tie_word_embeddings"));
  model.rms_norm_eps = static_cast<float>(eps.value_or(family->default_eps));
  model.tie_word_embeddings = tied.value_or(false);
  model.expert_layers.assign(model.num_layers, false);
  if (family->read != nullptr) SUBBYTE_CHECK(family->read(config, model));
  SUBBYTE_CHECK(read_eos(config, model));
  return model;
}

Result<ModelConfig> read_model_config(const fs::path& model) {
  SUBBYTE_TRY(const ConfigFile file, read_config_file(model));
  SUBBYTE_TRY(const json::Object object, file.object());
  SUBBYTE_TRY(ModelConfig config, parse_model_config(object));
  const fs::path generation = model_directory(model) / "generation_config.json";
  if (is_there(generation)) {
    SUBBYTE_TRY(const json::Value defaults, json::parse_file(generation.string(), kMaxConfigBytes));
    SUBBYTE_TRY(const json::Object section, json::Object::of(defaults, generation.string()));
    SUBBYTE_CHECK(read_eos(section, config));
  }
  return config;
}

}  // namespace subbyte
