// Seed-OSS: transformers' SeedOssForCausalLM. It is like Llama, with biases of queries, keys and
// values.

#include "models/config_keys.h"
#include "models/model_family.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr ModelType kModelTypes[] = {{.name = "seed_oss",
                                      .architecture = "SeedOssForCausalLM",
                                      .defaults = {.kv_heads = 8,
                                                   .head_dim = 128,
                                                   .max_positions = 524288,
                                                   .attention_bias = true,
                                                   .eos = 2}}};

struct Own {
  bool output_bias = false;

  bool operator==(const Own&) const = default;
};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_KEY("", "attention_bias", kComputed, "", "of q, k and v; absent: true"),
    SUBBYTE_CONFIG_FLAG(Own, "", "attention_out_bias", output_bias, false, "of o"),
    SUBBYTE_CONFIG_FLAG(ModelConfig, "", "mlp_bias", mlp_bias, false, ""),
    SUBBYTE_CONFIG_KEY("", "pretraining_tp", kIgnored, "", "how it is computed"),
    SUBBYTE_CONFIG_KEY("", "residual_dropout", kIgnored, "", "of training"),
};

constexpr GgufTensorRule kGgufTensors[] = {{"post_attention_norm", "post_attention_layernorm"}};

Status complete_gguf(const GgufModel& model, json::Value& config) {
  config["attention_out_bias"] = model.find("blk.0.attn_output.bias") != nullptr;
  return {};
}

constexpr GgufArchitecture kGguf[] = {{.name = "seed_oss",
                                       .model_type = "seed_oss",
                                       .tensors = kGgufTensors,
                                       .complete = complete_gguf,
                                       .biases = kUsualGgufBiases}};

void record(const ModelConfig& config, StepRecorder& step) {
  record_usual_step(config, step,
                    {.attention = {.has_output_bias = config.own.as<Own>().output_bias}});
}

// Sources: the config.json of ByteDance-Seed/Seed-OSS-36B-Instruct; tiny, and where added tokens
// begin, are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"seed-oss", "tiny", 256,  512,   2,  4,  2, 64,  0, 512,    480,    2048,   false},
    {"seed-oss", "36b",  5120, 27648, 64, 80, 8, 128, 0, 155136, 154880, 524288, false},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    {"", "", R"({"attention_bias": true, "attention_out_bias": false, "mlp_bias": false,
                 "rope_theta": 10000000.0})"},
};

}  // namespace

const ModelFamily seed_oss_family = {.model_types = kModelTypes,
                                     .gguf = kGguf,
                                     .keys = kKeys,
                                     .read = read_own<Own, kKeys>,
                                     .record = record,
                                     .shapes = kShapes,
                                     .shape_keys = kShapeKeys};

}  // namespace subbyte
