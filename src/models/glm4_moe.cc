// GLM-4.5, 4.6 and 4.7: transformers' Glm4MoeForCausalLM. Attention by groups with biases, of whose
// heads a half turns, perhaps after norms; the first layers are dense, the others have a mixture of
// experts with DeepSeek's router and one that every token goes to.

#include "models/expert_config.h"
#include "models/model_family.h"
#include "models/rope_config.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr ModelType kModelTypes[] = {{.name = "glm4_moe",
                                      .architecture = "Glm4MoeForCausalLM",
                                      .defaults = {.intermediate_size = 10944,
                                                   .kv_heads = 8,
                                                   .max_positions = 131072,
                                                   .rms_norm_eps = 1e-5,
                                                   .rotary_fraction = 0.5}}};

constexpr GgufKeyRule kGgufKeys[] = {
    {"expert_count", "n_routed_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_count", "n_shared_experts"},
    {"expert_weights_norm", "norm_topk_prob", "false"},
    {"expert_weights_scale", "routed_scaling_factor", "1.0", kGgufFloat},
    {"leading_dense_block_count", "first_k_dense_replace", "0"},
};
constexpr GgufTensorRule kGgufTensors[] = {
    {"post_attention_norm", "post_attention_layernorm"},
};

Status complete_gguf(const GgufModel& model, json::Value& config) {
  config["use_qk_norm"] = model.find("blk.0.attn_q_norm.weight") != nullptr;
  return {};
}

constexpr GgufArchitecture kGguf[] = {{.name = "glm4moe",
                                       .model_type = "glm4_moe",
                                       .gating = 2,
                                       .keys = kGgufKeys,
                                       .tensors = kGgufTensors,
                                       .complete = complete_gguf,
                                       .biases = kUsualGgufBiases}};

struct Own {
  bool has_head_norms = false;
  ExpertConfig experts;

  bool operator==(const Own&) const = default;
};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_FLAG(Own, "", "use_qk_norm", has_head_norms, false, ""),
};

Status read_rest(const json::Object& config, ModelConfig& model, Own& own) {
  own.experts = {
      .count = 128, .per_token = 8, .inner = 1408, .shared_inner = 1, .routing = sigmoid_routing()};
  SUBBYTE_CHECK(read_routed_experts(config, model, own.experts));
  SUBBYTE_TRY(own.experts.layers,
              read_layers_after(config, "first_k_dense_replace", 1, model.num_layers));
  return {};
}

void record(const ModelConfig& config, StepRecorder& step) {
  const Own& own = config.own.as<Own>();
  record_usual_step(
      config, step,
      {.attention = {.has_output_bias = false,
                     .norms = own.has_head_norms ? HeadsNorm::kEach : HeadsNorm::kNone},
       .experts = &own.experts,
       .mixture = {.choice_bias = "gate.e_score_correction_bias",
                   .shared = {.name = "shared_experts", .has_gate = false}}});
}

// Sources: the config.json files of zai-org/GLM-4.5*; tiny is ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"glm4-moe", "tiny", 256, 512, 3, 4, 2, 64, 0, 512, 480, 2048, false, 8, 2, 128},
    {"glm4-moe", "106b-a12b", 4096, 10944, 46, 96, 8, 128, 0, 151552, 151329, 131072, false,
     128, 8, 1408},
    {"glm4-moe", "355b-a32b", 5120, 12288, 92, 96, 8, 128, 0, 151552, 151329, 131072, false,
     160, 8, 1536},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    {"", "", R"({"attention_bias": true, "first_k_dense_replace": 1, "n_group": 1,
                 "n_routed_experts": "$experts", "n_shared_experts": 1, "norm_topk_prob": true,
                 "partial_rotary_factor": 0.5, "rope_theta": 1000000,
                 "routed_scaling_factor": 2.5, "topk_group": 1, "use_qk_norm": false})"},
    {"", "106b-a12b", R"({"routed_scaling_factor": 1.0})"},
    {"", "355b-a32b", R"({"first_k_dense_replace": 3, "use_qk_norm": true})"},
};

}  // namespace

const ModelFamily glm4_moe_family = {.model_types = kModelTypes,
                                     .gguf = kGguf,
                                     .keys = kKeys,
                                     .shared_keys = {kRoutedExpertKeys, kPartKeys},
                                     .rope_keys = kPartRopeKeys,
                                     .read = read_own<Own, kKeys, read_rest>,
                                     .record = record,
                                     .shapes = kShapes,
                                     .shape_keys = kShapeKeys};

}  // namespace subbyte
