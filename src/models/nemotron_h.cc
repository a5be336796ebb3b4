// Nemotron-H and Nemotron 3 Nano: transformers' NemotronHForCausalLM. A layer is one block after an
// RMS norm: Mamba 2, attention without positions, a dense block without a gate, or experts without
// gates beside one that every token goes to. Steps are held within time_step_limit, as in NVIDIA's
// own code and for single tokens in transformers, which holds those of prompts above time_step_min.

#include <fmt/format.h>

#include <string>

#include "checkpoints/config/agreement.h"
#include "models/config_keys.h"
#include "models/expert_config.h"
#include "models/gguf_config.h"
#include "models/layer_lists.h"
#include "models/mamba_config.h"
#include "models/model_family.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr const char* kPattern = "hybrid_override_pattern";
constexpr const char* kList = "layers_block_type";
constexpr const char* kOtherList = "layer_types";
/// By the letters of a pattern; and in lists, then in older ones.
constexpr std::string_view kLetters = "M*-E";
constexpr std::string_view kKinds[] = {
    "linear_attention", "full_attention", "mlp", "moe", "mamba", "attention", "mlp", "moe"};

/// Layers are as many as the list or the pattern has: newer files do not say their number.
Result<int64_t> count_layers(const json::Object& config) {
  SUBBYTE_TRY(const auto key, one_name(config, {kList, kOtherList}, "config.contradiction"));
  const json::Value* const list = config.find(key);
  if (list != nullptr && list->is_array()) return std::ssize(*list);
  SUBBYTE_TRY(const auto pattern, config.string(kPattern));
  return pattern ? std::ssize(*pattern) : int64_t{0};
}

constexpr ModelType kModelTypes[] = {{.name = "nemotron_h",
                                      .architecture = "NemotronHForCausalLM",
                                      .defaults = {.intermediate_size = 21504,
                                                   .vocab = 131072,
                                                   .heads = 32,
                                                   .kv_heads = 8,
                                                   .head_dim = 128,
                                                   .max_positions = 4096,
                                                   .eos = 2,
                                                   .activation_key = "mlp_hidden_act",
                                                   .gate = Gate::kSquaredRelu,
                                                   .sliding = SlidingRule::kOfFamily,
                                                   .count_layers = count_layers}}};

constexpr GgufKeyRule kGgufKeys[] = {
    {"attention.layer_norm_rms_epsilon", "layer_norm_epsilon"},
    {"attention.layer_norm_epsilon", "layer_norm_epsilon"},
    {"attention.head_count_kv", "num_key_value_heads", "", kGgufByLayer},
    {"feed_forward_length", "intermediate_size", "", kGgufByLayer},
    {"ssm.conv_kernel", "conv_kernel"},
    {"ssm.state_size", "ssm_state_size"},
    {"ssm.group_count", "n_groups"},
    {"ssm.time_step_rank", "mamba_num_heads"},
    {.name = "ssm.inner_size", .key = "mamba_head_dim", .times = "ssm.time_step_rank"},
    {"expert_count", "n_routed_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_count", "n_shared_experts"},
    {"expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size"},
    {"expert_weights_norm", "norm_topk_prob", "false"},
    {"expert_weights_scale", "routed_scaling_factor", "1.0", kGgufFloat},
};
constexpr GgufTensorRule kGgufTensors[] = {
    {"output_norm", "model.norm_f"},
    {"attn_norm", "norm"},
    {"attn_q", "mixer.q_proj"},
    {"attn_k", "mixer.k_proj"},
    {"attn_v", "mixer.v_proj"},
    {"attn_output", "mixer.o_proj"},
    {"ssm_in", "mixer.in_proj"},
    {"ssm_conv1d", "mixer.conv1d", GgufChange::kFilters},
    {"ssm_a", "mixer.A_log!", GgufChange::kNegativeExpColumn},
    {"ssm_d", "mixer.D!", GgufChange::kColumn},
    {"ssm_dt", "mixer.dt_bias!.bias"},
    {"ssm_norm", "mixer.norm", GgufChange::kGroups},
    {"ssm_out", "mixer.out_proj"},
    {"ffn_up", "mixer.up_proj"},
    {"ffn_down", "mixer.down_proj"},
    {"ffn_gate_inp", "mixer.gate"},
    {"exp_probs_b", "mixer.gate.e_score_correction_bias!.bias"},
    {"ffn_up_exps", "mixer.experts.up_proj", GgufChange::kExperts},
    {"ffn_down_exps", "mixer.experts.down_proj", GgufChange::kExperts},
    {"ffn_up_shexp", "mixer.shared_experts.up_proj"},
    {"ffn_down_shexp", "mixer.shared_experts.down_proj"},
};

/// Layers with keys are attention, others with inner sizes dense or mixtures, the rest Mamba 2.
Status complete_gguf(const GgufModel& model, json::Value& config) {
  const auto layers = config["num_hidden_layers"].get<uint64_t>();
  SUBBYTE_TRY(const auto keys, gguf_integers(model.keys(), "attention.head_count_kv", layers));
  SUBBYTE_TRY(const auto inner, gguf_integers(model.keys(), "feed_forward_length", layers));
  std::string pattern;
  for (uint64_t i = 0; i < layers; ++i) {
    const bool attends = !keys.empty() && keys[i] > 0;
    const bool is_inner = !inner.empty() && inner[i] > 0;
    pattern += attends ? '*' : !is_inner ? 'M' : config.contains("n_routed_experts") ? 'E' : '-';
  }
  config[kPattern] = pattern;
  return {};
}

struct Own {
  std::string pattern;  // [num_layers] of kLetters
  MambaConfig mamba;
  ExpertConfig experts;

  bool operator==(const Own&) const = default;
};

bool has_no_experts(const ModelConfig& model) {
  return model.own.as<Own>().experts.count == 0;
}

constexpr GgufBias kGgufBiases[] = {{"use_conv_bias", "ssm_conv1d"}, {"mlp_bias", "ffn_up"}};
constexpr GgufArchitecture gguf_of(std::string_view name, bool (*holds)(const ModelConfig&)) {
  return {.name = name,
          .model_type = "nemotron_h",
          .gating = 2,
          .keys = kGgufKeys,
          .tensors = kGgufTensors,
          .complete = complete_gguf,
          .holds = holds,
          .biases = kGgufBiases};
}
constexpr GgufArchitecture kGguf[] = {gguf_of("nemotron_h", has_no_experts),
                                      gguf_of("nemotron_h_moe", nullptr)};

constexpr MambaNames kMambaNames = {.heads = "mamba_num_heads",
                                    .groups = "n_groups mamba_n_groups",
                                    .chunk = "chunk_size mamba_chunk_size",
                                    .step_limit = "time_step_limit mamba_dt_limit"};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_KEY("", "num_hidden_layers", kComputed, "", "absent: as the layers are listed"),
    SUBBYTE_CONFIG_KEY("", "layers_block_type layer_types", kComputed, "", "absent: the pattern"),
    SUBBYTE_CONFIG_KEY("", "hybrid_override_pattern", kComputed, "",
                       "M: Mamba 2, *: attention, -: dense, E: experts"),
    SUBBYTE_CONFIG_KEY("", "mlp_hidden_act", kComputed, "", "relu2"),
    SUBBYTE_CONFIG_KEY("", "mamba_hidden_act", kRefused, "\"silu\"", "of the convolution"),
    SUBBYTE_CONFIG_NUMBER(ModelConfig, "", "layer_norm_epsilon", rms_norm_eps, 1e-5, 1e-12, 1.0,
                          ""),
    SUBBYTE_CONFIG_FLAG(ModelConfig, "", "mlp_bias", mlp_bias, false, ""),
    SUBBYTE_CONFIG_FLAG(Own, "", "use_bias", mamba.has_bias, false, "of blocks of Mamba 2"),
    SUBBYTE_CONFIG_FLAG(Own, "", "use_conv_bias mamba_conv_bias", mamba.has_conv_bias, true, ""),
    SUBBYTE_CONFIG_NUMBER(Own, "", "mamba_num_heads", mamba.shape.heads, 128, 1, kMaxMambaHeads,
                          ""),
    SUBBYTE_CONFIG_NUMBER(Own, "", "mamba_head_dim", mamba.shape.head_size, 64, 1, kMaxMambaSize,
                          ""),
    SUBBYTE_CONFIG_NUMBER(Own, "", "n_groups mamba_n_groups", mamba.shape.groups, 8, 1,
                          kMaxMambaHeads, "of B, C and the norm"),
    SUBBYTE_CONFIG_NUMBER(Own, "", "ssm_state_size", mamba.shape.state_size, 128, 1, kMaxMambaSize,
                          ""),
    SUBBYTE_CONFIG_NUMBER(Own, "", "conv_kernel mamba_d_conv", mamba.shape.taps, 4, 1,
                          kMaxMambaTaps, "taps of the filters"),
    SUBBYTE_CONFIG_KEY("", "chunk_size mamba_chunk_size", kComputed, "", "only looked at"),
    SUBBYTE_CONFIG_KEY("", "time_step_limit mamba_dt_limit", kComputed, "", "absent: from 0 on"),
    SUBBYTE_CONFIG_KEY("", "time_step_min", kComputed, "", "not read: a limit of transformers"),
    SUBBYTE_CONFIG_NUMBER(Own, "", "moe_shared_expert_intermediate_size", experts.shared_inner,
                          7688, 1, kMaxWidth, ""),
    SUBBYTE_CONFIG_KEY("", "moe_latent_size", kRefused, "", "experts of fewer inputs"),
    SUBBYTE_CONFIG_KEY("", "attention_bias rope_theta partial_rotary_factor sliding_window",
                       kIgnored, "", "no layer has them"),
    SUBBYTE_CONFIG_KEY("",
                       "rms_norm_eps norm_eps hidden_act expand n_shared_experts mamba_proj_bias "
                       "first_k_dense_replace attention_head_dim",
                       kIgnored, "", "other keys and sizes say it"),
    SUBBYTE_CONFIG_KEY("",
                       "moe_shared_expert_overlap num_logits_to_keep use_mamba_kernels "
                       "mamba_ssm_cache_dtype residual_in_fp32",
                       kIgnored, "", "how it is computed"),
    SUBBYTE_CONFIG_KEY("", "mtp_layers_block_type mtp_hybrid_override_pattern", kIgnored, "",
                       "of parts that draft, which are not read"),
    SUBBYTE_CONFIG_KEY("", "rescale_prenorm_residual time_step_floor time_step_max hidden_dropout",
                       kIgnored, "", "of training"),
};

Result<std::string> read_pattern(const json::Object& config, int64_t num_layers) {
  std::string letters;
  SUBBYTE_TRY(const auto key, one_name(config, {kList, kOtherList}, "config.contradiction"));
  SUBBYTE_TRY(const auto kinds, read_layer_kinds(config, key, kKinds, num_layers));
  if (kinds) {
    for (const int kind : *kinds) letters += kLetters[static_cast<std::size_t>(kind % 4)];
    return letters;
  }
  SUBBYTE_TRY(letters, config.required_string(kPattern));
  const bool is_known = letters.find_first_not_of(kLetters) == letters.npos;
  if (is_known && std::ssize(letters) == num_layers) return letters;
  return config.error("config.layer_types", kPattern,
                      fmt::format("{} letters, each one of {}", num_layers, kLetters));
}

Status read_rest(const json::Object& config, ModelConfig& model, Own& own) {
  SUBBYTE_TRY(own.pattern, read_pattern(config, model.num_layers));
  SUBBYTE_CHECK(finish_mamba(config, kMambaNames, model, own.mamba));
  ExpertConfig& experts = own.experts;
  if (own.pattern.find('E') == own.pattern.npos) {
    experts = {};
  } else {
    experts.count = 8;
    experts.per_token = 2;
    experts.inner = 7688;
    experts.routing = sigmoid_routing();
    SUBBYTE_CHECK(read_experts(config, model, {.count = kRoutedExperts}, experts));
    SUBBYTE_CHECK(read_routing(config, experts));
    for (std::size_t i = 0; i < own.pattern.size(); ++i) experts.layers[i] = own.pattern[i] == 'E';
  }
  if (own.pattern.find('-') == own.pattern.npos && own.experts.count > 0) {
    model.intermediate_size = own.experts.inner;
  }
  return {};
}

ValueId block(const ModelConfig& config, int64_t layer, StepRecorder& step, ValueId h) {
  const Own& own = config.own.as<Own>();
  switch (own.pattern[static_cast<std::size_t>(layer)]) {
    case 'M':
      return step.mixer(h, "mixer.", own.mamba.op(), own.mamba.has_bias);
    case '*':
      return step.attention(h, {.shape = attention_shape(config, layer), .prefix = "mixer."});
    case 'E':
      return step.mixture(h, own.experts,
                          {.prefix = "mixer.",
                           .choice_bias = "gate.e_score_correction_bias",
                           .use = {.gate = Gate::kSquaredRelu},
                           .shared = {.name = "shared_experts", .has_gate = false}});
    default:
      return step.gated_block(
          h, {.inner = config.intermediate_size, .gate = Gate::kSquaredRelu, .prefix = "mixer."});
  }
}

void record(const ModelConfig& config, StepRecorder& step) {
  ValueId x = step.embed({});
  ValueId delta = kNoValue;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    step.begin_layer(i);
    delta = block(config, i, step, step.add_norm("norm", x, delta));
  }
  step.finish(x, delta, {.norm = "norm_f"});
}

// Sources: the config.json files of nvidia/NVIDIA-Nemotron-*; tiny, and where added tokens begin,
// are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"nemotron-h", "tiny",    256,  512,   4,  4,  2, 64,  0, 512,    480,    2048,   false},
    {"nemotron-h", "9b",      4480, 15680, 56, 40, 8, 128, 0, 131072, 131000, 131072, false},
    {"nemotron-h", "30b-a3b", 2688, 1856,  52, 32, 2, 128, 0, 131072, 131000, 262144, false, 128,
     6, 1856},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    {"", "", R"({"hidden_act": "$none", "rms_norm_eps": "$none", "chunk_size": 128,
                 "conv_kernel": 4, "layer_norm_epsilon": 1e-5, "mamba_head_dim": 64,
                 "mamba_num_heads": 128, "mlp_bias": false, "mlp_hidden_act": "relu2",
                 "n_groups": 8, "ssm_state_size": 128, "use_bias": false,
                 "use_conv_bias": true})"},
    {"", "tiny", R"({"hybrid_override_pattern": "$letters M-*M", "mamba_num_heads": 8,
                     "n_groups": 2, "ssm_state_size": 64})"},
    {"", "9b", R"({"hybrid_override_pattern":
      "$letters M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
                   "mamba_head_dim": 80})"},
    {"", "30b-a3b", R"({"hybrid_override_pattern":
      "$letters MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
                        "mamba_num_heads": 64, "n_group": 1, "n_routed_experts": "$experts",
                        "moe_shared_expert_intermediate_size": "$expert_size*2",
                        "norm_topk_prob": true, "routed_scaling_factor": 2.5,
                        "topk_group": 1})"},
};

}  // namespace

const ModelFamily nemotron_h_family = {.model_types = kModelTypes,
                                       .gguf = kGguf,
                                       .keys = kKeys,
                                       .shared_keys = {kRoutedExpertKeys},
                                       .read = read_own<Own, kKeys, read_rest>,
                                       .prefix = "backbone.",
                                       .record = record,
                                       .shapes = kShapes,
                                       .shape_keys = kShapeKeys};

}  // namespace subbyte
