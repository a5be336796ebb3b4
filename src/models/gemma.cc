// Gemma 2 and 3: transformers' Gemma2ForCausalLM and Gemma3ForCausalLM. Norms with factors 1 + w
// before and after each block, a block with the tanh form of GELU, an embedding times the root of
// its width, which is the head, too. Of Gemma 2 every other layer slides, scores and logits have
// caps; of Gemma 3 five of six slide, with a rope of their own, and queries and keys are normalised
// per head. Its larger models see, too: they have the text model inside.

#include <cmath>

#include "models/config_keys.h"
#include "models/gguf_config.h"
#include "models/gguf_rope.h"
#include "models/model_family.h"
#include "models/rope_config.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr ModelType kModelTypes[] = {{.name = "gemma2",
                                      .architecture = "Gemma2ForCausalLM",
                                      .defaults = {.kv_heads = 4,
                                                   .head_dim = 256,
                                                   .max_positions = 8192,
                                                   .tie_word_embeddings = true,
                                                   .eos = 1,
                                                   .activation_key = "hidden_activation",
                                                   .gate = Gate::kGelu,
                                                   .sliding = SlidingRule::kAllBut,
                                                   .sliding_window = 4096}},
                                     {.name = "gemma3_text",
                                      .architecture = "Gemma3ForCausalLM",
                                      .wrapper = "gemma3",
                                      .wrapper_ties = true,
                                      .defaults = {.vocab = 262208,
                                                   .heads = 8,
                                                   .kv_heads = 4,
                                                   .head_dim = 256,
                                                   .max_positions = 131072,
                                                   .rope_theta = 1000000,
                                                   .tie_word_embeddings = true,
                                                   .eos = 1,
                                                   .activation_key = "hidden_activation",
                                                   .gate = Gate::kGelu,
                                                   .sliding = SlidingRule::kAllBut,
                                                   .sliding_window = 4096,
                                                   .full_every = 6,
                                                   .full_every_key = "sliding_window_pattern",
                                                   .has_sliding_rope = true}}};
constexpr const ModelType& kThird = kModelTypes[1];
constexpr double kSlidingTheta = 10000;

struct Own {
  bool is_third = false;
  Rope sliding_rope;
  float score_scale = 0;
  float score_cap = 0;  // 0: none
  float logit_cap = 0;

  bool operator==(const Own&) const = default;
};

constexpr GgufKeyRule kGgufKeys[] = {
    {"attn_logit_softcapping", "attn_logit_softcapping", "50.0", kGgufFloat},
    {"final_logit_softcapping", "final_logit_softcapping", "30.0", kGgufFloat},
    {"attention.sliding_window", "sliding_window", "4096"},
};
constexpr GgufKeyRule kThirdGgufKeys[] = {
    {"final_logit_softcapping", "final_logit_softcapping", "null", kGgufFloat},
    {"attention.sliding_window", "sliding_window", "null"},
    {"attention.sliding_window_pattern", "layer_types", "", kGgufByFamily | kGgufByLayer},
    {"rope.freq_base_swa", "rope_local_base_freq", "10000.0", kGgufFloat | kGgufByLayer},
};
constexpr GgufTensorRule kGgufTensors[] = {
    {"output_norm", "model.norm", GgufChange::kPlusOne},
    {"attn_norm", "input_layernorm", GgufChange::kPlusOne},
    {"post_attention_norm", "post_attention_layernorm", GgufChange::kPlusOne},
    {"ffn_norm", "pre_feedforward_layernorm", GgufChange::kPlusOne},
    {"post_ffw_norm", "post_feedforward_layernorm", GgufChange::kPlusOne},
    {"attn_q_norm", "self_attn.q_norm", GgufChange::kPlusOne},
    {"attn_k_norm", "self_attn.k_norm", GgufChange::kPlusOne},
};

/// No key says how scores are scaled: by the size of a head, but in the largest model.
void add_score_scale(json::Value& config, int64_t layers_of_largest) {
  const bool is_largest = config["num_hidden_layers"] == json::Value(layers_of_largest);
  const auto number = [&](const char* key) { return config[key].get<double>(); };
  config["query_pre_attn_scalar"] =
      is_largest ? number("hidden_size") / number("num_attention_heads") : number("head_dim");
}

Status complete_gguf(const GgufModel& /*model*/, json::Value& config) {
  add_score_scale(config, 46);
  return {};
}

Status complete_third_gguf(const GgufModel& /*model*/, json::Value& config) {
  add_score_scale(config, 62);
  return {};
}

constexpr GgufArchitecture kGguf[] = {{.name = "gemma2",
                                       .model_type = "gemma2",
                                       .keys = kGgufKeys,
                                       .tensors = kGgufTensors,
                                       .complete = complete_gguf},
                                      {.name = "gemma3",
                                       .model_type = "gemma3_text",
                                       .keys = kThirdGgufKeys,
                                       .tensors = kGgufTensors,
                                       .complete = complete_third_gguf}};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_KEY("", "hidden_activation", kComputed, "",
                       "gelu_pytorch_tanh, which it is where it is absent"),
    SUBBYTE_CONFIG_KEY("", "hidden_act", kIgnored, "", "hidden_activation says it"),
    SUBBYTE_CONFIG_NUMBER(Own, "", "query_pre_attn_scalar", score_scale, 256, 1e-3, 1e6, ""),
    SUBBYTE_CONFIG_KEY("gemma2", "attn_logit_softcapping", kComputed, "", "absent: 50; null: none"),
    SUBBYTE_CONFIG_KEY("gemma2", "final_logit_softcapping", kComputed, "",
                       "absent: 30; null: none"),
    SUBBYTE_CONFIG_KEY("gemma3_text", "attn_logit_softcapping final_logit_softcapping", kComputed,
                       "", "absent: none"),
    SUBBYTE_CONFIG_KEY("gemma3_text", "sliding_window_pattern", kComputed, "",
                       "absent: 6, each sixth layer is full"),
    SUBBYTE_CONFIG_KEY("gemma3_text", "_sliding_window_pattern", kIgnored, "",
                       "layer_types says it"),
    SUBBYTE_CONFIG_KEY("gemma3_text", "rope_local_base_freq", kComputed, "",
                       "rope_theta of layers that slide, older; absent: 10000"),
    SUBBYTE_CONFIG_KEY("", "sliding_window", kComputed, "", "absent: 4096; null: none"),
    SUBBYTE_CONFIG_KEY("gemma2", "layer_types", kComputed, "", "absent: every other layer slides"),
    SUBBYTE_CONFIG_KEY("gemma3_text", "layer_types", kComputed, "",
                       "absent: by sliding_window_pattern"),
    SUBBYTE_CONFIG_KEY("", "use_bidirectional_attention", kRefused, "false", "later tokens"),
    SUBBYTE_CONFIG_KEY("", "sliding_window_size", kIgnored, "", "sliding_window, older"),
    SUBBYTE_CONFIG_KEY("", "cache_implementation", kIgnored, "", "how it is computed"),
};

/// A cap that null takes away.
Result<float> read_cap(const json::Object& config, const char* key, double absent) {
  SUBBYTE_TRY(const auto cap, config.number(key, 1e-3, 1e6));
  const bool is_null = !cap && config.find(key) != nullptr;
  return is_null ? 0.0f : static_cast<float>(cap.value_or(absent));
}

Status read_rest(const json::Object& config, ModelConfig& model, Own& own) {
  own.score_scale = static_cast<float>(1 / std::sqrt(double{own.score_scale}));
  own.is_third = model.model_type == kThird.name;
  SUBBYTE_TRY(own.score_cap, read_cap(config, "attn_logit_softcapping", own.is_third ? 0 : 50));
  SUBBYTE_TRY(own.logit_cap, read_cap(config, "final_logit_softcapping", own.is_third ? 0 : 30));
  own.sliding_rope = model.rope;
  if (own.is_third) {
    SUBBYTE_TRY(const auto theta, config.number("rope_local_base_freq", 1, 1e15));
    SUBBYTE_TRY(own.sliding_rope, read_sliding_rope(config, model, theta.value_or(kSlidingTheta)));
  }
  return {};
}

void record(const ModelConfig& config, StepRecorder& step) {
  const Own& own = config.own.as<Own>();
  record_usual_step(
      config, step,
      {.stream = {.embedding_factor = step.root_of(config.hidden_size), .norm_offset = 1},
       .norms = BlockNorms::kAround,
       .attention = {.norms = own.is_third ? HeadsNorm::kEach : HeadsNorm::kNone},
       .sliding_rope = &own.sliding_rope,
       .score_scale = own.score_scale,
       .score_cap = own.score_cap,
       .gated = {.gate = Gate::kGelu},
       .logits = {.cap = own.logit_cap}});
}

// Sources: the config.json files of google/gemma-2-* and gemma-3-*; tiny, and where added
// tokens begin, are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"gemma2", "tiny", 256,  512,   2,  4,  2,  64,  8,    512,    480,    2048, true},
    {"gemma2", "2b",   2304, 9216,  26, 8,  4,  256, 4096, 256000, 255000, 8192, true},
    {"gemma2", "9b",   3584, 14336, 42, 16, 8,  256, 4096, 256000, 255000, 8192, true},
    {"gemma2", "27b",  4608, 36864, 46, 32, 16, 128, 4096, 256000, 255000, 8192, true},
    {"gemma3", "tiny", 256,  512,   6,  4,  2,  64,  8,    512,    480,    2048, true},
    {"gemma3", "1b",   1152, 6912,  26, 4,  1,  256, 512,  262144, 262000, 32768, true},
    {"gemma3", "4b",   2560, 10240, 34, 8,  4,  256, 1024, 262208, 262000, 131072, true},
    {"gemma3", "12b",  3840, 15360, 48, 16, 8,  256, 1024, 262208, 262000, 131072, true},
    {"gemma3", "27b",  5376, 21504, 62, 32, 16, 128, 1024, 262208, 262000, 131072, true},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    {"", "", R"({"hidden_act": "$none", "hidden_activation": "gelu_pytorch_tanh",
                 "query_pre_attn_scalar": "$head_dim", "sliding_window": "$window"})"},
    {"gemma2", "", R"({"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
                       "rope_theta": 10000.0})"},
    {"gemma2", "27b", R"({"query_pre_attn_scalar": 144})"},
    {"gemma3", "", R"({"model_type": "gemma3_text", "attn_logit_softcapping": null,
                       "final_logit_softcapping": null, "rope_local_base_freq": 10000.0,
                       "rope_theta": 1000000.0})"},
    {"gemma3", "4b 12b 27b", R"({"rope_scaling": {"factor": 8.0, "rope_type": "linear"}})"},
    {"gemma3", "27b", R"({"query_pre_attn_scalar": 168})"},
};

}  // namespace

const ModelFamily gemma_family = {.model_types = kModelTypes,
                                  .gguf = kGguf,
                                  .keys = kKeys,
                                  .read = read_own<Own, kKeys, read_rest>,
                                  .record = record,
                                  .shapes = kShapes,
                                  .shape_keys = kShapeKeys};

}  // namespace subbyte
