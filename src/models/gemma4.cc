// Gemma 4: transformers' Gemma4ForCausalLM. Most layers slide; those that are full have heads, keys
// and a rope of their own, and their values may be their keys. Queries, keys and values have norms,
// blocks have some before and after them, and a number scales what a layer gives. Small models add
// inputs to each layer, rows of a large second table, and their last layers read the keys and
// values of earlier ones. Others have experts beside the block of each layer, with their own norms.
// Larger models see, too: they have the text model inside.

#include <cmath>

#include "models/config_keys.h"
#include "models/expert_config.h"
#include "models/gguf_config.h"
#include "models/gguf_rope.h"
#include "models/layer_heads.h"
#include "models/layer_inputs.h"
#include "models/model_family.h"
#include "models/rope_config.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr const char* kFullRope =
    R"({"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"})";
constexpr ModelType kModelTypes[] = {{.name = "gemma4_text",
                                      .architecture = "Gemma4ForCausalLM",
                                      .wrapper = "gemma4",
                                      .wrapper_ties = true,
                                      .defaults = {.intermediate_size = 9216,
                                                   .vocab = 262144,
                                                   .heads = 8,
                                                   .kv_heads = 4,
                                                   .head_dim = 256,
                                                   .max_positions = 131072,
                                                   .rope_theta = 1000000,
                                                   .rope_section = kFullRope,
                                                   .tie_word_embeddings = true,
                                                   .eos = 1,
                                                   .activation_key = "hidden_activation",
                                                   .gate = Gate::kGelu,
                                                   .sliding = SlidingRule::kAllBut,
                                                   .sliding_window = 512,
                                                   .full_every = 6,
                                                   .has_sliding_rope = true}}};
constexpr double kSlidingTheta = 10000;
constexpr int64_t kFullHeadDim = 512;

constexpr GgufKeyRule kGgufKeys[] = {
    {"attention.head_count_kv", "num_key_value_heads", "", kGgufByFamily | kGgufByLayer},
    {"feed_forward_length", "intermediate_size", "", kGgufByFamily | kGgufByLayer},
    {"attention.key_length", "per_layer_config", "", kGgufByFamily | kGgufByLayer},
    {"attention.value_length", "per_layer_config", "", kGgufByFamily | kGgufByLayer},
    {"attention.key_length_swa", "head_dim", "", kGgufByLayer},
    {"attention.value_length_swa", "head_dim", "", kGgufByLayer},
    {"rope.dimension_count_swa", "head_dim", "", kGgufByLayer},
    {"attention.sliding_window", "sliding_window"},
    {"attention.sliding_window_pattern", "layer_types", "", kGgufByFamily | kGgufByLayer},
    {"attention.shared_kv_layers", "num_kv_shared_layers", "0"},
    {"embedding_length_per_layer_input", "hidden_size_per_layer_input", "0"},
    {"final_logit_softcapping", "final_logit_softcapping", "30.0"},
    {"rope.freq_base", "rope_parameters", "", kGgufByFamily},
    {"rope.freq_base_swa", "rope_parameters", "", kGgufByFamily | kGgufByLayer},
    {"expert_count", "num_experts"},
    {"expert_used_count", "top_k_experts"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
};
constexpr GgufTensorRule kGgufTensors[] = {
    {"rope_freqs", ""},
    {"per_layer_token_embd", "model.embed_tokens_per_layer"},
    {"per_layer_model_proj", "model.per_layer_model_projection"},
    {"per_layer_proj_norm", "model.per_layer_projection_norm"},
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
    {"inp_gate", "per_layer_input_gate"},
    {"proj", "per_layer_projection"},
    {"post_norm", "post_per_layer_input_norm"},
    {"layer_output_scale", "layer_scalar!.weight"},
    {"ffn_gate_inp", "router.proj"},
    {"ffn_gate_inp.scale", "router.scale!"},
    {"ffn_gate_up_exps", "experts.gate_up_proj", GgufChange::kExperts},
    {"ffn_gate_exps", "experts.gate_proj", GgufChange::kExperts},
    {"ffn_up_exps", "experts.up_proj", GgufChange::kExperts},
    {"ffn_down_exps", "experts.down_proj", GgufChange::kExperts},
    {"ffn_down_exps.scale", "router.per_expert_scale!"},
    {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
    {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
    {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
};

Status complete_gguf(const GgufModel& model, json::Value& config) {
  SUBBYTE_CHECK(add_layer_heads(model, config));
  SUBBYTE_TRY(const auto full, gguf_number(model.keys(), "rope.freq_base"));
  SUBBYTE_TRY(const auto sliding, gguf_number(model.keys(), "rope.freq_base_swa"));
  SUBBYTE_TRY(const double part, turning_part_of(model));
  config["vocab_size_per_layer_input"] = config["vocab_size"];
  config["enable_moe_block"] = config.contains("num_experts") && config["num_experts"] != 0;
  config["rope_parameters"] = {
      {"full_attention",
       {{"rope_type", "proportional"},
        {"rope_theta", full.value_or(1000000)},
        {"partial_rotary_factor", part}}},
      {"sliding_attention",
       {{"rope_type", "default"}, {"rope_theta", sliding.value_or(kSlidingTheta)}}}};
  return {};
}

constexpr GgufArchitecture kGguf[] = {{.name = "gemma4",
                                       .model_type = "gemma4_text",
                                       .keys = kGgufKeys,
                                       .tensors = kGgufTensors,
                                       .complete = complete_gguf}};

struct Own {
  Rope sliding_rope;
  LayerHeads heads;
  int64_t input_size = 0;  // of a layer; 0: it has none
  ExpertConfig experts;    // beside the blocks; of count 0: none
  float logit_cap = 0;     // 0: none

  bool operator==(const Own&) const = default;
};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_KEY("", "hidden_activation", kComputed, "", "absent: gelu_pytorch_tanh"),
    SUBBYTE_CONFIG_KEY("", "sliding_window", kComputed, "", "absent: 512"),
    SUBBYTE_CONFIG_KEY("", "layer_types", kComputed, "",
                       "absent: each sixth layer is full; the last one always is"),
    SUBBYTE_CONFIG_NUMBER(Own, "", "final_logit_softcapping", logit_cap, 0, 1e-3, 1e6, ""),
    SUBBYTE_CONFIG_KEY("", "global_head_dim", kComputed, "", "of full layers; absent: 512"),
    SUBBYTE_CONFIG_KEY("", "num_global_key_value_heads", kComputed, "",
                       "of full layers, with attention_k_eq_v; absent: num_key_value_heads"),
    SUBBYTE_CONFIG_KEY("", "per_layer_config", kComputed, "",
                       "both for each layer that is full, instead of these"),
    SUBBYTE_CONFIG_KEY("", "attention_k_eq_v", kComputed, "",
                       "values of layers that are full are their keys; absent: false"),
    SUBBYTE_CONFIG_KEY("", "num_kv_shared_layers", kComputed, "",
                       "the last ones, with the keys and values of others; absent: 0"),
    SUBBYTE_CONFIG_KEY("", "use_double_wide_mlp", kComputed, "",
                       "twice intermediate_size where keys are of another layer; absent: false"),
    SUBBYTE_CONFIG_NUMBER(Own, "", "hidden_size_per_layer_input", input_size, 256, 0, kMaxWidth,
                          "0: layers have no inputs of their own"),
    SUBBYTE_CONFIG_KEY("", "vocab_size_per_layer_input", kComputed, "",
                       "vocab_size, where layers have inputs; absent: 262144"),
    SUBBYTE_CONFIG_KEY("", "enable_moe_block", kComputed, "",
                       "experts beside the block of each layer; absent: false"),
    SUBBYTE_CONFIG_KEY("", "num_experts top_k_experts moe_intermediate_size", kComputed, "",
                       "with enable_moe_block"),
    SUBBYTE_CONFIG_KEY("", "use_bidirectional_attention", kRefused, "\"vision\"", "later tokens"),
};

constexpr json::KeyRule kRopeKeys[] = {
    SUBBYTE_ROPE_KEY("partial_rotary_factor", kComputed, "", "of proportional; absent: 1"),
};

constexpr RopeKind kRopeKinds[] = {{"proportional", read_proportional_rope}};

// ---- config.json

Status read_ropes(const json::Object& config, ModelConfig& model, Own& own) {
  ModelConfig sliding = model;
  sliding.rope = Rope(model.head_dim, kSlidingTheta);
  SUBBYTE_TRY(own.sliding_rope, read_sliding_rope(config, sliding, kSlidingTheta));
  ModelConfig full = model;
  full.head_dim = own.heads.full_head_dim;
  SUBBYTE_CHECK(read_rope(config, full));
  model.rope = full.rope;
  return {};
}

Status read_rest(const json::Object& config, ModelConfig& model, Own& own) {
  model.windows.back() = 0;
  SUBBYTE_TRY(own.heads, read_layer_heads(config, model, kFullHeadDim));
  if (own.input_size > 0) SUBBYTE_CHECK(check_layer_inputs(config, model));
  SUBBYTE_TRY(const auto has_experts, config.boolean("enable_moe_block"));
  if (has_experts.value_or(false)) {
    SUBBYTE_CHECK(read_experts(config, model, {.per_token = "top_k_experts"}, own.experts));
  }
  return read_ropes(config, model, own);
}

// ---- the step

/// The sum of the dense block and of experts beside it, each after its norm. Experts read another
/// norm of the stream than the block reads, `h`, and their router a third one. Norms are next to
/// each other, where machines join them.
ValueId with_experts(const ModelConfig& config, StepRecorder& step, ValueId x, ValueId h,
                     const StepRecorder::GatedBlock& block) {
  const float width = static_cast<float>(config.hidden_size);
  const ValueId scaled = step.scaled_norm("router.scale", x, 1 / std::sqrt(width));
  const ValueId of_experts = step.add_norm("pre_feedforward_layernorm_2", x, kNoValue);
  ValueId dense = step.gated_block(h, block);
  const ValueId mixed = step.mixture(of_experts, config.own.as<Own>().experts,
                                     {.prefix = "",
                                      .router = "router.proj",
                                      .router_input = scaled,
                                      .factors = "router.per_expert_scale",
                                      .use = {.gate = Gate::kGelu}});
  dense = step.norm("post_feedforward_layernorm_1", dense);
  return step.sum("experts.added", dense, step.norm("post_feedforward_layernorm_2", mixed));
}

void record(const ModelConfig& config, StepRecorder& step) {
  const Own& own = config.own.as<Own>();
  const auto full_rope = step.rope();
  const auto sliding_rope = std::make_shared<const Rope>(own.sliding_rope);
  ValueId x = step.embed({.embedding_factor = step.root_of(config.hidden_size)});
  const ValueId inputs =
      own.input_size > 0 ? record_layer_inputs(config, step, x, own.input_size) : kNoValue;
  ValueId delta = kNoValue;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    step.begin_layer(i);
    StepRecorder::Attention attention = layer_attention(config, own.heads, i, step);
    attention.shape.scale = 1;
    attention.rope = config.windows[i] > 0 ? sliding_rope : full_rope;
    attention.norms = HeadsNorm::kEach;
    attention.norms_values = true;
    ValueId h = step.add_norm("input_layernorm", x, delta);
    delta = step.norm("post_attention_layernorm", step.attention(h, attention));
    h = step.add_norm("pre_feedforward_layernorm", x, delta);
    const StepRecorder::GatedBlock block = {.inner = inner_size_of(config, own.heads, i),
                                            .gate = Gate::kGelu};
    delta = own.experts.count > 0 ? with_experts(config, step, x, h, block)
                                  : step.gated_block(h, block);
    delta = step.norm("post_feedforward_layernorm", delta);
    if (own.input_size > 0) {
      delta = record_layer_input(config, step, x, delta, inputs, own.input_size, i);
    }
    step.scale_next_sum("layer_scalar");
  }
  step.finish(x, delta, {.cap = own.logit_cap});
}

// ---- synth

// Sources: the config.json files of google/gemma-4-*; tiny, and where added tokens begin, are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"gemma4", "tiny", 256,  512,   6,  4,  2,  64,  8,    512,    480,    2048,   true},
    {"gemma4", "e2b",  1536, 6144,  35, 8,  1,  256, 512,  262144, 262000, 131072, true},
    {"gemma4", "e4b",  2560, 10240, 42, 8,  2,  256, 512,  262144, 262000, 131072, true},
    {"gemma4-moe", "tiny", 256, 512, 4, 4, 2, 64, 8, 512, 480, 2048, true, 8, 2, 128},
    {"gemma4-moe", "26b-a4b", 2816, 2112, 30, 16, 8, 256, 1024, 262144, 262000, 262144, true, 128,
     8, 704},
    {"gemma4", "31b",  5376, 21504, 60, 32, 16, 256, 1024, 262144, 262000, 262144, true},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    {"", "", R"({"hidden_act": "$none", "attention_k_eq_v": false, "enable_moe_block": false,
                 "final_logit_softcapping": 30.0, "global_head_dim": 512,
                 "hidden_activation": "gelu_pytorch_tanh", "hidden_size_per_layer_input": 0,
                 "layer_types": "$each sssssf",
                 "num_global_key_value_heads": null, "num_kv_shared_layers": 0,
                 "rope_parameters": {
                     "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0,
                                        "rope_type": "proportional"},
                     "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}},
                 "sliding_window": "$window", "use_double_wide_mlp": false,
                 "vocab_size_per_layer_input": "$vocabulary"})"},
    {"", "tiny", R"({"global_head_dim": 128,
                     "layer_types": "$each ssf"})"},
    {"", "e2b", R"({"num_kv_shared_layers": "$layers-15",
                    "layer_types": "$each ssssf"})"},
    {"gemma4", "tiny", R"({"num_kv_shared_layers": "$layers-4"})"},
    {"gemma4", "tiny e2b", R"({"use_double_wide_mlp": true})"},
    {"gemma4", "e4b", R"({"num_kv_shared_layers": "$layers-24"})"},
    {"gemma4", "tiny e2b e4b", R"({"hidden_size_per_layer_input": 256})"},
    {"gemma4", "31b", R"({"attention_k_eq_v": true, "num_global_key_value_heads": 4})"},
    {"gemma4-moe", "", R"({"attention_k_eq_v": true, "enable_moe_block": true,
                           "num_experts": "$experts", "num_experts_per_tok": "$none",
                           "num_global_key_value_heads": 2, "top_k_experts": "$per_token"})"},
    {"gemma4-moe", "tiny", R"({"num_global_key_value_heads": 1,
                               "layer_types": "$each ssff"})"},
};

}  // namespace

const ModelFamily gemma4_family = {.model_types = kModelTypes,
                                   .gguf = kGguf,
                                   .keys = kKeys,
                                   .rope_keys = kRopeKeys,
                                   .rope_kinds = kRopeKinds,
                                   .read = read_own<Own, kKeys, read_rest>,
                                   .record = record,
                                   .shapes = kShapes,
                                   .shape_keys = kShapeKeys};

}  // namespace subbyte
