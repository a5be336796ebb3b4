// gpt-oss. Attention has biases, a sink per head and, in every other layer, a sliding window; the
// feed-forward block is a mixture of experts with interleaved gate and up rows and a clamped
// SwiGLU. Reference: transformers, models/gpt_oss.

#include "models/config_keys.h"
#include "models/expert_config.h"
#include "models/model_family.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr ModelType kModelTypes[] = {
    {.name = "gpt_oss",
     .architecture = "GptOssForCausalLM",
     .defaults = {.kv_heads = 8,
                  .head_dim = 64,
                  .max_positions = 131072,
                  .rms_norm_eps = 1e-5,
                  .rope_theta = 150000,
                  .rope_section = R"({"rope_type": "yarn", "factor": 32, "truncate": false,
                                      "original_max_position_embeddings": 4096})",
                  .attention_bias = true,
                  .sliding = SlidingRule::kAllBut,
                  .sliding_window = 128}}};
constexpr std::string_view kContainers[] = {"openai"};
constexpr ChatFormat kChat[] = {ChatFormat::kHarmony};

constexpr GgufKeyRule kGgufKeys[] = {
    {"expert_count", "num_local_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "intermediate_size"},
    {"attention.sliding_window", "sliding_window"},
};
constexpr GgufTensorRule kGgufTensors[] = {
    {"attn_sinks", "self_attn.sinks!.weight"},
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_gate_inp", "mlp.router"},
};

/// YaRN of gpt-oss does not round where its ramp begins and ends. Where a file says nothing of a
/// scaling there is none, other than in config.json.
Status complete_gguf(const GgufModel& /*model*/, json::Value& config) {
  if (config["rope_scaling"].is_object()) {
    config["rope_scaling"]["truncate"] = false;
  } else {
    config["rope_scaling"] = {{"rope_type", "default"}};
  }
  return {};
}

constexpr GgufArchitecture kGguf[] = {{.name = "gpt-oss",
                                       .model_type = "gpt_oss",
                                       .keys = kGgufKeys,
                                       .tensors = kGgufTensors,
                                       .complete = complete_gguf}};

struct Own {
  ExpertConfig experts;
  float alpha = 0;  // of their clamped SwiGLU
  float limit = 0;

  bool operator==(const Own&) const = default;
};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_KEY("", "rope_parameters", kComputed, "",
                       "absent: YaRN by 32 of 4096 positions"),
    SUBBYTE_CONFIG_KEY("", "sliding_window", kComputed, "", "absent: 128"),
    SUBBYTE_CONFIG_KEY("", "layer_types", kComputed, "", "absent: every other layer slides"),
    SUBBYTE_CONFIG_KEY("", "num_local_experts num_experts_per_tok", kComputed, "", "must be there"),
    SUBBYTE_CONFIG_KEY("", "num_experts", kComputed, "", "num_local_experts, older"),
    SUBBYTE_CONFIG_KEY("", "experts_per_token", kComputed, "",
                       "num_experts_per_tok, where that one is absent"),
    SUBBYTE_CONFIG_NUMBER(Own, "", "swiglu_limit", limit, 7, 1e-3, 1e6, ""),
    SUBBYTE_CONFIG_NUMBER(Own, "", "swiglu_alpha", alpha, 1.702, 1e-3, 1e3, ""),
    SUBBYTE_CONFIG_KEY("", "initial_context_length", kIgnored, "", "of OpenAI's own files"),
};

void record(const ModelConfig& config, StepRecorder& step) {
  const Own& own = config.own.as<Own>();
  record_usual_step(
      config, step,
      {.attention = {.has_sinks = true, .may_be_quantized = false},
       .experts = &own.experts,
       .mixture = {
           .router = "router", .use = {.swiglu = {own.alpha, own.limit, 1}}, .has_bias = true}});
}

Status read_rest(const json::Object& config, ModelConfig& model, Own& own) {
  return read_experts(config, model,
                      {.count = "num_local_experts num_experts",
                       .per_token = "num_experts_per_tok experts_per_token",
                       .inner = ""},
                      own.experts);
}

// Sources: the config.json files of openai/gpt-oss-*; tiny is ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"gpt-oss", "tiny", 128, 128, 4, 4, 2, 32, 8, 512, 480, 2048, false, 8, 4, 128},
    {"gpt-oss", "20b", 2880, 2880, 24, 64, 8, 64, 128, 201088, 199998, 131072, false, 32, 4, 2880},
    {"gpt-oss", "120b", 2880, 2880, 36, 64, 8, 64, 128, 201088, 199998, 131072, false,
     128, 4, 2880},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    {"", "", R"({"attention_bias": true, "experts_per_token": "$per_token",
                 "initial_context_length": 4096, "moe_intermediate_size": "$none",
                 "layer_types": "$each sf",
                 "num_local_experts": "$experts", "output_router_logits": false,
                 "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
                                  "original_max_position_embeddings": 4096, "rope_type": "yarn",
                                  "truncate": false},
                 "rope_theta": 150000, "router_aux_loss_coef": 0.9, "sliding_window": "$window",
                 "swiglu_limit": 7.0})"},
};

}  // namespace

const ModelFamily gpt_oss_family = {.model_types = kModelTypes,
                                    .containers = kContainers,
                                    .gguf = kGguf,
                                    .keys = kKeys,
                                    .read = read_own<Own, kKeys, read_rest>,
                                    .experts = ExpertLayout::kAlternatingStacks,
                                    .record = record,
                                    .chat = kChat,
                                    .shapes = kShapes,
                                    .shape_keys = kShapeKeys};

}  // namespace subbyte
