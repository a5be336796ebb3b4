// LFM2 with experts: transformers' Lfm2MoeForCausalLM. It is LFM2 whose first layers are dense; the
// others have a mixture of experts, whose router has sigmoids and biases that only choose.

#include "models/config_keys.h"
#include "models/conv_layers.h"
#include "models/expert_config.h"
#include "models/model_family.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr ModelType kModelTypes[] = {{.name = "lfm2_moe",
                                      .architecture = "Lfm2MoeForCausalLM",
                                      .defaults = {.intermediate_size = 7168,
                                                   .kv_heads = 8,
                                                   .max_positions = 128000,
                                                   .rope_theta = 1000000,
                                                   .tie_word_embeddings = true,
                                                   .eos = 2,
                                                   .sliding = SlidingRule::kOfFamily}}};

constexpr GgufKeyRule kGgufKeys[] = {
    {"attention.layer_norm_rms_epsilon", "norm_eps"},
    {"attention.head_count_kv", "num_key_value_heads", "", kGgufByLayer},
    {"shortconv.l_cache", "conv_L_cache"},
    {"expert_count", "num_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"leading_dense_block_count", "num_dense_layers", "0"},
};
constexpr GgufTensorRule kGgufExperts[] = {
    {"ffn_gate_inp", "feed_forward.gate"},
    {"exp_probs_b", "feed_forward.expert_bias!.bias"},
    {"ffn_gate_exps", "feed_forward.experts.w1", GgufChange::kExperts},
    {"ffn_up_exps", "feed_forward.experts.w3", GgufChange::kExperts},
    {"ffn_down_exps", "feed_forward.experts.w2", GgufChange::kExperts},
};

struct Own {
  ConvLayers layers;
  bool has_choice_bias = true;
  ExpertConfig experts = {};

  bool operator==(const Own&) const = default;
};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_KEY("", "moe_intermediate_size", kComputed, "", "absent: 1792"),
    SUBBYTE_CONFIG_KEY("", "num_experts", kComputed, "", "absent: 32"),
    SUBBYTE_CONFIG_KEY("", "num_experts_per_tok", kComputed, "", "absent: 4"),
    SUBBYTE_CONFIG_KEY("", "num_dense_layers", kComputed, "", "absent: 2"),
    SUBBYTE_CONFIG_FLAG(Own, "", "use_expert_bias", has_choice_bias, true, ""),
    SUBBYTE_CONFIG_KEY("", "norm_topk_prob", kComputed, "", "absent: true"),
    SUBBYTE_CONFIG_KEY("", "routed_scaling_factor", kComputed, "", "absent: 1"),
    SUBBYTE_CONFIG_KEY("", "layer_types", kComputed, "", "must be there"),
    SUBBYTE_CONFIG_KEY("", "hidden_act", kIgnored, "", "gates are silu"),
};

constexpr GgufArchitecture kGguf[] = {{.name = "lfm2moe",
                                       .model_type = "lfm2_moe",
                                       .gating = 2,
                                       .keys = kGgufKeys,
                                       .tensors = kConvGgufTensors,
                                       .own_tensors = kGgufExperts,
                                       .complete = add_conv_layers}};

Status read_rest(const json::Object& config, ModelConfig& model, Own& own) {
  if (!config.has("layer_types")) {
    return config.error("json.missing", "layer_types", "an array of strings");
  }
  SUBBYTE_TRY(own.layers, read_conv_layers(config, model));
  own.experts = {.count = 32, .per_token = 4, .inner = 1792};
  own.experts.routing = {.scores = Routing::Scores::kSigmoid, .added = 1e-6f};
  SUBBYTE_CHECK(read_experts(config, model, {}, own.experts));
  SUBBYTE_CHECK(read_routing(config, own.experts));
  SUBBYTE_TRY(own.experts.layers,
              read_layers_after(config, "num_dense_layers", 2, model.num_layers));
  return {};
}

void record(const ModelConfig& config, StepRecorder& step) {
  const Own& own = config.own.as<Own>();
  record_conv_layers(config, step, own.layers,
                     {.experts = &own.experts,
                      .mixture = {.prefix = "feed_forward.",
                                  .choice_bias = own.has_choice_bias ? "expert_bias" : "",
                                  .gate_name = "experts.w1",
                                  .up = "experts.w3",
                                  .down = "experts.w2"}});
}

// Sources: the config.json file of LiquidAI/LFM2-8B-A1B; tiny, and where added tokens begin, are
// ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"lfm2-moe", "tiny",    256,  512,  4,  4,  2, 64, 0, 512,   480,   2048,   true, 8,  2, 128},
    {"lfm2-moe", "8b-a1b",  2048, 7168, 24, 32, 8, 64, 0, 65536, 64400, 128000, true, 32, 4, 1792},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    kConvShape,
    {"", "", R"({"layer_types": "$each ccfcccfcccfcccfcccfccfcc",
                 "norm_topk_prob": true, "num_dense_layers": 2,
                 "num_experts": "$experts", "routed_scaling_factor": 1.0,
                 "use_expert_bias": true})"},
};

}  // namespace

const ModelFamily lfm2_moe_family = {.model_types = kModelTypes,
                                     .gguf = kGguf,
                                     .keys = kKeys,
                                     .shared_keys = {kConvKeys},
                                     .read = read_own<Own, kKeys, read_rest>,
                                     .record = record,
                                     .shapes = kShapes,
                                     .shape_keys = kShapeKeys};

}  // namespace subbyte
