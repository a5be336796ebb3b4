// LFM2: transformers' Lfm2ForCausalLM. Most layers are short convolutions between two gates, the
// others attention by groups with norms of each head; then a gated block, each after an RMS norm.
// With experts, Lfm2MoeForCausalLM: the first layers are dense, the others have a mixture, whose
// router has sigmoids and biases that only choose.

#include <fmt/format.h>

#include "models/config_keys.h"
#include "models/expert_config.h"
#include "models/gguf_config.h"
#include "models/layer_lists.h"
#include "models/model_family.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr ConfigDefaults defaults_with(int64_t intermediate_size) {
  return {.intermediate_size = intermediate_size,
          .kv_heads = 8,
          .max_positions = 128000,
          .rope_theta = 1000000,
          .tie_word_embeddings = true,
          .eos = 2,
          .sliding = SlidingRule::kOfFamily};
}
constexpr ModelType kModelTypes[] = {
    {.name = "lfm2", .architecture = "Lfm2ForCausalLM", .defaults = defaults_with(12288)},
    {.name = "lfm2_moe", .architecture = "Lfm2MoeForCausalLM", .defaults = defaults_with(7168)}};
constexpr const ModelType& kMoe = kModelTypes[1];
constexpr int64_t kMaxTaps = 16;

struct Own {
  std::vector<bool> are_conv;  // [num_layers]
  int64_t taps = 3;            // of the filters
  bool has_bias = false;       // of convolutions
  bool has_choice_bias = true;
  ExpertConfig experts = {};

  bool operator==(const Own&) const = default;
};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_NUMBER(ModelConfig, "", "norm_eps", rms_norm_eps, 1e-5, 1e-12, 1.0, ""),
    SUBBYTE_CONFIG_FLAG(ModelConfig, "", "tie_embedding", tie_word_embeddings, kKept,
                        "tie_word_embeddings, older"),
    SUBBYTE_CONFIG_NUMBER(Own, "", "conv_L_cache", taps, 3, 2, kMaxTaps, "taps of the filters"),
    SUBBYTE_CONFIG_FLAG(Own, "", "conv_bias", has_bias, false, ""),
    SUBBYTE_CONFIG_KEY("", "attention_bias", kIgnored, "", "there are no biases"),
    SUBBYTE_CONFIG_KEY("", "rms_norm_eps", kIgnored, "", "norm_eps says it"),
    SUBBYTE_CONFIG_KEY("", "use_pos_enc", kIgnored, "", "all heads turn"),
    SUBBYTE_CONFIG_KEY("lfm2", "block_ff_dim", kComputed, "", "intermediate_size, older"),
    SUBBYTE_CONFIG_KEY("lfm2", "block_auto_adjust_ff_dim", kComputed, "",
                       "two thirds of intermediate_size are the inner size; absent: true"),
    SUBBYTE_CONFIG_KEY("lfm2", "block_ffn_dim_multiplier", kComputed, "",
                       "of these two thirds; absent: 1; null: they are not rounded up either"),
    SUBBYTE_CONFIG_KEY("lfm2", "block_multiple_of", kComputed, "",
                       "to a multiple of which they are rounded up; absent: 256"),
    SUBBYTE_CONFIG_KEY("lfm2", "layer_types", kComputed, "", "absent: full_attn_idxs says it"),
    SUBBYTE_CONFIG_KEY("lfm2", "full_attn_idxs", kComputed, "",
                       "layers with attention; absent or null: all"),
    SUBBYTE_CONFIG_KEY("lfm2", "block_norm_eps", kIgnored, "", "norm_eps says it"),
    SUBBYTE_CONFIG_KEY("lfm2", "block_dim conv_dim conv_dim_out", kIgnored, "",
                       "hidden_size says it"),
    SUBBYTE_CONFIG_KEY("lfm2", "num_heads", kIgnored, "", "num_attention_heads says it"),
    SUBBYTE_CONFIG_KEY("lfm2", "block_use_swiglu", kIgnored, "", "all blocks have their gate"),
    SUBBYTE_CONFIG_KEY("lfm2",
                       "block_mlp_init_scale block_out_init_scale block_use_xavier_init "
                       "conv_use_xavier_init",
                       kIgnored, "", "of training"),
    SUBBYTE_CONFIG_KEY("lfm2_moe", "moe_intermediate_size", kComputed, "", "absent: 1792"),
    SUBBYTE_CONFIG_KEY("lfm2_moe", "num_experts", kComputed, "", "absent: 32"),
    SUBBYTE_CONFIG_KEY("lfm2_moe", "num_experts_per_tok", kComputed, "", "absent: 4"),
    SUBBYTE_CONFIG_KEY("lfm2_moe", "num_dense_layers", kComputed, "", "absent: 2"),
    SUBBYTE_CONFIG_FLAG(Own, "lfm2_moe", "use_expert_bias", has_choice_bias, true, ""),
    SUBBYTE_CONFIG_KEY("lfm2_moe", "norm_topk_prob", kComputed, "", "absent: true"),
    SUBBYTE_CONFIG_KEY("lfm2_moe", "routed_scaling_factor", kComputed, "", "absent: 1"),
    SUBBYTE_CONFIG_KEY("lfm2_moe", "layer_types", kComputed, "", "must be there"),
    SUBBYTE_CONFIG_KEY("lfm2_moe", "hidden_act", kIgnored, "", "gates are silu"),
};

// ---- GGUF

constexpr std::string_view kGgufHeads = "attention.head_count_kv";
constexpr GgufKeyRule kGgufKeys[] = {
    {"attention.layer_norm_rms_epsilon", "norm_eps"},
    {"attention.head_count_kv", "num_key_value_heads", "", kGgufByLayer},
    {"shortconv.l_cache", "conv_L_cache"},
};
constexpr GgufKeyRule kGgufMoeKeys[] = {
    {"attention.layer_norm_rms_epsilon", "norm_eps"},
    {"attention.head_count_kv", "num_key_value_heads", "", kGgufByLayer},
    {"shortconv.l_cache", "conv_L_cache"},
    {"expert_count", "num_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"leading_dense_block_count", "num_dense_layers", "0"},
};
constexpr GgufTensorRule kGgufTensors[] = {
    {"token_embd_norm", "model.embedding_norm"},
    {"output_norm", "model.embedding_norm"},
    {"attn_norm", "operator_norm"},
    {"attn_q_norm", "self_attn.q_layernorm"},
    {"attn_k_norm", "self_attn.k_layernorm"},
    {"attn_output", "self_attn.out_proj"},
    {"shortconv.conv", "conv.conv", GgufChange::kFilters},
    {"shortconv.in_proj", "conv.in_proj"},
    {"shortconv.out_proj", "conv.out_proj"},
    {"ffn_norm", "ffn_norm"},
    {"ffn_gate", "feed_forward.w1"},
    {"ffn_up", "feed_forward.w3"},
    {"ffn_down", "feed_forward.w2"},
};
constexpr GgufTensorRule kGgufExperts[] = {
    {"ffn_gate_inp", "feed_forward.gate"},
    {"exp_probs_b", "feed_forward.expert_bias!.bias"},
    {"ffn_gate_exps", "feed_forward.experts.w1", GgufChange::kExperts},
    {"ffn_up_exps", "feed_forward.experts.w3", GgufChange::kExperts},
    {"ffn_down_exps", "feed_forward.experts.w2", GgufChange::kExperts},
};

/// Layers without heads of keys are convolutions.
Status complete_moe_gguf(const GgufModel& model, json::Value& config) {
  const auto layers = config["num_hidden_layers"].get<uint64_t>();
  SUBBYTE_TRY(const auto heads, gguf_integers(model.keys(), kGgufHeads, layers));
  for (const int64_t count : heads) {
    config["layer_types"].push_back(count == 0 ? "conv" : "full_attention");
  }
  return {};
}

/// Sizes are as they are.
Status complete_gguf(const GgufModel& model, json::Value& config) {
  config["block_auto_adjust_ff_dim"] = false;
  return complete_moe_gguf(model, config);
}

constexpr GgufArchitecture kGguf[] = {{.name = "lfm2",
                                       .model_type = "lfm2",
                                       .keys = kGgufKeys,
                                       .tensors = kGgufTensors,
                                       .complete = complete_gguf},
                                      {.name = "lfm2moe",
                                       .model_type = "lfm2_moe",
                                       .gating = 2,
                                       .keys = kGgufMoeKeys,
                                       .tensors = kGgufTensors,
                                       .own_tensors = kGgufExperts,
                                       .complete = complete_moe_gguf}};

void record(const ModelConfig& config, StepRecorder& step) {
  const Own& own = config.own.as<Own>();
  const ShortConvOp conv = {
      .channels = config.hidden_size, .taps = own.taps, .has_bias = own.has_bias};
  UsualStep usual;
  usual.names = {.before_first = "operator_norm", .before_second = "ffn_norm"};
  usual.attention.norms = HeadsNorm::kEach;
  usual.attention.q_norm = "q_layernorm";
  usual.attention.k_norm = "k_layernorm";
  usual.attention.output = "out_proj";
  usual.gated = {.prefix = "feed_forward.", .gate_name = "w1", .up = "w3", .down = "w2"};
  usual.experts = &own.experts;
  usual.mixture = {.prefix = "feed_forward.",
                   .choice_bias = own.has_choice_bias ? "expert_bias" : "",
                   .gate_name = "experts.w1",
                   .up = "experts.w3",
                   .down = "experts.w2"};
  usual.logits.norm = "embedding_norm";
  usual.first = [&](ValueId h, int64_t layer) {
    return own.are_conv[layer] ? step.mixer(h, "conv.", conv, own.has_bias) : kNoValue;
  };
  record_usual_step(config, step, std::move(usual));
}

// ---- config.json

/// layer_types, else all but those of full_attn_idxs, else none.
Result<std::vector<bool>> read_conv_layers(const json::Object& config, int64_t num_layers) {
  constexpr std::string_view kKinds[] = {"full_attention", "conv"};
  SUBBYTE_TRY(const auto kinds, read_layer_kinds(config, "layer_types", kKinds, num_layers));
  if (kinds) return std::vector<bool>(kinds->begin(), kinds->end());
  SUBBYTE_TRY(auto layers, read_layer_numbers(config, "full_attn_idxs", num_layers));
  if (config.has("full_attn_idxs")) layers.flip();
  return layers;
}

/// The inner size of blocks.
Status read_inner_size(const json::Object& config, ModelConfig& model) {
  SUBBYTE_TRY(const auto older, config.integer("block_ff_dim", 1, kMaxWidth));
  SUBBYTE_TRY(const auto adjusts, config.boolean("block_auto_adjust_ff_dim"));
  SUBBYTE_TRY(const auto factor, config.number("block_ffn_dim_multiplier", 1e-3, 1e3));
  SUBBYTE_TRY(const auto multiple, config.integer("block_multiple_of", 1, kMaxWidth));
  int64_t inner = older.value_or(model.intermediate_size);
  if (adjusts.value_or(true)) {
    inner = 2 * inner / 3;
    const bool is_null = config.find("block_ffn_dim_multiplier") != nullptr && !factor;
    if (!is_null) {
      inner = static_cast<int64_t>(factor.value_or(1) * static_cast<double>(inner));
      const int64_t step = multiple.value_or(256);
      inner = (inner + step - 1) / step * step;
    }
  }
  model.intermediate_size = inner;
  if (inner >= 1 && inner <= kMaxWidth) return {};
  return config.error("config.intermediate_size", "intermediate_size",
                      fmt::format("an inner size from 1 to {}, not {}", kMaxWidth, inner));
}

Status read_mixture(const json::Object& config, const ModelConfig& model, ExpertConfig& experts) {
  experts = {.count = 32, .per_token = 4, .inner = 1792};
  experts.routing = {.scores = Routing::Scores::kSigmoid, .added = 1e-6f};
  SUBBYTE_CHECK(read_experts(config, model, {}, experts));
  SUBBYTE_CHECK(read_routing(config, experts));
  SUBBYTE_TRY(experts.layers, read_layers_after(config, "num_dense_layers", 2, model.num_layers));
  return {};
}

Status read_rest(const json::Object& config, ModelConfig& model, Own& own) {
  const bool is_moe = model.model_type == kMoe.name;
  if (is_moe && !config.has("layer_types")) {
    return config.error("json.missing", "layer_types", "an array of strings");
  }
  SUBBYTE_TRY(own.are_conv, read_conv_layers(config, model.num_layers));
  return is_moe ? read_mixture(config, model, own.experts) : read_inner_size(config, model);
}

// ---- synth

// Sources: the config.json files of LiquidAI/LFM2-*; tiny, and where added tokens begin, are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"lfm2", "tiny", 256,  768,   3,  4,  2, 64, 0, 512,   480,   2048,   true},
    {"lfm2", "350m", 1024, 6656,  16, 16, 8, 64, 0, 65536, 64400, 128000, true},
    {"lfm2", "700m", 1536, 10240, 16, 24, 8, 64, 0, 65536, 64400, 128000, true},
    {"lfm2", "1.2b", 2048, 12288, 16, 32, 8, 64, 0, 65536, 64400, 128000, true},
    {"lfm2-moe", "tiny",    256,  512,  4,  4,  2, 64, 0, 512,   480,   2048,   true, 8,  2, 128},
    {"lfm2-moe", "8b-a1b",  2048, 7168, 24, 32, 8, 64, 0, 65536, 64400, 128000, true, 32, 4, 1792},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    {"", "", R"({"attention_bias": "$none", "head_dim": "$none", "hidden_act": "$none",
                 "rms_norm_eps": "$none", "conv_L_cache": 3, "conv_bias": false, "norm_eps": 1e-5,
                 "rope_theta": 1000000.0})"},
    {"lfm2", "", R"({"block_auto_adjust_ff_dim": true, "block_ffn_dim_multiplier": 1.0,
                     "block_multiple_of": 256,
                     "layer_types": "$each ccfccfccfcfcfcfc"})"},
    {"lfm2-moe", "", R"({"model_type": "lfm2_moe", "layer_types": "$each ccfcccfcccfcccfcccfccfcc",
                         "norm_topk_prob": true, "num_dense_layers": 2,
                         "num_experts": "$experts", "routed_scaling_factor": 1.0,
                         "use_expert_bias": true})"},
};

}  // namespace

const ModelFamily lfm2_family = {.model_types = kModelTypes,
                                 .gguf = kGguf,
                                 .keys = kKeys,
                                 .read = read_own<Own, kKeys, read_rest>,
                                 .record = record,
                                 .shapes = kShapes,
                                 .shape_keys = kShapeKeys};

}  // namespace subbyte
