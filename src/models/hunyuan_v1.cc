// Hunyuan 0.5B to 7B: transformers' HunYuanDenseV1ForCausalLM. It is like Llama, with norms of each
// head of queries and keys after it has turned, and a rope whose base is times a power of a number.
// Hunyuan-A13B, HunYuanMoEV1ForCausalLM, has a mixture of experts in all layers, beside a block of
// the same size.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checkpoints/config/agreement.h"
#include "models/config_keys.h"
#include "models/expert_config.h"
#include "models/model_family.h"
#include "models/rope_config.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr ModelType kModelTypes[] = {{.name = "hunyuan_v1_dense",
                                      .architecture = "HunYuanDenseV1ForCausalLM",
                                      .defaults = {.rms_norm_eps = 1e-5, .eos = 2}},
                                     {.name = "hunyuan_v1_moe",
                                      .architecture = "HunYuanMoEV1ForCausalLM",
                                      .defaults = {.rms_norm_eps = 1e-5, .eos = 2}}};
constexpr const ModelType& kMoe = kModelTypes[1];
constexpr const char* kChosen = "moe_topk";

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_KEY("", "attention_head_dim", kIgnored, "", "head_dim says it"),
    SUBBYTE_CONFIG_KEY("", "cla_share_factor use_cla", kIgnored, "",
                       "each layer has keys of its own"),
    SUBBYTE_CONFIG_KEY("", "eod_token_id", kIgnored, "", "eos_token_id ends a text"),
    SUBBYTE_CONFIG_KEY("", "mlp_bias", kIgnored, "", "there are none"),
    SUBBYTE_CONFIG_KEY("", "norm_type", kIgnored, "", "all are RMS norms"),
    SUBBYTE_CONFIG_KEY("hunyuan_v1_dense", "num_experts", kIgnored, "", "there is one block"),
    SUBBYTE_CONFIG_KEY("hunyuan_v1_moe", "intermediate_size", kComputed, "",
                       "of an expert, and of the block beside them; must be there"),
    SUBBYTE_CONFIG_KEY("hunyuan_v1_moe", "num_experts", kComputed, "", "absent: 1"),
    SUBBYTE_CONFIG_KEY("hunyuan_v1_moe", "num_local_experts", kComputed, "", "num_experts"),
    SUBBYTE_CONFIG_KEY("hunyuan_v1_moe", "moe_topk", kComputed, "",
                       "experts of a token, or a list of the same for each layer; absent: 1"),
    SUBBYTE_CONFIG_KEY("hunyuan_v1_moe", "num_experts_per_tok", kComputed, "", "moe_topk"),
    SUBBYTE_CONFIG_KEY("hunyuan_v1_moe", "moe_intermediate_size num_shared_expert", kIgnored, "",
                       "intermediate_size says it"),
    SUBBYTE_CONFIG_KEY("hunyuan_v1_moe", "moe_layer_num_skipped", kIgnored, "",
                       "all layers have experts"),
    SUBBYTE_CONFIG_KEY("hunyuan_v1_moe", "use_mixed_mlp_moe", kIgnored, "",
                       "experts always have a block beside them"),
    SUBBYTE_CONFIG_KEY("hunyuan_v1_moe", "norm_topk_prob routed_scaling_factor", kIgnored, "",
                       "weights always add up to 1"),
    SUBBYTE_CONFIG_KEY("hunyuan_v1_moe", "group_limited_greedy n_group topk_group", kIgnored, "",
                       "experts are in no groups"),
    SUBBYTE_CONFIG_KEY("hunyuan_v1_moe", "use_mla", kIgnored, "", "attention is by groups"),
    SUBBYTE_CONFIG_KEY("", "org_vocab_size", kIgnored, "", "vocab_size says it"),
    SUBBYTE_CONFIG_KEY("", "pretraining_tp", kIgnored, "", "how it is computed"),
    SUBBYTE_CONFIG_KEY("", "use_qk_norm", kIgnored, "", "all heads have their norms"),
};

constexpr json::KeyRule kRopeKeys[] = {
    SUBBYTE_ROPE_KEY("alpha", kComputed, "",
                     "of \"dynamic\", which must have it: rope_theta is times "
                     "alpha^(d / (d - 2)), d numbers of a head"),
    SUBBYTE_ROPE_KEY("factor", kComputed, "", "not of \"dynamic\""),
    SUBBYTE_ROPE_KEY("beta_fast", kComputed, "", "of YaRN; absent: 32; not of \"dynamic\""),
    SUBBYTE_ROPE_KEY("beta_slow", kComputed, "", "of YaRN; absent: 1; not of \"dynamic\""),
};

/// A larger base, whatever the length of a text.
Result<ScaledRope> read_alpha_rope(const RopeInput& input) {
  SUBBYTE_TRY(const auto alpha, input.section.number("alpha", 1e-6, 1e9));
  if (!alpha) return input.section.error("config.rope", "alpha", "a number above 0");
  if (input.dim <= 2) return input.config.error("config.heads", "head_dim", "more than 2");
  const auto dim = static_cast<double>(input.dim);
  return ScaledRope{Rope(input.dim, input.theta * std::pow(*alpha, dim / (dim - 2))),
                    input.max_positions};
}
constexpr RopeKind kRopeKinds[] = {{"dynamic", read_alpha_rope}};

constexpr GgufTensorRule kGgufTensors[] = {
    {"attn_q_norm", "self_attn.query_layernorm"},
    {"attn_k_norm", "self_attn.key_layernorm"},
};
constexpr GgufKeyRule kGgufMoeKeys[] = {
    {"expert_count", "num_experts"},
    {"expert_used_count", "moe_topk"},
};
constexpr GgufTensorRule kGgufMoeTensors[] = {
    {"ffn_gate_inp", "mlp.gate.wg"},
    {"ffn_gate_shexp", "mlp.shared_mlp.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_mlp.up_proj"},
    {"ffn_down_shexp", "mlp.shared_mlp.down_proj"},
};

void add_gguf_keys(const GgufArchitecture& architecture, const ModelConfig& model, GgufKeys& keys);

constexpr GgufArchitecture kGguf[] = {{.name = "hunyuan-dense",
                                       .model_type = "hunyuan_v1_dense",
                                       .tensors = kGgufTensors,
                                       .biases = kUsualGgufBiases},
                                      {.name = "hunyuan-moe",
                                       .model_type = "hunyuan_v1_moe",
                                       .keys = kGgufMoeKeys,
                                       .tensors = kGgufTensors,
                                       .own_tensors = kGgufMoeTensors,
                                       .add_keys = add_gguf_keys,
                                       .biases = kUsualGgufBiases}};

/// Experts, and what every token goes to, have the size of a block.
void add_gguf_keys(const GgufArchitecture& architecture, const ModelConfig& model, GgufKeys& keys) {
  const auto inner = static_cast<uint32_t>(model.intermediate_size);
  const auto per_token = static_cast<uint32_t>(model.own.as<ExpertConfig>().per_token);
  keys.whole(architecture.key("expert_used_count"), per_token);  // config.json has a list
  keys.whole(architecture.key("expert_feed_forward_length"), inner);
  keys.whole(architecture.key("expert_shared_feed_forward_length"), inner);
}

/// How many experts a token goes to: a number, or the same for each layer.
Result<int64_t> read_chosen(const json::Object& config, const ModelConfig& model, int64_t experts) {
  SUBBYTE_TRY(const std::string_view key,
              one_name(config, {kChosen, "num_experts_per_tok"}, "config.contradiction"));
  const json::Value* const found = config.find(key);
  if (found == nullptr || !found->is_array()) {
    SUBBYTE_TRY(const auto number, config.integer(key, 1, experts));
    return number.value_or(1);
  }
  const auto is_first = [&](const json::Value& number) { return number == (*found)[0]; };
  const bool is_of_each = std::ssize(*found) >= model.num_layers;
  if (is_of_each && std::ranges::all_of(*found, is_first) &&
      json::is_integer((*found)[0], 1, experts)) {
    return (*found)[0].get<int64_t>();
  }
  return config.error("config.experts", key,
                      fmt::format("the same number from 1 to {} for each layer", experts));
}

Status read_rest(const json::Object& config, ModelConfig& model, ExpertConfig& experts) {
  if (model.model_type != kMoe.name) return {};
  SUBBYTE_TRY(const std::string_view key,
              one_name(config, {"num_experts", "num_local_experts"}, "config.contradiction"));
  SUBBYTE_TRY(const auto count, config.integer(key, 1, kMaxExperts));
  experts.count = count.value_or(1);
  SUBBYTE_TRY(experts.per_token, read_chosen(config, model, experts.count));
  experts.inner = experts.shared_inner = model.intermediate_size;
  experts.layers.assign(static_cast<std::size_t>(model.num_layers), true);
  return {};
}

void record(const ModelConfig& config, StepRecorder& step) {
  record_usual_step(
      config, step,
      {.attention = {.norms = HeadsNorm::kEachAfterRope,
                     .q_norm = "query_layernorm",
                     .k_norm = "key_layernorm"},
       .experts = &config.own.as<ExpertConfig>(),
       .mixture = {.router = "gate.wg", .shared = {.name = "shared_mlp", .has_gate = false}}});
}

// Sources: the config.json files of tencent/Hunyuan-*-Instruct; those called tiny, and where added
// tokens begin, are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"hunyuan-dense", "tiny", 256,  512,   2,  4,  2, 64,  0, 512,    480,    2048,   true},
    {"hunyuan-dense", "0.5b", 1024, 3584,  24, 8,  4, 128, 0, 120818, 120000, 262144, true},
    {"hunyuan-dense", "1.8b", 2048, 6144,  32, 16, 4, 128, 0, 120818, 120000, 262144, true},
    {"hunyuan-dense", "4b",   3072, 8192,  36, 32, 8, 128, 0, 120818, 120000, 262144, true},
    {"hunyuan-dense", "7b",   4096, 14336, 32, 32, 8, 128, 0, 128167, 127957, 262144, true},
    {"hunyuan-moe", "tiny", 256,  128,  2,  4,  2, 64,  0, 512,    480,    2048,  true, 8,  2},
    {"hunyuan-moe", "a13b", 4096, 3072, 32, 32, 8, 128, 0, 128167, 127957, 32768, true, 64, 8},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    {"", "", R"({"rope_scaling": {"alpha": 1000.0, "factor": 1.0, "type": "dynamic"},
                 "rope_theta": 10000.0, "use_qk_norm": true})"},
    {"hunyuan-moe", "", R"({"model_type": "hunyuan_v1_moe", "num_experts": "$experts",
                            "moe_topk": "$per_token",
                            "num_experts_per_tok": "$none"})"},
};

}  // namespace

const ModelFamily hunyuan_v1_family = {.model_types = kModelTypes,
                                       .gguf = kGguf,
                                       .keys = kKeys,
                                       .rope_keys = kRopeKeys,
                                       .rope_kinds = kRopeKinds,
                                       .read = read_own<ExpertConfig, kKeys, read_rest>,
                                       .record = record,
                                       .shapes = kShapes,
                                       .shape_keys = kShapeKeys};

}  // namespace subbyte
