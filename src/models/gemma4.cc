// Gemma 4: transformers' Gemma4ForCausalLM. Most layers slide; those that are full have heads, keys
// and a rope of their own, and their values may be their keys. Queries, keys and values have norms,
// blocks have some before and after them, and a number scales what a layer gives. Small models add
// inputs to each layer, rows of a large second table, and their last layers read the keys and
// values of earlier ones. Larger models see, too: they have the text model inside.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/config_keys.h"
#include "models/model_family.h"
#include "models/rope_config.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr const char* kFullRope =
    R"({"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"})";
constexpr ModelType kModelTypes[] = {{.name = "gemma4_text",
                                      .architecture = "Gemma4ForCausalLM",
                                      .wrapper = "gemma4",
                                      .wrapper_ties = true,
                                      .defaults = {.intermediate_size = 9216,
                                                   .vocab = 262144,
                                                   .heads = 8,
                                                   .kv_heads = 4,
                                                   .head_dim = 256,
                                                   .max_positions = 131072,
                                                   .rope_theta = 1000000,
                                                   .rope_section = kFullRope,
                                                   .tie_word_embeddings = true,
                                                   .eos = 1,
                                                   .activation_key = "hidden_activation",
                                                   .gate = Gate::kGelu,
                                                   .sliding = SlidingRule::kAllBut,
                                                   .sliding_window = 512,
                                                   .full_every = 6,
                                                   .has_sliding_rope = true}}};
constexpr double kSlidingTheta = 10000;
constexpr int64_t kFullHeadDim = 512;
constexpr int64_t kInputSize = 256;

constexpr json::ScopedRule kKeys[] = {
    SUBBYTE_CONFIG_KEY("", "hidden_activation", kComputed, "",
                       "gelu_pytorch_tanh, which it is where it is absent"),
    SUBBYTE_CONFIG_KEY("gemma4_text", "intermediate_size", kComputed, "", "absent: 9216"),
    SUBBYTE_CONFIG_KEY("gemma4_text", "num_attention_heads", kComputed, "", "absent: 8"),
    SUBBYTE_CONFIG_KEY("gemma4_text", "vocab_size", kComputed, "", "absent: 262144"),
    SUBBYTE_CONFIG_KEY("gemma4_text", "sliding_window", kComputed, "", "absent: 512"),
    SUBBYTE_CONFIG_KEY("gemma4_text", "layer_types", kComputed, "",
                       "absent: each sixth layer is full; the last one always is"),
    SUBBYTE_CONFIG_KEY("gemma4_text", "final_logit_softcapping", kComputed, "", "absent: none"),
    SUBBYTE_CONFIG_KEY("gemma4_text", "global_head_dim", kComputed, "",
                       "head_dim of layers that are full; absent: 512"),
    SUBBYTE_CONFIG_KEY("gemma4_text", "num_global_key_value_heads", kComputed, "",
                       "of layers that are full, with attention_k_eq_v; absent: "
                       "num_key_value_heads"),
    SUBBYTE_CONFIG_KEY("gemma4_text", "per_layer_config", kComputed, "",
                       "both for each layer that is full, instead of these"),
    SUBBYTE_CONFIG_KEY("gemma4_text", "attention_k_eq_v", kComputed, "",
                       "values of layers that are full are their keys; absent: false"),
    SUBBYTE_CONFIG_KEY("gemma4_text", "num_kv_shared_layers", kComputed, "",
                       "the last ones, with the keys and values of others; absent: 0"),
    SUBBYTE_CONFIG_KEY("gemma4_text", "use_double_wide_mlp", kComputed, "",
                       "twice intermediate_size where keys are of another layer; absent: false"),
    SUBBYTE_CONFIG_KEY("gemma4_text", "hidden_size_per_layer_input", kComputed, "",
                       "absent: 256; 0: layers have no inputs of their own"),
    SUBBYTE_CONFIG_KEY("gemma4_text", "vocab_size_per_layer_input", kComputed, "",
                       "vocab_size, where layers have inputs; absent: 262144"),
    SUBBYTE_CONFIG_KEY("gemma4_text", "enable_moe_block", kRefused, "false", "experts"),
    SUBBYTE_CONFIG_KEY("gemma4_text", "num_experts", kIgnored, "", "of models with experts"),
    SUBBYTE_CONFIG_KEY("gemma4_text", "top_k_experts", kIgnored, "", "of models with experts"),
    SUBBYTE_CONFIG_KEY("gemma4_text", "moe_intermediate_size", kIgnored, "",
                       "of models with experts"),
    SUBBYTE_CONFIG_KEY("", "use_bidirectional_attention", kRefused, "\"vision\"", "later tokens"),
    SUBBYTE_CONFIG_KEY("gemma4", "text_config", kComputed, "", "the config of the text model"),
};

constexpr json::KeyRule kRopeKeys[] = {
    SUBBYTE_ROPE_KEY("partial_rotary_factor", kComputed, "", "of proportional; absent: 1"),
};

constexpr RopeKind kRopeKinds[] = {{"proportional", read_proportional_rope}};

struct Own {
  Rope sliding_rope;
  int64_t full_head_dim = 0;
  int64_t full_kv_heads = 0;
  bool values_are_keys = false;  // of layers that are full
  int64_t shared_layers = 0;     // the last ones
  bool is_double_wide = false;   // of these
  int64_t input_size = 0;        // of a layer; 0: it has none
  float logit_cap = 0;           // 0: none

  bool operator==(const Own&) const = default;
};

// ---- config.json

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
Status read_layer_heads(const json::Object& config, const json::Object& layers,
                        const ModelConfig& model, Own& own) {
  const auto entry = [&](int64_t layer) { return layers.find(std::to_string(layer)); };
  const json::Value* const last = entry(model.num_layers - 1);
  int64_t count = 0;
  for (int64_t i = 0; i < model.num_layers; ++i) {
    if (model.windows[i] > 0 || last == nullptr || entry(i) == nullptr) continue;
    if (*entry(i) != *last) continue;
    ++count;
  }
  const bool is_of_all = count == std::ranges::count(model.windows, 0);
  if (count != std::ssize(layers.members()) || (count > 0 && !is_of_all)) {
    return config.error("config.per_layer_config", "per_layer_config",
                        "the same object for each layer that is full");
  }
  SUBBYTE_TRY(const auto heads, layers.object(std::to_string(model.num_layers - 1)));
  own.full_head_dim = model.head_dim;
  own.full_kv_heads = model.num_kv_heads;
  if (!heads) return {};
  for (const auto& [key, value] : heads->members()) {
    if (key == "head_dim" || key == "num_key_value_heads") continue;
    return heads->error("config.not_computed", key, "nothing");
  }
  SUBBYTE_TRY(own.full_head_dim, read_head_dim(*heads, "head_dim", model.head_dim));
  SUBBYTE_TRY(own.full_kv_heads, read_kv_heads(*heads, "num_key_value_heads", model));
  return {};
}

Status read_full_heads(const json::Object& config, const ModelConfig& model, Own& own) {
  SUBBYTE_TRY(const auto layers, config.object("per_layer_config"));
  if (layers) return read_layer_heads(config, *layers, model, own);
  SUBBYTE_TRY(own.full_head_dim, read_head_dim(config, "global_head_dim", kFullHeadDim));
  own.full_kv_heads = model.num_kv_heads;
  if (!own.values_are_keys) return {};
  SUBBYTE_TRY(own.full_kv_heads, read_kv_heads(config, "num_global_key_value_heads", model));
  return {};
}

/// Layers that share have a layer of their kind before them that does not.
Status read_sharing(const json::Object& config, const ModelConfig& model, Own& own) {
  SUBBYTE_TRY(const auto shared, config.integer("num_kv_shared_layers", 0, model.num_layers));
  SUBBYTE_TRY(const auto is_wide, config.boolean("use_double_wide_mlp"));
  own.shared_layers = shared.value_or(0);
  own.is_double_wide = is_wide.value_or(false);
  const auto first_shared = model.windows.begin() + (model.num_layers - own.shared_layers);
  for (auto layer = first_shared; layer != model.windows.end(); ++layer) {
    if (std::find(model.windows.begin(), first_shared, *layer) != first_shared) continue;
    return config.error(
        "config.kv_shared_layers", "num_kv_shared_layers",
        fmt::format("so few layers that one before them {}, whose keys layer {} reads",
                    *layer > 0 ? "slides" : "is full", layer - model.windows.begin()));
  }
  return {};
}

Status read_inputs(const json::Object& config, const ModelConfig& model, Own& own) {
  SUBBYTE_TRY(const auto size, config.integer("hidden_size_per_layer_input", 0, kMaxWidth));
  own.input_size = size.value_or(kInputSize);
  if (own.input_size == 0) return {};
  SUBBYTE_TRY(const auto vocab, config.integer("vocab_size_per_layer_input", 1, kMaxVocabulary));
  if (vocab.value_or(type_of(model).defaults.vocab) == model.vocab_size) return {};
  return config.error(
      "config.vocab_size_per_layer_input", "vocab_size_per_layer_input",
      fmt::format("vocab_size ({}){}", model.vocab_size, vocab ? "" : "; absent, it is 262144"));
}

Status read_ropes(const json::Object& config, ModelConfig& model, Own& own) {
  ModelConfig sliding = model;
  sliding.rope = Rope(model.head_dim, kSlidingTheta);
  SUBBYTE_TRY(own.sliding_rope, read_sliding_rope(config, sliding, kSlidingTheta));
  ModelConfig full = model;
  full.head_dim = own.full_head_dim;
  SUBBYTE_CHECK(read_rope(config, full));
  model.rope = full.rope;
  return {};
}

Status read(const json::Object& config, ModelConfig& model) {
  Own own;
  model.windows.back() = 0;
  SUBBYTE_TRY(const auto are_keys, config.boolean("attention_k_eq_v"));
  own.values_are_keys = are_keys.value_or(false);
  SUBBYTE_CHECK(read_full_heads(config, model, own));
  SUBBYTE_CHECK(read_sharing(config, model, own));
  SUBBYTE_CHECK(read_inputs(config, model, own));
  SUBBYTE_CHECK(read_ropes(config, model, own));
  SUBBYTE_TRY(const auto cap, config.number("final_logit_softcapping", 1e-3, 1e6));
  own.logit_cap = static_cast<float>(cap.value_or(0));
  model.own = FamilyConfig(std::move(own));
  return {};
}

// ---- the step

/// Of all layers: the mean of a row of the second table and a product of the embedding that has
/// norms by layer, times the root of 2. [layers * input_size]
ValueId layer_inputs(const ModelConfig& config, StepRecorder& step, ValueId x) {
  const Own& own = config.own.as<Own>();
  const float half = std::sqrt(0.5f);
  const int64_t all = config.num_layers * own.input_size;
  ValueId rows = step.embed_far("embed_tokens_per_layer", all, half * step.root_of(own.input_size));
  const ValueId product = step.linear("per_layer_model_projection",
                                      step.add("per_layer_model_input", x, kNoValue), all, {});
  const ValueId normed = step.norm_runs("per_layer_projection_norm", product, own.input_size,
                                        static_cast<float>(config.hidden_size));
  return step.add("per_layer_inputs", rows, normed, half);
}

StepRecorder::Attention attention_of(const ModelConfig& config, int64_t layer) {
  const Own& own = config.own.as<Own>();
  const bool slides = config.windows[layer] > 0;
  StepRecorder::Attention attention = {.shape = attention_shape(config, layer),
                                       .has_bias = config.attention_bias,
                                       .has_output_bias = config.attention_bias,
                                       .norms = HeadsNorm::kEach,
                                       .norms_values = true};
  attention.shape.scale = 1;
  if (!slides) {
    attention.shape.head_dim = own.full_head_dim;
    attention.shape.kv_heads = own.full_kv_heads;
    attention.values_are_keys = own.values_are_keys;
  }
  const int64_t first_shared = config.num_layers - own.shared_layers;
  for (int64_t i = 0; i < first_shared && layer >= first_shared; ++i) {
    if (config.windows[i] == config.windows[layer]) attention.keys_of = i;
  }
  return attention;
}

/// What files have of layers that read the keys of others.
void leave_keys(StepRecorder& step) {
  for (const char* const name : {"k_proj", "v_proj", "k_norm"}) {
    step.leave(fmt::format("self_attn.{}", name));
  }
}

void record(const ModelConfig& config, StepRecorder& step) {
  const Own& own = config.own.as<Own>();
  const auto full_rope = step.rope();
  const auto sliding_rope = std::make_shared<const Rope>(own.sliding_rope);
  ValueId x = step.embed({.embedding_factor = step.root_of(config.hidden_size)});
  const ValueId inputs = own.input_size > 0 ? layer_inputs(config, step, x) : kNoValue;
  ValueId delta = kNoValue;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    step.begin_layer(i);
    StepRecorder::Attention attention = attention_of(config, i);
    attention.rope = config.windows[i] > 0 ? sliding_rope : full_rope;
    if (attention.keys_of >= 0) leave_keys(step);
    const int64_t wide = own.is_double_wide && attention.keys_of >= 0 ? 2 : 1;
    ValueId h = step.add_norm("input_layernorm", x, delta);
    delta = step.norm("post_attention_layernorm", step.attention(h, attention));
    h = step.add_norm("pre_feedforward_layernorm", x, delta);
    delta = step.gated_block(h, {.inner = wide * config.intermediate_size, .gate = Gate::kGelu});
    delta = step.norm("post_feedforward_layernorm", delta);
    if (own.input_size > 0) {
      h = step.add("per_layer_input", x, delta);
      h = step.linear("per_layer_input_gate", h, own.input_size, {});
      h = step.gate("per_layer_input_gated", h, inputs, i * own.input_size, Gate::kGelu);
      h = step.linear("per_layer_projection", h, config.hidden_size, {});
      delta = step.norm("post_per_layer_input_norm", h);
    }
    step.scale_next_sum("layer_scalar");
  }
  step.finish(x, delta, {.cap = own.logit_cap});
}

// ---- synth

// Sources: the config.json files of google/gemma-4-*; tiny, and where added tokens begin, are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    // arch, name: hidden, inner, layers, heads, KV heads, head size, window, vocabulary,
    //             first added token, positions, tied
    {"gemma4", "tiny", 256,  512,   6,  4,  2,  64,  8,    512,    480,    2048,   true},
    {"gemma4", "e2b",  1536, 6144,  35, 8,  1,  256, 512,  262144, 262000, 131072, true},
    {"gemma4", "e4b",  2560, 10240, 42, 8,  2,  256, 512,  262144, 262000, 131072, true},
    {"gemma4", "31b",  5376, 21504, 60, 32, 16, 256, 1024, 262144, 262000, 262144, true},
};
// clang-format on

/// What a shape has beside the sizes that all families have.
struct More {
  std::string_view name;
  int64_t full_every;
  int64_t full_head_dim;
  int64_t full_kv_heads;  // whose values are their keys; 0: as others
  int64_t shared_layers;
  bool is_double_wide;
  int64_t input_size;
};
constexpr More kMore[] = {{"tiny", 3, 128, 0, 2, true, 256},
                          {"e2b", 5, 512, 0, 20, true, 256},
                          {"e4b", 6, 512, 0, 18, false, 256},
                          {"31b", 6, 512, 4, 0, false, 0}};

json::Value config_of(const ModelShape& shape, int64_t layers) {
  const More& more = *std::ranges::find(kMore, shape.name, &More::name);
  json::Value config = usual_config(kModelTypes[0], shape, layers);
  config.erase("hidden_act");
  json::Value types = json::Value::array();
  for (int64_t i = 0; i < layers; ++i) {
    const bool is_full = (i + 1) % more.full_every == 0 || i + 1 == layers;
    types.push_back(is_full ? "full_attention" : "sliding_attention");
  }
  // Fewer layers than a model has may leave none whose keys others could read.
  const int64_t own = shape.layers - more.shared_layers;
  const bool shares = more.shared_layers > 0 && layers > own;
  config["attention_k_eq_v"] = more.full_kv_heads > 0;
  config["enable_moe_block"] = false;
  config["final_logit_softcapping"] = 30.0;
  config["global_head_dim"] = more.full_head_dim;
  config["hidden_activation"] = "gelu_pytorch_tanh";
  config["hidden_size_per_layer_input"] = more.input_size;
  config["layer_types"] = std::move(types);
  config["num_global_key_value_heads"] =
      more.full_kv_heads > 0 ? json::Value(more.full_kv_heads) : json::Value();
  config["num_kv_shared_layers"] = shares ? layers - own : 0;
  config["rope_parameters"] = {
      {"full_attention", json::parse(kFullRope, "rope_parameters").value()},
      {"sliding_attention", {{"rope_theta", kSlidingTheta}, {"rope_type", "default"}}}};
  config["sliding_window"] = shape.window;
  config["use_double_wide_mlp"] = more.is_double_wide;
  config["vocab_size_per_layer_input"] = shape.vocabulary;
  return config;
}

}  // namespace

extern const ModelFamily gemma4_family;
const ModelFamily gemma4_family = {.model_types = kModelTypes,
                                   .keys = kKeys,
                                   .rope_keys = kRopeKeys,
                                   .rope_kinds = kRopeKinds,
                                   .read = read,
                                   .record = record,
                                   .shapes = kShapes,
                                   .config_of = config_of};

}  // namespace subbyte
