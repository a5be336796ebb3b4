// Nemotron 3 and 4 (Minitron): transformers' NemotronForCausalLM. LayerNorms with factors 1 + w
// and biases, a block without a gate, half of a head turns.

#include "models/config_keys.h"
#include "models/model_family.h"
#include "models/rope_config.h"
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

constexpr GgufKeyRule kGgufKeys[] = {
    {"attention.layer_norm_epsilon", "norm_eps"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", "", kGgufByFamily},
};
constexpr GgufTensorRule kGgufTensors[] = {
    {"output_norm", "model.norm", GgufChange::kPlusOne},
    {"attn_norm", "input_layernorm", GgufChange::kPlusOne},
    {"ffn_norm", "post_attention_layernorm", GgufChange::kPlusOne},
};

constexpr GgufArchitecture kGguf[] = {{.name = "nemotron",
                                       .model_type = "nemotron",
                                       .keys = kGgufKeys,
                                       .tensors = kGgufTensors,
                                       .biases = kUsualGgufBiases}};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_KEY("", "hidden_act", kComputed, "", "relu2, which it is where it is absent"),
    SUBBYTE_CONFIG_NUMBER(ModelConfig, "", "norm_eps", rms_norm_eps, 1e-5, 1e-12, 1.0, ""),
    SUBBYTE_CONFIG_KEY("", "rms_norm_eps", kIgnored, "", "norm_eps says it"),
    SUBBYTE_CONFIG_FLAG(ModelConfig, "", "mlp_bias", mlp_bias, false, ""),
};

void record(const ModelConfig& config, StepRecorder& step) {
  record_usual_step(config, step,
                    {.stream = {.norm_offset = 1, .is_centred = true, .has_norm_bias = true},
                     .gated = {.gate = Gate::kSquaredRelu}});
}

// Sources: the config.json files of nvidia/Minitron-4B-Base and nemotron-3-8b-base-4k-hf; tiny, and
// where added tokens begin, are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"nemotron", "tiny", 256,  512,   2,  4,  2,  64,  0, 512,    480,    2048, false},
    {"nemotron", "4b",   3072, 9216,  32, 24, 8,  128, 0, 256000, 255000, 4096, false},
    {"nemotron", "8b",   4096, 16384, 32, 32, 32, 128, 0, 256000, 255000, 4096, false},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    {"", "", R"({"rms_norm_eps": "$none", "hidden_act": "relu2", "mlp_bias": false,
                 "norm_eps": 1e-5, "partial_rotary_factor": 0.5, "rope_theta": 10000.0})"},
};

}  // namespace

const ModelFamily nemotron_family = {.model_types = kModelTypes,
                                     .gguf = kGguf,
                                     .keys = kKeys,
                                     .shared_keys = {kPartKeys},
                                     .rope_keys = kPartRopeKeys,
                                     .record = record,
                                     .shapes = kShapes,
                                     .shape_keys = kShapeKeys};

}  // namespace subbyte
