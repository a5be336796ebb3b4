// MiniMax-M2: transformers' MiniMaxM2ForCausalLM. All heads of queries, and all of keys, have a
// norm together before half of each turns; every layer has a mixture of experts, whose router has
// sigmoids and biases that only choose.

#include "models/config_keys.h"
#include "models/expert_config.h"
#include "models/model_family.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr ModelType kModelTypes[] = {{.name = "minimax_m2",
                                      .architecture = "MiniMaxM2ForCausalLM",
                                      .defaults = {.intermediate_size = 1536,
                                                   .kv_heads = 8,
                                                   .head_dim = 128,
                                                   .max_positions = 196608,
                                                   .rope_theta = 5000000,
                                                   .rotary_dim_key = "rotary_dim",
                                                   .eos = 200020}}};

constexpr GgufKeyRule kGgufKeys[] = {
    {"expert_count", "num_local_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "intermediate_size"},
};
constexpr GgufTensorRule kGgufTensors[] = {
    {"ffn_gate_inp", "block_sparse_moe.gate"},
    {"exp_probs_b", "block_sparse_moe.e_score_correction_bias!.bias"},
    {"ffn_gate_exps", "block_sparse_moe.experts.w1", GgufChange::kExperts},
    {"ffn_up_exps", "block_sparse_moe.experts.w3", GgufChange::kExperts},
    {"ffn_down_exps", "block_sparse_moe.experts.w2", GgufChange::kExperts},
};
constexpr GgufArchitecture kGguf[] = {{.name = "minimax-m2",
                                       .model_type = "minimax_m2",
                                       .gating = 2,
                                       .keys = kGgufKeys,
                                       .tensors = kGgufTensors}};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_KEY("", "intermediate_size", kComputed, "", "of an expert; absent: 1536"),
    SUBBYTE_CONFIG_KEY("", "num_local_experts", kComputed, "", "absent: 256"),
    SUBBYTE_CONFIG_KEY("", "num_experts", kComputed, "", "num_local_experts"),
    SUBBYTE_CONFIG_KEY("", "num_experts_per_tok", kComputed, "", "absent: 8"),
    SUBBYTE_CONFIG_KEY("", "partial_rotary_factor", kComputed, "", "absent: rotary_dim"),
    SUBBYTE_CONFIG_KEY("", "rotary_dim", kComputed, "",
                       "what of a head turns; absent: partial_rotary_factor of rope_parameters"),
    SUBBYTE_CONFIG_KEY("", "attention_bias", kIgnored, "", "there are no biases"),
    SUBBYTE_CONFIG_KEY("", "attn_type_list", kIgnored, "", "all layers have full attention"),
    SUBBYTE_CONFIG_KEY("",
                       "layernorm_full_attention_beta layernorm_linear_attention_beta "
                       "layernorm_mlp_beta",
                       kIgnored, "", "blocks are added"),
    SUBBYTE_CONFIG_KEY("", "mlp_intermediate_size", kIgnored, "", "no layer is dense"),
    SUBBYTE_CONFIG_KEY("", "mtp_transformer_layers num_mtp_modules use_mtp", kIgnored, "",
                       "of the part that drafts, which is not read"),
    SUBBYTE_CONFIG_KEY("", "qk_norm_type", kIgnored, "", "norms are of all heads together"),
    SUBBYTE_CONFIG_KEY("", "scoring_func", kIgnored, "", "scores are sigmoids"),
    SUBBYTE_CONFIG_KEY("", "shared_intermediate_size shared_moe_mode", kIgnored, "",
                       "no expert is shared"),
    SUBBYTE_CONFIG_KEY("", "use_qk_norm", kIgnored, "", "heads always have their norms"),
    SUBBYTE_CONFIG_KEY("", "use_routing_bias", kIgnored, "", "routers always have their biases"),
};
constexpr json::KeyRule kRopeKeys[] = {
    SUBBYTE_ROPE_KEY("partial_rotary_factor", kComputed, "", "absent: rotary_dim"),
};

Status read_rest(const json::Object& config, ModelConfig& model, ExpertConfig& experts) {
  experts = {.count = 256, .per_token = 8, .routing = {.scores = Routing::Scores::kSigmoid}};
  return read_experts(config, model, {.count = "num_local_experts num_experts", .inner = ""},
                      experts);
}

void record(const ModelConfig& config, StepRecorder& step) {
  record_usual_step(config, step,
                    {.attention = {.norms = HeadsNorm::kAll},
                     .experts = &config.own.as<ExpertConfig>(),
                     .mixture = {.prefix = "block_sparse_moe.",
                                 .choice_bias = "e_score_correction_bias",
                                 .gate_name = "experts.w1",
                                 .up = "experts.w3",
                                 .down = "experts.w2"}});
}

// Sources: the config.json file of MiniMaxAI/MiniMax-M2; tiny, and where added tokens begin, are
// ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"minimax-m2", "tiny", 256, 128, 2, 4, 2, 64, 0, 512, 480, 2048, false, 8, 2},
    {"minimax-m2", "230b-a10b", 3072, 1536, 62, 48, 8, 128, 0, 200064, 200000, 196608, false,
     256, 8},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    {"", "", R"({"attention_bias": "$none", "num_local_experts": "$experts",
                 "rope_theta": 5000000, "rotary_dim": "$head_dim/2", "scoring_func": "sigmoid",
                 "use_qk_norm": true, "use_routing_bias": true})"},
};

}  // namespace

const ModelFamily minimax_m2_family = {.model_types = kModelTypes,
                                       .gguf = kGguf,
                                       .keys = kKeys,
                                       .rope_keys = kRopeKeys,
                                       .read = read_own<ExpertConfig, kKeys, read_rest>,
                                       .record = record,
                                       .shapes = kShapes,
                                       .shape_keys = kShapeKeys};

}  // namespace subbyte
