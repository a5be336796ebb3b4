// Nemotron 3 and 4 (Minitron): transformers' NemotronForCausalLM. LayerNorms with factors 1 + w
// and biases, a block without a gate, half of a head turns.

#include "models/config_keys.h"
#include "models/model_family.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr ModelType kModelTypes[] = {{.name = "nemotron",
                                      .architecture = "NemotronForCausalLM",
                                      .defaults = {.max_positions = 4096,
                                                   .rms_norm_eps = 1e-5,
                                                   .rotary_fraction = 0.5,
                                                   .eos = 3,
                                                   .gate = Gate::kSquaredRelu}}};

constexpr json::ScopedRule kKeys[] = {
    SUBBYTE_CONFIG_KEY("", "hidden_act", kComputed, "", "relu2, which it is where it is absent"),
    SUBBYTE_CONFIG_KEY("", "norm_eps", kComputed, "", "absent: 1e-5"),
    SUBBYTE_CONFIG_KEY("", "rms_norm_eps", kIgnored, "", "norm_eps says it"),
    SUBBYTE_CONFIG_KEY("", "mlp_bias", kComputed, "", "absent: false"),
    SUBBYTE_CONFIG_KEY("", "partial_rotary_factor", kComputed, "",
                       "absent: 0.5; that of rope_parameters counts before it"),
};

constexpr json::KeyRule kRopeKeys[] = {
    SUBBYTE_ROPE_KEY("partial_rotary_factor", kComputed, "", "absent: that beside the section"),
};

constexpr GgufKeyRule kGgufKeys[] = {
    {"attention.layer_norm_epsilon", "norm_eps"},
    {.name = "attention.layer_norm_rms_epsilon", .key = "rms_norm_eps", .by_family = true},
};
constexpr GgufTensorRule kGgufTensors[] = {
    {"output_norm", "model.norm", GgufChange::kPlusOne},
    {"attn_norm", "input_layernorm", GgufChange::kPlusOne},
    {"ffn_norm", "post_attention_layernorm", GgufChange::kPlusOne},
};

Status complete_gguf(const GgufModel& model, json::Value& config) {
  config["attention_bias"] = model.find("blk.0.attn_output.bias") != nullptr;
  config["mlp_bias"] = model.find("blk.0.ffn_down.bias") != nullptr;
  return {};
}

void add_gguf_keys(const ModelConfig& model, GgufKeys& keys);

constexpr GgufArchitecture kGguf[] = {{.name = "nemotron",
                                       .model_type = "nemotron",
                                       .keys = kGgufKeys,
                                       .tensors = kGgufTensors,
                                       .complete = complete_gguf,
                                       .add_keys = add_gguf_keys}};

void add_gguf_keys(const ModelConfig& model, GgufKeys& keys) {
  keys.number(kGguf[0].key("attention.layer_norm_epsilon"), model.rms_norm_eps);
}

struct Own {
  bool mlp_bias = false;

  bool operator==(const Own&) const = default;
};

Status read(const json::Object& config, ModelConfig& model) {
  SUBBYTE_TRY(const auto eps, config.number("norm_eps", 1e-12, 1.0));
  model.rms_norm_eps = static_cast<float>(eps.value_or(1e-5));
  SUBBYTE_TRY(const auto biases, config.boolean("mlp_bias"));
  model.own = FamilyConfig(Own{biases.value_or(false)});
  return {};
}

void record(const ModelConfig& config, StepRecorder& step) {
  record_usual_step(
      config, step,
      {.stream = {.norm_offset = 1, .is_centred = true, .has_norm_bias = true},
       .attention = {.has_bias = config.attention_bias, .has_output_bias = config.attention_bias},
       .gated = {.gate = Gate::kSquaredRelu, .has_bias = config.own.as<Own>().mlp_bias}});
}

// Sources: the config.json files of nvidia/Minitron-4B-Base and nemotron-3-8b-base-4k-hf; tiny, and
// where added tokens begin, are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    // arch, name: hidden, inner, layers, heads, KV heads, head size, window, vocabulary,
    //             first added token, positions, tied
    {"nemotron", "tiny", 256,  512,   2,  4,  2,  64,  0, 512,    480,    2048, false},
    {"nemotron", "4b",   3072, 9216,  32, 24, 8,  128, 0, 256000, 255000, 4096, false},
    {"nemotron", "8b",   4096, 16384, 32, 32, 32, 128, 0, 256000, 255000, 4096, false},
};
// clang-format on

json::Value config_of(const ModelShape& shape, int64_t layers) {
  json::Value config = usual_config(kModelTypes[0], shape, layers);
  config.erase("rms_norm_eps");
  config["hidden_act"] = "relu2";
  config["mlp_bias"] = false;
  config["norm_eps"] = 1e-5;
  config["partial_rotary_factor"] = 0.5;
  config["rope_theta"] = 10000.0;
  return config;
}

}  // namespace

extern const ModelFamily nemotron_family;
const ModelFamily nemotron_family = {.model_types = kModelTypes,
                                     .gguf = kGguf,
                                     .keys = kKeys,
                                     .rope_keys = kRopeKeys,
                                     .read = read,
                                     .record = record,
                                     .shapes = kShapes,
                                     .config_of = config_of};

}  // namespace subbyte
