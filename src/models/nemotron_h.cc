// Nemotron-H and Nemotron 3 Nano: transformers' NemotronHForCausalLM. A layer is one block after an
// RMS norm: Mamba 2, attention without positions, a dense block without a gate, or experts without
// gates beside one that every token goes to. Steps are held within time_step_limit, as in NVIDIA's
// own code and for single tokens in transformers, which holds those of prompts above time_step_min.

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

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
    {"ssm.conv_kernel", "conv_kernel"},
    {"ssm.state_size", "ssm_state_size"},
    {"ssm.group_count", "n_groups"},
    {"ssm.time_step_rank", "mamba_num_heads"},
    {.name = "ssm.inner_size", .key = "mamba_head_dim", .by_family = true},
    {"expert_count", "n_routed_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_count", "n_shared_experts"},
    {"expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size"},
    {"expert_weights_norm", "norm_topk_prob", "false"},
    {"expert_weights_scale", "routed_scaling_factor", "1.0", true},
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
  const GgufFile& file = model.keys();
  const auto layers = config["num_hidden_layers"].get<uint64_t>();
  SUBBYTE_TRY(const auto keys, gguf_integers(file, "attention.head_count_kv", layers));
  SUBBYTE_TRY(const auto inner, gguf_integers(file, "feed_forward_length", layers));
  SUBBYTE_CHECK(add_gguf_head_size(file, "mamba_head_dim", config));
  const bool has_experts = config.contains("n_routed_experts");
  std::string pattern;
  bool conv_bias = false;
  bool mlp_bias = false;
  for (uint64_t i = 0; i < layers; ++i) {
    const auto has = [&](std::string_view tensor) {
      return model.find(fmt::format("blk.{}.{}", i, tensor)) != nullptr;
    };
    const bool attends = !keys.empty() && keys[i] > 0;
    const bool is_inner = !inner.empty() && inner[i] > 0;
    pattern += attends ? '*' : !is_inner ? 'M' : has_experts ? 'E' : '-';
    conv_bias = conv_bias || has("ssm_conv1d.bias");
    mlp_bias = mlp_bias || has("ffn_up.bias");
  }
  config[kPattern] = pattern;
  config["use_conv_bias"] = conv_bias;
  config["mlp_bias"] = mlp_bias;
  config["mlp_hidden_act"] = "relu2";
  return {};
}

void add_gguf_keys(const GgufArchitecture& architecture, const ModelConfig& model, GgufKeys& keys);
void add_moe_gguf_keys(const GgufArchitecture& architecture, const ModelConfig& model,
                       GgufKeys& keys);
bool has_no_experts(const ModelConfig& model);

constexpr GgufArchitecture kGguf[] = {{.name = "nemotron_h",
                                       .model_type = "nemotron_h",
                                       .gating = 2,
                                       .keys = kGgufKeys,
                                       .tensors = kGgufTensors,
                                       .complete = complete_gguf,
                                       .add_keys = add_gguf_keys,
                                       .holds = has_no_experts},
                                      {.name = "nemotron_h_moe",
                                       .model_type = "nemotron_h",
                                       .gating = 2,
                                       .keys = kGgufKeys,
                                       .tensors = kGgufTensors,
                                       .complete = complete_gguf,
                                       .add_keys = add_moe_gguf_keys}};

struct Own {
  std::string pattern;  // [num_layers] of kLetters
  MambaConfig mamba;
  ExpertConfig experts;
  bool mlp_bias = false;

  bool operator==(const Own&) const = default;
};

constexpr MambaNames kMambaNames = {.heads = "mamba_num_heads",
                                    .groups = "n_groups mamba_n_groups",
                                    .chunk = "chunk_size mamba_chunk_size",
                                    .step_limit = "time_step_limit mamba_dt_limit"};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_KEY("", "num_hidden_layers", kComputed, "", "absent: as the layers are listed"),
    SUBBYTE_CONFIG_KEY("", "layers_block_type layer_types", kComputed, "",
                       "absent: the pattern says it"),
    SUBBYTE_CONFIG_KEY("", "hybrid_override_pattern", kComputed, "",
                       "M: Mamba 2, *: attention, -: dense, E: experts"),
    SUBBYTE_CONFIG_KEY("", "mlp_hidden_act", kComputed, "", "relu2"),
    SUBBYTE_CONFIG_KEY("", "mamba_hidden_act", kRefused, "\"silu\"", "of the convolution"),
    SUBBYTE_CONFIG_NUMBER(ModelConfig, "", "layer_norm_epsilon", rms_norm_eps, 1e-5, 1e-12, 1.0,
                          ""),
    SUBBYTE_CONFIG_FLAG(Own, "", "mlp_bias", mlp_bias, false, ""),
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
    SUBBYTE_CONFIG_KEY("", "chunk_size mamba_chunk_size", kComputed, "",
                       "of the reference: only looked at"),
    SUBBYTE_CONFIG_KEY("", "time_step_limit mamba_dt_limit", kComputed, "", "absent: from 0 on"),
    SUBBYTE_CONFIG_KEY("", "time_step_min", kComputed, "",
                       "not read: transformers holds steps of prompts above it"),
    SUBBYTE_CONFIG_NUMBER(Own, "", "moe_shared_expert_intermediate_size", experts.shared_inner,
                          7688, 1, kMaxWidth, ""),
    SUBBYTE_CONFIG_KEY("", "moe_latent_size", kRefused, "", "experts of fewer inputs"),
    SUBBYTE_CONFIG_KEY("", "attention_bias", kIgnored, "", "there are no biases"),
    SUBBYTE_CONFIG_KEY("", "attention_head_dim", kIgnored, "", "head_dim says it"),
    SUBBYTE_CONFIG_KEY("", "rms_norm_eps norm_eps", kIgnored, "", "layer_norm_epsilon says it"),
    SUBBYTE_CONFIG_KEY("", "hidden_act", kIgnored, "", "mlp_hidden_act says it"),
    SUBBYTE_CONFIG_KEY("", "rope_theta partial_rotary_factor", kIgnored, "", "heads do not turn"),
    SUBBYTE_CONFIG_KEY("", "sliding_window", kIgnored, "", "no layer slides"),
    SUBBYTE_CONFIG_KEY("", "expand n_shared_experts", kIgnored, "", "other sizes say it"),
    SUBBYTE_CONFIG_KEY("", "first_k_dense_replace", kIgnored, "", "the pattern says it"),
    SUBBYTE_CONFIG_KEY("", "mamba_proj_bias", kIgnored, "", "use_bias says it"),
    SUBBYTE_CONFIG_KEY("", "mamba_ssm_cache_dtype residual_in_fp32", kIgnored, "",
                       "states and the residual stream are f32"),
    SUBBYTE_CONFIG_KEY("", "moe_shared_expert_overlap num_logits_to_keep use_mamba_kernels",
                       kIgnored, "", "how it is computed"),
    SUBBYTE_CONFIG_KEY("", "mtp_layers_block_type mtp_hybrid_override_pattern", kIgnored, "",
                       "of parts that draft, which are not read"),
    SUBBYTE_CONFIG_KEY("", "rescale_prenorm_residual time_step_floor time_step_max hidden_dropout",
                       kIgnored, "", "of training"),
};

bool has_no_experts(const ModelConfig& model) {
  return model.own.as<Own>().experts.count == 0;
}

void add_gguf_keys(const GgufArchitecture& architecture, const ModelConfig& model, GgufKeys& keys) {
  const Own& own = model.own.as<Own>();
  std::vector<bool> attends;
  std::vector<int32_t> inner;
  for (const char letter : own.pattern) {
    attends.push_back(letter == '*');
    inner.push_back(static_cast<int32_t>(letter == '-'   ? model.intermediate_size
                                         : letter == 'E' ? own.experts.inner
                                                         : 0));
  }
  add_gguf_mambas(architecture, own.mamba.shape, attends, model.num_kv_heads, keys);
  keys.wholes(architecture.key("feed_forward_length"), inner);
  keys.number(architecture.key("attention.layer_norm_epsilon"), model.rms_norm_eps);
}

void add_moe_gguf_keys(const GgufArchitecture& architecture, const ModelConfig& model,
                       GgufKeys& keys) {
  const ExpertConfig& experts = model.own.as<Own>().experts;
  add_gguf_keys(architecture, model, keys);
  keys.whole(architecture.key("expert_used_count"), static_cast<uint32_t>(experts.per_token));
  keys.whole(architecture.key("expert_shared_feed_forward_length"),
             static_cast<uint32_t>(experts.shared_inner));
  keys.flag(architecture.key("expert_weights_norm"), experts.routing.normalises);
  keys.number(architecture.key("expert_weights_scale"), experts.routing.factor);
}

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

Status read_mixture(const json::Object& config, int64_t num_layers, ExpertConfig& experts) {
  experts.count = 8;
  experts.per_token = 2;
  experts.inner = 7688;
  experts.routing = {.scores = Routing::Scores::kSigmoid, .added = 1e-20f, .groups_by_two = true};
  SUBBYTE_CHECK(read_experts(config, {.count = "n_routed_experts num_local_experts"}, experts));
  SUBBYTE_CHECK(read_routing(config, experts));
  experts.layers.assign(static_cast<std::size_t>(num_layers), false);
  return {};
}

Status read(const json::Object& config, ModelConfig& model) {
  Own own;
  SUBBYTE_CHECK(read_keys(config, kKeys, &own, model));
  SUBBYTE_TRY(own.pattern, read_pattern(config, model.num_layers));
  SUBBYTE_CHECK(finish_mamba(config, kMambaNames, model, own.mamba));
  if (own.pattern.find('E') != own.pattern.npos) {
    SUBBYTE_CHECK(read_mixture(config, model.num_layers, own.experts));
  } else {
    own.experts = {};
  }
  // Of dense blocks, where there are any.
  const bool has_dense = own.pattern.find('-') != own.pattern.npos;
  if (!has_dense && own.experts.count > 0) model.intermediate_size = own.experts.inner;
  model.own = FamilyConfig(std::move(own));
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
      return step.mixture(h,
                          {.prefix = "mixer.",
                           .routing = own.experts.routing,
                           .choice_bias = "gate.e_score_correction_bias",
                           .experts = own.experts.count,
                           .use = {.per_token = own.experts.per_token, .gate = Gate::kSquaredRelu},
                           .inner = own.experts.inner,
                           .shared = {.inner = own.experts.shared_inner,
                                      .name = "shared_experts",
                                      .has_gate = false,
                                      .has_bias = own.mlp_bias}});
    default:
      return step.gated_block(h, {.inner = config.intermediate_size,
                                  .gate = Gate::kSquaredRelu,
                                  .has_bias = own.mlp_bias,
                                  .prefix = "mixer."});
  }
}

void record(const ModelConfig& config, StepRecorder& step) {
  ValueId x = step.embed({});
  ValueId delta = kNoValue;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    step.begin_layer(i);
    const ValueId h = step.add_norm("norm", x, delta);
    delta = block(config, i, step, h);
  }
  step.finish(x, delta, {.norm = "norm_f"});
}

// ---- synth

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
                                       .read = read,
                                       .prefix = "backbone.",
                                       .record = record,
                                       .shapes = kShapes,
                                       .shape_keys = kShapeKeys};

}  // namespace subbyte
