// Mistral 7B and what is built like it: transformers' MistralForCausalLM. Attention by groups, in
// windows of all layers or of none, and a gated block, each after an RMS norm; no biases. Mistral
// Small 3.1 has it inside, beside a part that sees.

#include "models/config_keys.h"
#include "models/model_family.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr ModelType kModelTypes[] = {{.name = "mistral",
                                      .architecture = "MistralForCausalLM",
                                      .wrapper = "mistral3",
                                      .wrapper_ties = true,
                                      .defaults = {.kv_heads = 8,
                                                   .max_positions = 131072,
                                                   .eos = 2,
                                                   .sliding = SlidingRule::kWithWindow,
                                                   .sliding_window = 4096}}};

constexpr GgufTensorRule kGgufTensors[] = {
    {"attn_q", "self_attn.q_proj", GgufChange::kPairedQueries},
    {"attn_k", "self_attn.k_proj", GgufChange::kPairedKeys},
};

Status complete_gguf(const GgufModel& /*model*/, json::Value& config) {
  config["sliding_window"] = nullptr;
  return {};
}

constexpr GgufArchitecture kGguf[] = {{.name = "llama",
                                       .model_type = "mistral",
                                       .tensors = kGgufTensors,
                                       .complete = complete_gguf,
                                       .is_written_only = true}};

constexpr json::ScopedRule kKeys[] = {
    SUBBYTE_CONFIG_KEY("", "sliding_window", kComputed, "", "absent: 4096; null: none"),
    SUBBYTE_CONFIG_KEY("", "layer_types", kComputed, "", "what sliding_window says of all layers"),
    SUBBYTE_CONFIG_KEY("", "attention_bias", kIgnored, "", "there are no biases"),
    SUBBYTE_CONFIG_KEY("mistral3", "text_config", kComputed, "", "the config of the text model"),
};

void record(const ModelConfig& config, StepRecorder& step) {
  record_usual_step(config, step);
}

// Sources: the config.json files of mistralai/Mistral-7B-v0.3 and Mistral-Nemo-Base-2407; tiny, and
// where added tokens begin, are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    // arch, name: hidden, inner, layers, heads, KV heads, head size, window, vocabulary,
    //             first added token, positions, tied
    {"mistral", "tiny", 256,  512,   2,  4,  2, 64,  0, 512,    480,    2048,   false},
    {"mistral", "7b",   4096, 14336, 32, 32, 8, 128, 0, 32768,  32000,  32768,  false},
    {"mistral", "nemo", 5120, 14336, 40, 32, 8, 128, 0, 131072, 131000, 131072, false},
};
// clang-format on

json::Value config_of(const ModelShape& shape, int64_t layers) {
  json::Value config = usual_config(kModelTypes[0], shape, layers);
  config.erase("attention_bias");
  config["rms_norm_eps"] = 1e-5;
  config["rope_theta"] = 1000000.0;
  config["sliding_window"] = nullptr;
  return config;
}

}  // namespace

extern const ModelFamily mistral_family;
const ModelFamily mistral_family = {.model_types = kModelTypes,
                                    .gguf = kGguf,
                                    .keys = kKeys,
                                    .record = record,
                                    .shapes = kShapes,
                                    .config_of = config_of};

}  // namespace subbyte
