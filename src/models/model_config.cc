#include "models/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <utility>

#include "base/quote.h"
#include "json/key_rules.h"
#include "models/config_keys.h"
#include "models/gguf_model.h"
#include "models/layer_lists.h"
#include "models/model_family.h"
#include "models/rope_config.h"

namespace subbyte {
namespace {

constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();

/// A size that must be there, unless there is a default.
Result<int64_t> size_of(const json::Object& config, const char* key, int64_t most, int64_t absent) {
  if (absent == 0) return config.required_integer(key, 1, most);
  SUBBYTE_TRY(const auto size, config.integer(key, 1, most));
  return size.value_or(absent);
}

/// Heads, their sizes and those of their groups; what is absent is what the family's class says.
Status read_heads(const json::Object& config, const ConfigDefaults& defaults, ModelConfig& model) {
  SUBBYTE_TRY(model.num_heads, size_of(config, "num_attention_heads", kMaxHeads, defaults.heads));
  SUBBYTE_TRY(const auto kv_heads, config.integer("num_key_value_heads", 1, kMaxHeads));
  SUBBYTE_TRY(const auto head_dim, config.integer(defaults.head_dim_key, 2, kMaxWidth));
  const auto is_null = [&](const char* key) {
    return config.find(key) != nullptr && !config.has(key);
  };
  const bool one_each = is_null("num_key_value_heads") || defaults.kv_heads == 0;
  model.num_kv_heads = kv_heads.value_or(one_each ? model.num_heads : defaults.kv_heads);
  if (model.num_heads % model.num_kv_heads != 0) {
    return config.error(
        "config.heads", "num_key_value_heads",
        fmt::format("a divisor of num_attention_heads ({}){}", model.num_heads,
                    kv_heads ? "" : fmt::format("; absent, it is {}", model.num_kv_heads)));
  }
  const bool divides = !head_dim && (defaults.head_dim == 0 || is_null(defaults.head_dim_key));
  if (divides && model.hidden_size % model.num_heads != 0) {
    return config.error(
        "config.heads", "num_attention_heads",
        fmt::format("a divisor of hidden_size ({}), as head_dim is not given", model.hidden_size));
  }
  model.head_dim =
      divides ? model.hidden_size / model.num_heads : head_dim.value_or(defaults.head_dim);
  if (model.head_dim % 2 != 0) {
    return config.error("config.heads", defaults.head_dim_key, "an even number (rotary embedding)");
  }
  return {};
}

Status read_sizes(const json::Object& config, const ConfigDefaults& defaults, ModelConfig& model) {
  SUBBYTE_TRY(model.hidden_size, config.required_integer("hidden_size", 1, kMaxWidth));
  if (defaults.intermediate_size < 0) {
    SUBBYTE_TRY(model.intermediate_size,
                config.required_integer("intermediate_size", 1, kMaxWidth));
  } else if (defaults.intermediate_size > 0) {
    SUBBYTE_TRY(const auto size, config.integer("intermediate_size", 1, kMaxWidth));
    model.intermediate_size = size.value_or(defaults.intermediate_size);
  }
  if (defaults.count_layers != nullptr && !config.has("num_hidden_layers")) {
    SUBBYTE_TRY(model.num_layers, defaults.count_layers(config));
  }
  if (model.num_layers < 1 || model.num_layers > kMaxLayers) {
    SUBBYTE_TRY(model.num_layers, config.required_integer("num_hidden_layers", 1, kMaxLayers));
  }
  SUBBYTE_TRY(model.vocab_size, size_of(config, "vocab_size", kMaxVocabulary, defaults.vocab));
  SUBBYTE_TRY(const auto positions, config.integer("max_position_embeddings", 1, kMaxPositions));
  model.max_positions = positions.value_or(defaults.max_positions);
  return read_heads(config, defaults, model);
}

/// Which layers slide without layer_types: those from max_window_layers on. transformers before
/// 4.53, which wrote no layer_types, masked all layers alike with its own attention (FlashAttention
/// had the other rule), and that is how its models were run.
Result<int64_t> first_sliding_layer(const json::Object& config, const ConfigDefaults& defaults) {
  if (defaults.sliding != SlidingRule::kFromLayer) return int64_t{0};
  SUBBYTE_TRY(const auto full_layers, config.integer("max_window_layers", 0, kMaxTokens));
  SUBBYTE_TRY(const auto version, config.string("transformers_version"));
  int major = 0, minor = 0;
  const bool old = version && std::sscanf(version->c_str(), "%d.%d", &major, &minor) == 2 &&
                   std::pair(major, minor) < std::pair(4, 53);
  return old ? int64_t{0} : full_layers.value_or(defaults.first_sliding_layer);
}

/// The window of layers that slide; 0: there is none. null says so.
Result<int64_t> read_window(const json::Object& config, const ConfigDefaults& defaults) {
  if (defaults.sliding == SlidingRule::kNone || defaults.sliding == SlidingRule::kOfFamily) {
    return int64_t{0};
  }
  SUBBYTE_TRY(const auto uses_window, config.boolean("use_sliding_window"));
  const bool always =
      defaults.sliding == SlidingRule::kAllBut || defaults.sliding == SlidingRule::kWithWindow;
  // transformers writes 0 where Qwen's models do not use it.
  const bool is_unused =
      defaults.sliding == SlidingRule::kFromLayer && !uses_window.value_or(false);
  const int64_t least = is_unused ? 0 : 1;
  SUBBYTE_TRY(const auto window, config.integer("sliding_window", least, kMaxPositions));
  if (!always && !uses_window.value_or(false)) return int64_t{0};
  const bool is_null = config.find("sliding_window") != nullptr && !window;
  return is_null ? int64_t{0} : window.value_or(defaults.sliding_window);
}

/// Windows of layers as layer_types says them.
Result<std::vector<int64_t>> read_layer_types(const json::Object& config, int64_t num_layers,
                                              int64_t window) {
  constexpr std::string_view kKinds[] = {"full_attention", "sliding_attention", "attention"};
  SUBBYTE_TRY(const auto kinds, read_layer_kinds(config, "layer_types", kKinds, num_layers));
  std::vector<int64_t> windows(static_cast<std::size_t>(num_layers), 0);
  for (std::size_t i = 0; i < windows.size(); ++i) {
    if ((*kinds)[i] == 1) windows[i] = window;
    if ((*kinds)[i] != 1 || window > 0) continue;
    return config.error("config.layer_types", "layer_types",
                        "\"full_attention\", or \"sliding_attention\" beside a window");
  }
  return windows;
}

/// One of so many layers is full; 0: none has to be.
Result<int64_t> read_full_every(const json::Object& config, const ConfigDefaults& defaults) {
  if (defaults.sliding != SlidingRule::kAllBut) return int64_t{0};
  if (defaults.full_every_key == nullptr) return defaults.full_every;
  SUBBYTE_TRY(const auto every, config.integer(defaults.full_every_key, 1, kMaxLayers));
  return every.value_or(defaults.full_every);
}

/// layer_types when it is there, else the rule of the family.
Status read_windows(const json::Object& config, const ConfigDefaults& defaults,
                    ModelConfig& model) {
  SUBBYTE_TRY(const int64_t window, read_window(config, defaults));
  SUBBYTE_TRY(const int64_t first_sliding, first_sliding_layer(config, defaults));
  SUBBYTE_TRY(const int64_t full_every, read_full_every(config, defaults));
  model.windows.assign(model.num_layers, 0);
  for (int64_t i = first_sliding; i < model.num_layers; ++i) {
    if (full_every == 0 || (i + 1) % full_every != 0) model.windows[i] = window;
  }
  if (!config.has("layer_types") || defaults.sliding == SlidingRule::kOfFamily) return {};
  SUBBYTE_TRY(auto windows, read_layer_types(config, model.num_layers, window));
  const bool are_alike =
      defaults.sliding == SlidingRule::kAll || defaults.sliding == SlidingRule::kWithWindow;
  if (are_alike && windows != model.windows) {
    return config.error("config.layer_types", "layer_types",
                        defaults.sliding == SlidingRule::kAll
                            ? "what use_sliding_window says of all layers"
                            : "what sliding_window says of all layers");
  }
  model.windows = std::move(windows);
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

/// The names of an activation, the usual one first.
std::vector<std::string_view> names_of(Gate gate) {
  if (gate == Gate::kSilu) return {"silu", "swish"};
  if (gate == Gate::kSquaredRelu) return {"relu2"};
  return {"gelu_pytorch_tanh"};
}

Status require_activation(const json::Object& config, const ConfigDefaults& defaults) {
  const auto names = names_of(defaults.gate);
  SUBBYTE_TRY(const auto found, config.string(defaults.activation_key));
  if (!found || std::ranges::find(names, *found) != names.end()) return {};
  return config.error("config.hidden_act", defaults.activation_key, quote(names.front()));
}

/// The masks of the reference, and vLLM, ask whether it is true, and null is not. transformers does
/// not show it only where SDPA masks what comes later of its own.
Status require_causal(const json::Object& config) {
  const json::Value* const causal = config.find("is_causal");
  if (causal == nullptr || *causal == true) return {};
  return config.error("config.not_computed", "is_causal", "true, or nothing at all");
}

/// What the reference computes in, where config.json says it.
void read_type(const json::Object& config, ModelConfig& model) {
  const char* const key = config.has("dtype") ? "dtype" : "torch_dtype";
  if (config.has(key)) model.is_in_f32 = *config.find(key) == "float32";
}

Result<ModelConfig> parse_text_config(const json::Object& config, std::string model_type) {
  ModelConfig model;
  model.model_type = std::move(model_type);
  const ModelFamily* family = find_family(model.model_type);
  if (family == nullptr) {
    return config.error("config.model_type", "model_type",
                        "a model that this version runs (docs/model_files.md lists them)");
  }
  const bool is_container =
      std::ranges::find(family->containers, model.model_type) != family->containers.end();
  if (is_container) model.model_type = family->model_types.front().name;
  const ConfigDefaults& defaults = type_of(model).defaults;
  const std::vector<json::KeyRule> rules = config_rules(model.model_type);
  SUBBYTE_CHECK(json::check_keys(config, rules, "config.not_computed"));
  SUBBYTE_CHECK(require_causal(config));
  SUBBYTE_CHECK(require_activation(config, defaults));
  SUBBYTE_CHECK(read_sizes(config, defaults, model));
  SUBBYTE_CHECK(read_rope(config, model));
  SUBBYTE_CHECK(read_windows(config, defaults, model));
  SUBBYTE_TRY(const auto eps, config.number("rms_norm_eps", 1e-12, 1.0));
  SUBBYTE_TRY(const auto tied, config.boolean("tie_word_embeddings"));
  model.attention_bias = defaults.attention_bias;
  if (json::find_rule(rules, "attention_bias")->use == json::KeyUse::kComputed) {
    SUBBYTE_TRY(const auto biases, config.boolean("attention_bias"));
    model.attention_bias = biases.value_or(defaults.attention_bias);
  }
  model.rms_norm_eps = static_cast<float>(eps.value_or(defaults.rms_norm_eps));
  model.tie_word_embeddings = tied.value_or(defaults.tie_word_embeddings);
  read_type(config, model);
  SUBBYTE_CHECK(family->read == nullptr ? read_keys(config, family->keys, nullptr, model)
                                        : family->read(config, model));
  const bool says_eos = config.find("eos_token_id") != nullptr;
  if (!says_eos && defaults.eos >= 0 && defaults.eos < model.vocab_size) {
    model.eos_tokens = {defaults.eos};
  }
  SUBBYTE_CHECK(read_eos(config, model));
  return model;
}

/// The types that `wrapper` may have inside, the usual one first; none: it is no wrapper.
std::vector<const ModelType*> wrapped_types(std::string_view wrapper) {
  std::vector<const ModelType*> types;
  for (const ModelFamily* const family : all_families()) {
    for (const ModelType& type : family->model_types) {
      if (!wrapper.empty() && type.wrapper == wrapper) types.push_back(&type);
    }
  }
  return types;
}

/// The one of them that `text` names, or the usual one.
Result<const ModelType*> find_wrapped(std::span<const ModelType* const> types,
                                      const json::Object& text) {
  SUBBYTE_TRY(const auto inside, text.string("model_type"));
  if (!inside || *inside == types.front()->wrapper) return types.front();
  const auto others = find_family(types.front()->name)->containers;  // names of the same type
  if (std::ranges::find(others, *inside) != others.end()) return types.front();
  std::string names;
  for (const ModelType* const type : types) {
    if (*inside == type->name) return type;
    names += (names.empty() ? "" : " or ") + quote(type->name);
  }
  return text.error("config.model_type", "model_type", names);
}

/// What stands outside counts before what the text part says: it is the model's own.
Result<ModelConfig> parse_wrapper(const json::Object& config, const ModelType& type,
                                  const json::Object& text) {
  SUBBYTE_CHECK(json::check_keys(config, config_rules(type.wrapper), "config.not_computed"));
  SUBBYTE_CHECK(require_causal(config));
  SUBBYTE_TRY(ModelConfig model, parse_text_config(text, std::string(type.name)));
  SUBBYTE_TRY(const auto said, config.boolean("tie_word_embeddings"));
  const bool tied = said.value_or(type.wrapper_ties);
  model.contradicts_ties = tied != model.tie_word_embeddings;
  model.tie_word_embeddings = model.tie_word_embeddings || tied;
  read_type(config, model);
  SUBBYTE_CHECK(read_eos(config, model));
  return model;
}

}  // namespace

Result<std::optional<json::Object>> text_part_of(const json::Object& config) {
  SUBBYTE_TRY(const auto model_type, config.string("model_type"));
  const auto types = wrapped_types(model_type.value_or(""));
  if (types.empty()) return std::optional<json::Object>();
  SUBBYTE_TRY(auto text, config.object(kTextConfig));
  if (text || types.front()->may_be_flat) return text;
  return config.error("json.missing", kTextConfig, "an object");
}

Result<ModelConfig> parse_model_config(const json::Object& config) {
  SUBBYTE_TRY(const std::string model_type, config.required_string("model_type"));
  SUBBYTE_TRY(const auto text, text_part_of(config));
  const auto types = wrapped_types(model_type);
  if (!text) {
    return parse_text_config(config, types.empty() ? model_type : std::string(types.front()->name));
  }
  SUBBYTE_TRY(const ModelType* const wrapped, find_wrapped(types, *text));
  return parse_wrapper(config, *wrapped, *text);
}

Result<ModelConfig> read_model_config(const ModelFiles& model) {
  SUBBYTE_CHECK(check_model_files(model.path()));
  return model_config_of(model);
}

Result<ModelConfig> model_config_of(const ModelFiles& model) {
  fill_config(model);
  SUBBYTE_TRY(const SideFile file, model.config());
  SUBBYTE_TRY(const json::Object object, file.object());
  SUBBYTE_TRY(ModelConfig config, parse_model_config(object));
  if (model.has(kGenerationFile)) {
    SUBBYTE_TRY(const SideFile generation, model.read(kGenerationFile));
    SUBBYTE_TRY(const json::Object section, generation.object());
    SUBBYTE_CHECK(read_eos(section, config));
  }
  return config;
}

}  // namespace subbyte
