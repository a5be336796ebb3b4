// GLM-4 of 2025 (GLM-4-9B-0414, GLM-4-32B-0414, GLM-Z1): transformers' Glm4ForCausalLM. Norms
// before and after each block, neighbours in the first half of a head turn together, queries, keys
// and values have biases; files have gate and up joined.

#include "models/config_keys.h"
#include "models/model_family.h"
#include "models/rope_config.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr ModelType kModelTypes[] = {{.name = "glm4",
                                      .architecture = "Glm4ForCausalLM",
                                      .defaults = {.kv_heads = 2,
                                                   .head_dim = 128,
                                                   .max_positions = 131072,
                                                   .rms_norm_eps = 1.5625e-7,
                                                   .rotary_fraction = 0.5,
                                                   .attention_bias = true}}};
constexpr int32_t kEnds[] = {151329, 151336, 151338};  // eos_token_id where it is absent

constexpr LayerNorms kNorms = {.before_first = "input_layernorm",
                               .after_first = "post_self_attn_layernorm",
                               .before_second = "post_attention_layernorm",
                               .after_second = "post_mlp_layernorm"};

constexpr GgufTensorRule kGgufTensors[] = {
    {"post_attention_norm", "post_self_attn_layernorm"},
    {"post_ffw_norm", "post_mlp_layernorm"},
    {"ffn_up", "mlp.gate_up_proj"},
};

constexpr GgufArchitecture kGguf[] = {
    {.name = "glm4", .model_type = "glm4", .tensors = kGgufTensors, .biases = kUsualGgufBiases}};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_KEY("", "attention_bias", kComputed, "", "of q, k and v; absent: true"),
    SUBBYTE_CONFIG_KEY("", "eos_token_id", kComputed, "", "absent: 151329, 151336 and 151338"),
};

Status read(const json::Object& /*config*/, ModelConfig& model) {
  for (const int32_t end : kEnds) {
    if (end < model.vocab_size) model.eos_tokens.push_back(end);
  }
  return {};
}

void record(const ModelConfig& config, StepRecorder& step) {
  record_usual_step(config, step,
                    {.norms = BlockNorms::kAround,
                     .names = kNorms,
                     .attention = {.pairs = RopePairs::kNeighbours, .has_output_bias = false}});
}

// Sources: the config.json files of zai-org/GLM-4-9B-0414 and GLM-4-32B-0414; tiny, and where added
// tokens begin, are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"glm4", "tiny", 256,  512,   2,  4,  2, 64,  0, 512,    480,    2048,  false},
    {"glm4", "9b",   4096, 13696, 40, 32, 2, 128, 0, 151552, 151329, 32768, false},
    {"glm4", "32b",  6144, 23040, 61, 48, 2, 128, 0, 151552, 151329, 32768, false},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    {"", "", R"({"attention_bias": true, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-5,
                 "rope_theta": 10000.0})"},
    {"", "32b", R"({"attention_bias": false})"},
};

}  // namespace

const ModelFamily glm4_family = {.model_types = kModelTypes,
                                 .gguf = kGguf,
                                 .keys = kKeys,
                                 .shared_keys = {kPartKeys},
                                 .rope_keys = kPartRopeKeys,
                                 .read = read,
                                 .record = record,
                                 .shapes = kShapes,
                                 .shape_keys = kShapeKeys};

}  // namespace subbyte
