// Granite 4: transformers' GraniteMoeHybridForCausalLM. A layer is a block of Mamba 2 or attention,
// mostly without positions, then a dense block, to which experts may be added; with the factors of
// Granite 3.

#include "checkpoints/config/agreement.h"
#include "models/config_keys.h"
#include "models/gguf_config.h"
#include "models/layer_lists.h"
#include "models/mamba_config.h"
#include "models/model_family.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr ModelType kModelTypes[] = {{.name = "granitemoehybrid",
                                      .architecture = "GraniteMoeHybridForCausalLM",
                                      .defaults = {.intermediate_size = 11008,
                                                   .vocab = 32000,
                                                   .heads = 32,
                                                   .eos = 2,
                                                   .sliding = SlidingRule::kOfFamily}}};

constexpr GgufKeyRule kGgufKeys[] = {
    {"attention.scale", "attention_multiplier", "", kGgufFloat},
    {"embedding_scale", "embedding_multiplier", "1.0", kGgufFloat},
    {"residual_scale", "residual_multiplier", "1.0", kGgufFloat},
    {"logit_scale", "logits_scaling", "1.0", kGgufFloat},
    {"attention.head_count_kv", "num_key_value_heads", "", kGgufByLayer},
    {"ssm.conv_kernel", "mamba_d_conv"},
    {"ssm.state_size", "mamba_d_state"},
    {"ssm.group_count", "mamba_n_groups"},
    {"ssm.time_step_rank", "mamba_n_heads"},
    {.name = "ssm.inner_size", .key = "mamba_d_head", .times = "ssm.time_step_rank"},
    {"expert_count", "num_local_experts", "0"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_shared_feed_forward_length", "shared_intermediate_size"},
    {"rope.scaling.finetuned", "position_embedding_type", "", kGgufByFamily},
};
constexpr GgufTensorRule kGgufTensors[] = {
    {"ssm_in", "mamba.in_proj"},
    {"ssm_conv1d", "mamba.conv1d", GgufChange::kFilters},
    {"ssm_a", "mamba.A_log!", GgufChange::kNegativeExpColumn},
    {"ssm_d", "mamba.D!", GgufChange::kColumn},
    {"ssm_dt", "mamba.dt_bias!.bias"},
    {"ssm_norm", "mamba.norm", GgufChange::kGroups},
    {"ssm_out", "mamba.out_proj"},
    {"ffn_gate_inp", "block_sparse_moe.router.layer"},
    {"ffn_gate_exps", "block_sparse_moe.experts.gate_proj", GgufChange::kExperts},
    {"ffn_up_exps", "block_sparse_moe.experts.up_proj", GgufChange::kExperts},
    {"ffn_down_exps", "block_sparse_moe.output_linear", GgufChange::kExperts},
    {"ffn_gate_shexp", "shared_mlp.gate_proj"},
    {"ffn_up_shexp", "shared_mlp.up_proj"},
    {"ffn_down_shexp", "shared_mlp.output_linear"},
};
constexpr GgufTensorRule kGgufDenseTensors[] = {
    {"ffn_gate", "shared_mlp.gate_proj"},
    {"ffn_up", "shared_mlp.up_proj"},
    {"ffn_down", "shared_mlp.output_linear"},
};

constexpr GgufBias kGgufBiases[] = {{"attention_bias", "attn_q"},
                                    {"mamba_conv_bias", "ssm_conv1d"}};

/// Layers without keys are blocks of Mamba 2.
Status complete_gguf(const GgufModel& model, json::Value& config) {
  const GgufFile& file = model.keys();
  const auto layers = config["num_hidden_layers"].get<uint64_t>();
  SUBBYTE_TRY(const auto inner, gguf_integer(file, "ssm.inner_size"));
  const auto hidden = config["hidden_size"].get<int64_t>();
  if (hidden > 0 && *inner % hidden == 0) {
    config["mamba_expand"] = static_cast<uint64_t>(*inner / hidden);
  }
  if (!config.contains("shared_intermediate_size")) {
    config["shared_intermediate_size"] = config["intermediate_size"];
  }
  SUBBYTE_TRY(const auto turns, gguf_flags(file, "rope.scaling.finetuned"));
  const bool turns_all = turns.empty() || turns.front();
  config["position_embedding_type"] = turns_all ? "rope" : "nope";
  if (turns_all && config.contains("partial_rotary_factor")) {
    return file.error("gguf.value", "granitehybrid.rope.dimension_count", "all of a head");
  }
  SUBBYTE_TRY(const auto keys, gguf_integers(file, "attention.head_count_kv", layers));
  json::Value kinds = json::Value::array();
  for (uint64_t i = 0; i < layers; ++i) {
    kinds.push_back(keys.empty() || keys[i] > 0 ? "attention" : "mamba");
  }
  config["layer_types"] = std::move(kinds);
  return {};
}

void add_gguf_keys(const GgufArchitecture& architecture, const ModelConfig& model, GgufKeys& keys);
bool has_experts(const ModelConfig& model);

constexpr GgufArchitecture kGguf[] = {{.name = "granitehybrid",
                                       .model_type = "granitemoehybrid",
                                       .with = "expert_count",
                                       .pairs_heads = true,
                                       .keys = kGgufKeys,
                                       .tensors = kGgufTensors,
                                       .complete = complete_gguf,
                                       .add_keys = add_gguf_keys,
                                       .holds = has_experts,
                                       .biases = kGgufBiases},
                                      {.name = "granitehybrid",
                                       .model_type = "granitemoehybrid",
                                       .pairs_heads = true,
                                       .keys = kGgufKeys,
                                       .tensors = kGgufTensors,
                                       .own_tensors = kGgufDenseTensors,
                                       .complete = complete_gguf,
                                       .add_keys = add_gguf_keys,
                                       .biases = kGgufBiases}};

struct Own {
  std::vector<bool> attends;  // [num_layers]; the others are blocks of Mamba 2
  MambaConfig mamba;
  int64_t experts = 0;  // 0: none
  int64_t per_token = 0;
  int64_t shared_inner = 0;
  bool turns = false;
  float embedding_factor = 1;
  float residual_factor = 1;
  float score_scale = 1;
  float logits_scaling = 1;

  bool operator==(const Own&) const = default;
};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_KEY("", "intermediate_size", kComputed, "", "of experts; absent: 11008"),
    SUBBYTE_CONFIG_KEY("", "layer_types", kComputed, "", "absent: all are blocks of Mamba 2"),
    SUBBYTE_CONFIG_KEY("", "layers_block_type", kComputed, "", "the older name of layer_types"),
    SUBBYTE_CONFIG_KEY("", "position_embedding_type", kComputed, "",
                       "\"rope\": heads turn; else and absent: they do not"),
    SUBBYTE_CONFIG_NUMBER(Own, "", "num_local_experts", experts, 8, 0, kMaxExperts, "0: none"),
    SUBBYTE_CONFIG_KEY("", "num_experts_per_tok", kComputed, "", "absent: 2"),
    SUBBYTE_CONFIG_NUMBER(Own, "", "shared_intermediate_size", shared_inner, 1024, 1, kMaxWidth,
                          ""),
    SUBBYTE_CONFIG_NUMBER(Own, "", "embedding_multiplier", embedding_factor, 1, 1e-6, 1e6, ""),
    SUBBYTE_CONFIG_NUMBER(Own, "", "residual_multiplier", residual_factor, 1, 1e-6, 1e6, ""),
    SUBBYTE_CONFIG_NUMBER(Own, "", "attention_multiplier", score_scale, 1, 1e-6, 1e6, "of scores"),
    SUBBYTE_CONFIG_NUMBER(Own, "", "logits_scaling", logits_scaling, 1, 1e-6, 1e6,
                          "logits are divided by it"),
    SUBBYTE_CONFIG_KEY("", "normalization_function", kIgnored, "", "norms are those of Granite"),
    SUBBYTE_CONFIG_KEY("", "router_aux_loss_coef init_method", kIgnored, "", "of training"),
};

bool has_experts(const ModelConfig& model) {
  return model.own.as<Own>().experts > 0;
}

/// Without experts the block has the size that they would have.
void add_gguf_keys(const GgufArchitecture& architecture, const ModelConfig& model, GgufKeys& keys) {
  const Own& own = model.own.as<Own>();
  keys.flag(architecture.key("rope.scaling.finetuned"), own.turns);
  if (own.experts > 0) return;
  keys.whole(architecture.key("feed_forward_length"), static_cast<uint32_t>(own.shared_inner));
  keys.whole(architecture.key("expert_count"), 0);
  keys.whole(architecture.key("expert_used_count"), static_cast<uint32_t>(own.per_token));
}

Status read_rest(const json::Object& config, ModelConfig& model, Own& own) {
  constexpr std::string_view kKinds[] = {"linear_attention", "full_attention", "mamba",
                                         "attention"};
  SUBBYTE_TRY(own.mamba, read_mamba(config, model));
  SUBBYTE_TRY(const auto key,
              one_name(config, {"layer_types", "layers_block_type"}, "config.contradiction"));
  SUBBYTE_TRY(const auto kinds, read_layer_kinds(config, key, kKinds, model.num_layers));
  own.attends.assign(static_cast<std::size_t>(model.num_layers), false);
  for (int64_t i = 0; kinds && i < model.num_layers; ++i) own.attends[i] = (*kinds)[i] % 2 == 1;
  const int64_t most = own.experts > 0 ? own.experts : kMaxExperts;
  SUBBYTE_TRY(const auto per_token, config.integer("num_experts_per_tok", own.experts > 0, most));
  SUBBYTE_TRY(const auto positions, config.string("position_embedding_type"));
  own.per_token = per_token.value_or(2);
  own.turns = positions == "rope";
  return {};
}

/// The dense block, and experts.
ValueId second_block(const ModelConfig& config, StepRecorder& step, ValueId h) {
  const Own& own = config.own.as<Own>();
  const auto dense = [&] {
    return step.gated_block(h, {.inner = own.shared_inner,
                                .prefix = "shared_mlp.",
                                .joined = "input_linear",
                                .down = "output_linear"});
  };
  if (own.experts == 0) return dense();
  const ValueId chosen = step.mixture(h, {.prefix = "block_sparse_moe.",
                                          .router = "router.layer",
                                          .experts = own.experts,
                                          .use = {.per_token = own.per_token},
                                          .inner = config.intermediate_size,
                                          .joined = "input_linear",
                                          .down = "output_linear"});
  return step.add("shared_mlp.added", SigmoidGateOp{.x = dense(), .base = chosen});
}

void record(const ModelConfig& config, StepRecorder& step) {
  const Own& own = config.own.as<Own>();
  UsualStep usual;
  usual.stream.embedding_factor = own.embedding_factor;
  usual.stream.residual_factor = own.residual_factor;
  usual.score_scale = own.score_scale;
  usual.logits.factor = 1 / own.logits_scaling;
  usual.of_layer = [&](StepRecorder::Attention& attention, int64_t) {
    if (!own.turns) attention.rope = nullptr;
  };
  usual.first = [&](ValueId h, int64_t layer) {
    if (own.attends[static_cast<std::size_t>(layer)]) return kNoValue;
    return step.mixer(h, "mamba.", own.mamba.op(), own.mamba.has_bias);
  };
  usual.second = [&](ValueId h, int64_t) { return second_block(config, step, h); };
  record_usual_step(config, step, std::move(usual));
}

// ---- synth

// Sources: the config.json files of ibm-granite/granite-4.0-h-*; tiny, and where added tokens
// begin, are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"granitemoehybrid", "tiny", 256, 256, 2, 4, 2, 64, 0, 512, 480, 2048, true, 4, 2, 256},
    {"granitemoehybrid", "h-tiny", 1536, 512, 40, 12, 4, 128, 0, 100352, 100256, 131072, true, 64,
     6, 512},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    kMambaShape,
    {"", "", R"({"head_dim": "$none", "attention_multiplier": 0.0078125,
                 "embedding_multiplier": 12.0, "logits_scaling": 6.0,
                 "layer_types": "$each mmmmmammmm",
                 "moe_intermediate_size": "$none", "num_local_experts": "$experts",
                 "position_embedding_type": "nope", "residual_multiplier": 0.22,
                 "shared_intermediate_size": "$expert_size*2"})"},
    {"", "tiny", R"({"attention_multiplier": 0.015625,
                     "layer_types": "$each ma"})"},
};

}  // namespace

const ModelFamily granitemoehybrid_family = {.model_types = kModelTypes,
                                             .gguf = kGguf,
                                             .keys = kKeys,
                                             .shared_keys = {kMambaKeys},
                                             .read = read_own<Own, kKeys, read_rest>,
                                             .record = record,
                                             .shapes = kShapes,
                                             .shape_keys = kShapeKeys};

}  // namespace subbyte
