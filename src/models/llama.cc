// Llama 2 and 3, and what is built like them (TinyLlama, SmolLM, distills of DeepSeek-R1):
// transformers' LlamaForCausalLM. Attention by groups and a gated block, each after an RMS norm;
// biases where the config says so. Mixtral, MixtralForCausalLM, has a mixture of experts in all
// layers, and perhaps a window.

#include <fmt/format.h>

#include "models/config_keys.h"
#include "models/expert_config.h"
#include "models/gguf_rope.h"
#include "models/model_family.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr ModelType kModelTypes[] = {
    {.name = "llama", .architecture = "LlamaForCausalLM", .defaults = {.eos = 2}},
    {.name = "mixtral",
     .architecture = "MixtralForCausalLM",
     .defaults = {.kv_heads = 8,
                  .max_positions = 131072,
                  .rms_norm_eps = 1e-5,
                  .rope_theta = 1000000,
                  .eos = 2,
                  .sliding = SlidingRule::kWithWindow}}};
constexpr const ModelType& kMoe = kModelTypes[1];
constexpr ChatFormat kChat[] = {ChatFormat::kDatedHeaders, ChatFormat::kHeaders,
                                ChatFormat::kDeepSeek, ChatFormat::kChatMl};

constexpr GgufTensorRule kGgufTensors[] = {{"rope_freqs", ""}};

/// One key says both biases.
Status complete_gguf(const GgufModel& model, json::Value& config) {
  if (model.find("blk.0.attn_output.bias") != nullptr) config["attention_bias"] = true;
  return add_turns_rope(model, "llama3", config);
}

constexpr GgufKeyRule kGgufMoeKeys[] = {
    {"expert_count", "num_local_experts"},
    {"expert_used_count", "num_experts_per_tok"},
};
constexpr GgufTensorRule kGgufMoeTensors[] = {
    {"ffn_gate_inp", "block_sparse_moe.gate"},
    {"ffn_gate_exps", "block_sparse_moe.experts.w1", GgufChange::kExperts},
    {"ffn_up_exps", "block_sparse_moe.experts.w3", GgufChange::kExperts},
    {"ffn_down_exps", "block_sparse_moe.experts.w2", GgufChange::kExperts},
};

/// Mixtral is a llama with experts.
constexpr GgufArchitecture kGguf[] = {{.name = "llama",
                                       .model_type = "mixtral",
                                       .with = "expert_count",
                                       .pairs_heads = true,
                                       .keys = kGgufMoeKeys,
                                       .tensors = kGgufTensors,
                                       .own_tensors = kGgufMoeTensors,
                                       .complete = complete_gguf},
                                      {.name = "llama",
                                       .model_type = "llama",
                                       .pairs_heads = true,
                                       .tensors = kGgufTensors,
                                       .complete = complete_gguf,
                                       .biases = kUsualGgufBiases}};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_FLAG(ModelConfig, "llama", "mlp_bias", mlp_bias, false, ""),
    SUBBYTE_CONFIG_KEY("llama", "layer_types", kComputed, "", "all are full_attention"),
    SUBBYTE_CONFIG_KEY("llama", "sliding_window", kComputed, "",
                       "no less than all positions, unless layer_types are there"),
    SUBBYTE_CONFIG_KEY("", "attention_chunk_size", kRefused, "", "a cache that forgets"),
    SUBBYTE_CONFIG_KEY("mixtral", "num_local_experts", kComputed, "", "absent: 8"),
    SUBBYTE_CONFIG_KEY("mixtral", "num_experts", kComputed, "", "num_local_experts"),
    SUBBYTE_CONFIG_KEY("mixtral", "num_experts_per_tok", kComputed, "", "absent: 2"),
    SUBBYTE_CONFIG_KEY("mixtral", "sliding_window", kComputed, "", "absent or null: none"),
    SUBBYTE_CONFIG_KEY("mixtral", "layer_types", kComputed, "",
                       "what sliding_window says of all layers"),
    SUBBYTE_CONFIG_KEY("mixtral", "attention_bias", kIgnored, "", "there are no biases"),
};

constexpr RopeKind kRopeKinds[] = {{"llama3", read_turns_rope}};

/// The reference masks no layer, but its cache drops keys beyond the window of a config that has
/// one and no layer_types, so that its answers depend on how they are computed.
Status check_window(const json::Object& config, const ModelConfig& model) {
  SUBBYTE_TRY(const auto window, config.integer("sliding_window", 0, kMaxPositions));
  if (!window || *window >= model.max_positions || config.has("layer_types")) return {};
  return config.error(
      "config.not_computed", "sliding_window",
      fmt::format("at least {} positions, as layers do not slide", model.max_positions));
}

Status read_rest(const json::Object& config, ModelConfig& model, ExpertConfig& experts) {
  if (model.model_type != kMoe.name) return check_window(config, model);
  experts = {.count = 8, .per_token = 2};
  return read_experts(config, model, {.count = "num_local_experts num_experts", .inner = ""},
                      experts);
}

void record(const ModelConfig& config, StepRecorder& step) {
  record_usual_step(config, step,
                    {.experts = &config.own.as<ExpertConfig>(),
                     .mixture = {.prefix = "block_sparse_moe.",
                                 .gate_name = "experts.w1",
                                 .up = "experts.w3",
                                 .down = "experts.w2"}});
}

// Sources: the config.json files of meta-llama/Llama-3.* and mistralai/Mixtral-8x*; those called
// tiny, and where added tokens of Mixtral begin, are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"llama", "tiny", 256,  512,   2,  4,  2, 64,  0, 512,    480,    2048,   true},
    {"llama", "1b",   2048, 8192,  16, 32, 8, 64,  0, 128256, 128000, 131072, true},
    {"llama", "3b",   3072, 8192,  28, 24, 8, 128, 0, 128256, 128000, 131072, true},
    {"llama", "8b",   4096, 14336, 32, 32, 8, 128, 0, 128256, 128000, 131072, false},
    {"llama", "70b",  8192, 28672, 80, 64, 8, 128, 0, 128256, 128000, 131072, false},
    {"mixtral", "tiny",  256,  128,   2,  4,  2, 64,  0, 512,   480,   2048,  false, 8, 2},
    {"mixtral", "8x7b",  4096, 14336, 32, 32, 8, 128, 0, 32000, 31900, 32768, false, 8, 2},
    {"mixtral", "8x22b", 6144, 16384, 56, 48, 8, 128, 0, 32768, 32000, 65536, false, 8, 2},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    {"llama", "", R"({"mlp_bias": false, "pretraining_tp": 1, "rms_norm_eps": 1e-5,
                      "rope_theta": 500000.0,
                      "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0,
                                       "low_freq_factor": 1.0, "rope_type": "llama3",
                                       "original_max_position_embeddings": 8192}})"},
    {"llama", "8b 70b", R"({"rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0,
                                             "low_freq_factor": 1.0, "rope_type": "llama3",
                                             "original_max_position_embeddings": 8192}})"},
    {"mixtral", "", R"({"model_type": "mixtral", "attention_bias": "$none",
                        "num_local_experts": "$experts", "rope_theta": 1000000.0,
                        "sliding_window": null})"},
};

}  // namespace

const ModelFamily llama_family = {.model_types = kModelTypes,
                                  .gguf = kGguf,
                                  .keys = kKeys,
                                  .rope_kinds = kRopeKinds,
                                  .read = read_own<ExpertConfig, kKeys, read_rest>,
                                  .record = record,
                                  .chat = kChat,
                                  .shapes = kShapes,
                                  .shape_keys = kShapeKeys};

}  // namespace subbyte
