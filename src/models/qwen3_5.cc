// Qwen3.5 (and 3.6, 3.8), dense and with experts, and Qwen3-Next: three of four layers are gated
// delta nets, the others attention with a gate, of whose heads a quarter turns. Norms have factors
// 1 + w. Published models see pictures, too: their config.json has that of the text model inside,
// and their checkpoints other parts beside it, which are not read. Reference: transformers,
// models/qwen3_5, models/qwen3_5_moe and models/qwen3_next.
//
// Of text all three positions of the rotary embedding (mrope) are the same: it is the usual one.

#include <fmt/format.h>

#include "models/config_keys.h"
#include "models/expert_config.h"
#include "models/gguf_config.h"
#include "models/layer_lists.h"
#include "models/model_family.h"
#include "models/rope_config.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr int64_t kMaxSize = 4096;  // of heads, and how many there are

constexpr ConfigDefaults defaults_with(int64_t intermediate_size, int64_t kv_heads) {
  return {.intermediate_size = intermediate_size,
          .kv_heads = kv_heads,
          .head_dim = 256,
          .max_positions = 32768,
          .rotary_fraction = 0.25,
          .sliding = SlidingRule::kOfFamily};
}
constexpr ModelType kModelTypes[] = {{.name = "qwen3_5_text",
                                      .architecture = "Qwen3_5ForCausalLM",
                                      .wrapper = "qwen3_5",
                                      .defaults = defaults_with(12288, 4)},
                                     {.name = "qwen3_5_moe_text",
                                      .architecture = "Qwen3_5MoeForCausalLM",
                                      .wrapper = "qwen3_5_moe",
                                      .defaults = defaults_with(0, 2)},
                                     {.name = "qwen3_next",
                                      .architecture = "Qwen3NextForCausalLM",
                                      .defaults = defaults_with(5632, 2)}};
constexpr const ModelType& kDense = kModelTypes[0];
constexpr const ModelType& kMoe = kModelTypes[1];
constexpr const ModelType& kNext = kModelTypes[2];
constexpr ChatFormat kChat[] = {ChatFormat::kChatMl};

struct Own {
  int64_t interval = 0;
  std::vector<bool> delta_net_layers;  // [num_layers]; absent: all but each interval-th
  DeltaNetShape delta_net;
  ExpertConfig experts;

  bool operator==(const Own&) const = default;
};

constexpr GgufKeyRule kGgufKeys[] = {
    {"ssm.conv_kernel", "linear_conv_kernel_dim"},
    {"ssm.state_size", "linear_key_head_dim"},
    {"ssm.group_count", "linear_num_key_heads"},
    {"ssm.time_step_rank", "linear_num_value_heads"},
    {.name = "ssm.inner_size", .key = "linear_value_head_dim", .times = "ssm.time_step_rank"},
    {"attention.recurrent_layers", "layer_types", "", kGgufByFamily | kGgufByLayer},
    {"full_attention_interval", "full_attention_interval", "4"},
    {"expert_count", "num_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
};
constexpr GgufTensorRule kGgufTensors[] = {
    {"output_norm", "model.norm", GgufChange::kPlusOne},
    {"attn_norm", "input_layernorm", GgufChange::kPlusOne},
    {"post_attention_norm", "post_attention_layernorm", GgufChange::kPlusOne},
    {"attn_q_norm", "self_attn.q_norm", GgufChange::kPlusOne},
    {"attn_k_norm", "self_attn.k_norm", GgufChange::kPlusOne},
    {"ssm_norm", "linear_attn.norm"},
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate", GgufChange::kRow},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
};
constexpr GgufTensorRule kGgufTiled[] = {
    {"attn_qkv", "linear_attn.in_proj_qkv", GgufChange::kTiledValues},
    {"attn_gate", "linear_attn.in_proj_z", GgufChange::kTiledHeads},
    {"ssm_conv1d", "linear_attn.conv1d", GgufChange::kTiledFilters},
    {"ssm_alpha", "linear_attn.in_proj_a", GgufChange::kTiledHeads},
    {"ssm_beta", "linear_attn.in_proj_b", GgufChange::kTiledHeads},
    {"ssm_a", "linear_attn.A_log!", GgufChange::kTiledNegativeExp},
    {"ssm_dt", "linear_attn.dt_bias!.bias", GgufChange::kTiledHeads},
    {"ssm_out", "linear_attn.out_proj", GgufChange::kTiledColumns},
};
constexpr GgufTensorRule kGgufGrouped[] = {
    {"attn_qkv", "linear_attn.in_proj_qkv"},
    {"attn_gate", "linear_attn.in_proj_z"},
    {"ssm_conv1d", "linear_attn.conv1d", GgufChange::kFilters},
    {"ssm_alpha", "linear_attn.in_proj_a"},
    {"ssm_beta", "linear_attn.in_proj_b"},
    {"ssm_a", "linear_attn.A_log!", GgufChange::kNegativeExp},
    {"ssm_dt", "linear_attn.dt_bias!.bias"},
    {"ssm_out", "linear_attn.out_proj"},
    {"ssm_ba", "linear_attn.", GgufChange::kBetaAlpha},
};

/// A list that says which layers are delta nets counts before their interval.
Status complete_gguf(const GgufModel& model, json::Value& config) {
  SUBBYTE_TRY(const auto flags, gguf_flags(model.keys(), "attention.recurrent_layers"));
  if (flags.empty()) return {};
  json::Value types = json::Value::array();
  const auto layers = config["num_hidden_layers"].get<uint64_t>();
  for (std::size_t i = 0; i < flags.size() && i < layers; ++i) {
    types.push_back(flags[i] ? "linear_attention" : "full_attention");
  }
  config["layer_types"] = std::move(types);
  return {};
}

/// Pair i is of section i modulo 3, of which each has as many as there are.
void add_gguf_keys(const GgufArchitecture& architecture, const ModelConfig& model, GgufKeys& keys) {
  const auto pairs = static_cast<int32_t>(model.rope.dim() / 2);
  const int32_t sections[] = {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0};
  keys.wholes(architecture.key("rope.dimension_sections"), sections);
}

/// Files of Qwen3-Next have its projections apart, as Qwen3.5 has them.
constexpr GgufArchitecture gguf_of(std::string_view name, const ModelType& type,
                                   std::span<const GgufTensorRule> tensors) {
  return {.name = name,
          .model_type = type.name,
          .keys = kGgufKeys,
          .tensors = kGgufTensors,
          .own_tensors = tensors,
          .complete = complete_gguf,
          .add_keys = add_gguf_keys};
}
constexpr GgufArchitecture kGguf[] = {gguf_of("qwen35", kDense, kGgufTiled),
                                      gguf_of("qwen35moe", kMoe, kGgufTiled),
                                      gguf_of("qwen3next", kMoe, kGgufGrouped)};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_KEY("", "partial_rotary_factor", kComputed, "",
                       "absent: 0.25; null: 1; that of rope_parameters counts before it"),
    SUBBYTE_CONFIG_KEY("", "layer_types", kComputed, "", "absent: full_attention_interval says it"),
    SUBBYTE_CONFIG_NUMBER(Own, "", "full_attention_interval", interval, 4, 1, kMaxPositions, ""),
    SUBBYTE_CONFIG_NUMBER(Own, "", "linear_num_key_heads", delta_net.key_heads, 16, 1, kMaxSize,
                          ""),
    SUBBYTE_CONFIG_NUMBER(Own, "", "linear_num_value_heads", delta_net.value_heads, 32, 1, kMaxSize,
                          ""),
    SUBBYTE_CONFIG_NUMBER(Own, "", "linear_key_head_dim", delta_net.key_size, 128, 1, kMaxSize, ""),
    SUBBYTE_CONFIG_NUMBER(Own, "", "linear_value_head_dim", delta_net.value_size, 128, 1, kMaxSize,
                          ""),
    SUBBYTE_CONFIG_NUMBER(Own, "", "linear_conv_kernel_dim", delta_net.taps, 4, 1, kMaxDeltaNetTaps,
                          ""),
    SUBBYTE_CONFIG_KEY("qwen3_5_moe_text", "num_experts", kComputed, "", "absent: 256"),
    SUBBYTE_CONFIG_KEY("qwen3_next", "num_experts", kComputed, "", "absent: 512; 0: none"),
    SUBBYTE_CONFIG_KEY("qwen3_5_moe_text", "num_experts_per_tok", kComputed, "", "absent: 8"),
    SUBBYTE_CONFIG_KEY("qwen3_next", "num_experts_per_tok", kComputed, "", "absent: 10"),
    SUBBYTE_CONFIG_KEY("qwen3_5_moe_text qwen3_next", "moe_intermediate_size", kComputed, "",
                       "absent: 512"),
    SUBBYTE_CONFIG_NUMBER(Own, "qwen3_5_moe_text qwen3_next", "shared_expert_intermediate_size",
                          experts.shared_inner, 512, 1, kMaxWidth, ""),
    SUBBYTE_CONFIG_FLAG(Own, "qwen3_next", "norm_topk_prob", experts.routing.normalises, true, ""),
    SUBBYTE_CONFIG_KEY("qwen3_5_moe_text", "norm_topk_prob", kIgnored, "", "weights add up to 1"),
    SUBBYTE_CONFIG_KEY("qwen3_next", "decoder_sparse_step mlp_only_layers", kComputed, "",
                       "absent: 1, and none"),
    SUBBYTE_CONFIG_KEY("qwen3_5_moe_text", "intermediate_size decoder_sparse_step mlp_only_layers",
                       kIgnored, "", "all layers have experts"),
    SUBBYTE_CONFIG_KEY("", "attn_output_gate output_gate_type", kIgnored, "", "there is a gate"),
    SUBBYTE_CONFIG_KEY("", "mamba_ssm_dtype", kIgnored, "", "states are kept in f32"),
    SUBBYTE_CONFIG_KEY("", "mtp_num_hidden_layers mtp_use_dedicated_embeddings", kIgnored, "",
                       "of the part that drafts, which is not read"),
};

void record(const ModelConfig& config, StepRecorder& step) {
  const Own& own = config.own.as<Own>();
  DeltaNetShape delta_net = own.delta_net;
  delta_net.gives_tiles = step.facts().reads_tiles;
  const auto first = [&](ValueId h, int64_t layer) {
    if (!own.delta_net_layers[layer]) return kNoValue;
    return step.mixer(h, "linear_attn.", DeltaNetOp{.shape = delta_net});
  };
  record_usual_step(
      config, step,
      {.stream = {.norm_offset = 1},
       .attention = {.has_output_bias = false, .norms = HeadsNorm::kEach, .has_gate = true},
       .experts = &own.experts,
       .first = first});
}

// ---- config.json

Status read_layers(const json::Object& config, const ModelConfig& model, Own& own) {
  own.delta_net_layers.resize(model.num_layers);
  for (int64_t i = 0; i < model.num_layers; ++i) {
    own.delta_net_layers[i] = (i + 1) % own.interval != 0;
  }
  constexpr std::string_view kKinds[] = {"full_attention", "linear_attention", "attention"};
  SUBBYTE_TRY(const auto kinds, read_layer_kinds(config, "layer_types", kKinds, model.num_layers));
  for (int64_t i = 0; kinds && i < model.num_layers; ++i) {
    own.delta_net_layers[i] = (*kinds)[i] == 1;
  }
  return {};
}

/// Of Qwen3-Next there may be none.
Status read_mixture(const json::Object& config, const ModelConfig& model, ExpertConfig& experts) {
  const bool is_next = model.model_type == kNext.name;
  const json::Value* const count = config.find("num_experts");
  if (is_next && count != nullptr && *count == 0) {
    experts = {};
    return {};
  }
  experts.count = is_next ? 512 : 256;
  experts.per_token = is_next ? 10 : 8;
  experts.inner = 512;
  SUBBYTE_CHECK(read_experts(config, model, {}, experts));
  if (!is_next) return {};
  SUBBYTE_TRY(experts.layers, read_expert_layers(config, model.num_layers));
  return {};
}

Status read_rest(const json::Object& config, ModelConfig& model, Own& own) {
  SUBBYTE_CHECK(read_layers(config, model, own));
  if (model.model_type != kDense.name) SUBBYTE_CHECK(read_mixture(config, model, own.experts));
  DeltaNetShape& shape = own.delta_net;
  shape.eps = model.rms_norm_eps;
  shape.by_key_head = model.model_type == kNext.name;
  if (shape.value_heads % shape.key_heads != 0) {
    return config.error("config.heads", "linear_num_value_heads",
                        fmt::format("a multiple of linear_num_key_heads ({})", shape.key_heads));
  }
  return {};
}

// ---- synth

// Sources: the config.json files of Qwen/Qwen3.5-* and Qwen/Qwen3-Next-*; those called tiny are
// ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"qwen3.5", "tiny", 256, 512, 4, 4, 2, 64, 0, 512, 480, 2048, true},
    {"qwen3.5", "0.8b", 1024, 3584, 24, 8, 2, 256, 0, 248320, 248044, 262144, true},
    {"qwen3.5", "4b", 2560, 9216, 32, 16, 4, 256, 0, 248320, 248044, 262144, true},
    {"qwen3.5", "9b", 4096, 12288, 32, 16, 4, 256, 0, 248320, 248044, 262144, false},
    {"qwen3.5", "27b", 5120, 17408, 64, 24, 4, 256, 0, 248320, 248044, 262144, false},
    {"qwen3.5-moe", "tiny", 256, 512, 4, 4, 2, 64, 0, 512, 480, 2048, false, 8, 2, 128},
    {"qwen3.5-moe", "35b-a3b", 2048, 512, 40, 16, 2, 256, 0, 248320, 248044, 262144, false, 256, 8,
     512},
    {"qwen3-next", "tiny", 256, 512, 4, 4, 2, 64, 0, 512, 480, 2048, false, 8, 2, 128},
    {"qwen3-next", "80b-a3b", 2048, 5120, 48, 16, 2, 256, 0, 151936, 151643, 262144, false, 512,
     10, 512},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    {"", "", R"({"full_attention_interval": 4,
                 "layer_types": "$each lllf",
                 "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
                 "linear_num_key_heads": 16, "linear_num_value_heads": 32,
                 "linear_value_head_dim": 128,
                 "rope_parameters": {"partial_rotary_factor": 0.25, "rope_theta": 10000000,
                                     "rope_type": "default"}})"},
    {"", "tiny", R"({"linear_key_head_dim": 64, "linear_num_key_heads": 2,
                     "linear_num_value_heads": 4, "linear_value_head_dim": 64})"},
    {"", "0.8b", R"({"linear_num_value_heads": 16})"},
    {"", "27b", R"({"linear_num_value_heads": 48})"},
    {"qwen3.5-moe", "", R"({"model_type": "qwen3_5_moe_text", "intermediate_size": "$none",
                            "num_experts": "$experts", "output_router_logits": false,
                            "router_aux_loss_coef": 0.001,
                            "shared_expert_intermediate_size": "$expert_size"})"},
    {"qwen3-next", "", R"({"model_type": "qwen3_next", "decoder_sparse_step": 1,
                           "mlp_only_layers": [], "norm_topk_prob": true,
                           "num_experts": "$experts", "output_router_logits": false,
                           "router_aux_loss_coef": 0.001,
                           "shared_expert_intermediate_size": "$expert_size"})"},
};

}  // namespace

const ModelFamily qwen3_5_family = {.model_types = kModelTypes,
                                    .gguf = kGguf,
                                    .keys = kKeys,
                                    .rope_keys = kPartRopeKeys,
                                    .read = read_own<Own, kKeys, read_rest>,
                                    .record = record,
                                    .chat = kChat,
                                    .shapes = kShapes,
                                    .shape_keys = kShapeKeys};

}  // namespace subbyte
