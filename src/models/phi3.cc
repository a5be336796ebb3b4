// Phi-3, Phi-3.5 and Phi-4: transformers' Phi3ForCausalLM. Attention by groups and a gated block,
// each after an RMS norm; files have queries, keys and values joined, and gate and up. In models
// for 128k positions each frequency has a factor of its own, and another for long contexts.

#include <utility>

#include "models/config_keys.h"
#include "models/model_family.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr ModelType kModelTypes[] = {{.name = "phi3",
                                      .architecture = "Phi3ForCausalLM",
                                      .defaults = {.max_positions = 4096,
                                                   .rms_norm_eps = 1e-5,
                                                   .eos = 32000,
                                                   .sliding = SlidingRule::kWithWindow}}};

constexpr GgufKeyRule kGgufKeys[] = {
    {"attention.sliding_window", "sliding_window", "null"},
};
constexpr GgufTensorRule kGgufTensors[] = {{"ffn_up", "mlp.gate_up_proj"},
                                           {"", "self_attn.q_proj"},
                                           {"rope_factors_long", ""},
                                           {"rope_factors_short", ""}};

/// A window of 0 is none.
Status complete_gguf(const GgufModel& /*model*/, json::Value& config) {
  if (config["sliding_window"] == json::Value(0)) config["sliding_window"] = nullptr;
  return {};
}

void add_gguf_keys(const GgufArchitecture& /*phi3*/, const ModelConfig& model, GgufKeys& keys) {
  keys.whole("phi3.attention.sliding_window", static_cast<uint32_t>(model.windows.front()));
}

constexpr GgufArchitecture kGguf[] = {{.name = "phi3",
                                       .model_type = "phi3",
                                       .keys = kGgufKeys,
                                       .tensors = kGgufTensors,
                                       .complete = complete_gguf,
                                       .add_keys = add_gguf_keys}};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_KEY(
        "", "max_position_embeddings", kComputed, "",
        "absent: 4096; beside the original positions it says the factor of cos and sin"),
    SUBBYTE_CONFIG_KEY("", "partial_rotary_factor", kComputed, "",
                       "absent: 1; that of rope_parameters counts before it"),
    SUBBYTE_CONFIG_KEY(
        "", "original_max_position_embeddings", kComputed, "",
        "absent: 4096; all positions of a text that has become longer have other factors, and are "
        "computed again then"),
    SUBBYTE_CONFIG_KEY("", "sliding_window", kComputed, "", "absent or null: none"),
    SUBBYTE_CONFIG_KEY("", "layer_types", kComputed, "", "what sliding_window says of all layers"),
    SUBBYTE_CONFIG_KEY("", "attention_bias lm_head_bias mlp_bias", kIgnored, "",
                       "there are no biases"),
    SUBBYTE_CONFIG_KEY("", "embd_pdrop resid_pdrop", kIgnored, "", "of training"),
    SUBBYTE_CONFIG_KEY("", "full_attn_mod", kIgnored, "", "sliding_window says it"),
    SUBBYTE_CONFIG_KEY("", "interpolate_factor", kIgnored, "", "rope_scaling says it"),
};

constexpr json::KeyRule kRopeKeys[] = {
    SUBBYTE_ROPE_KEY("partial_rotary_factor", kComputed, "", "absent: that beside the section"),
    SUBBYTE_ROPE_KEY("original_max_position_embeddings", kComputed, "",
                     "absent: that beside the section"),
    SUBBYTE_ROPE_KEY("factor", kComputed, "",
                     "absent: max_position_embeddings / original_max_position_embeddings"),
    SUBBYTE_ROPE_KEY("attention_factor", kComputed, "",
                     "absent: by factor and original_max_position_embeddings"),
    SUBBYTE_ROPE_KEY("short_factor", kComputed, "", "of texts up to the original positions"),
    SUBBYTE_ROPE_KEY("long_factor", kComputed, "", "of longer ones"),
    SUBBYTE_ROPE_KEY("beta_fast", kIgnored, "", "of other scalings"),
    SUBBYTE_ROPE_KEY("beta_slow", kIgnored, "", "of other scalings"),
    SUBBYTE_ROPE_KEY("high_freq_factor", kIgnored, "", "of other scalings"),
    SUBBYTE_ROPE_KEY("low_freq_factor", kIgnored, "", "of other scalings"),
    SUBBYTE_ROPE_KEY("mscale", kIgnored, "", "of other scalings"),
    SUBBYTE_ROPE_KEY("mscale_all_dim", kIgnored, "", "of other scalings"),
    SUBBYTE_ROPE_KEY("truncate", kIgnored, "", "of other scalings"),
};

// Older names of the same.
constexpr RopeKind kRopeKinds[] = {
    {"longrope", read_long_rope}, {"su", read_long_rope}, {"yarn", read_long_rope}};

void record(const ModelConfig& config, StepRecorder& step) {
  record_usual_step(config, step);
}

// Sources: the config.json files of microsoft/Phi-3-mini-4k-instruct, phi-4 and
// Phi-4-mini-instruct; tiny, where added tokens begin, and the factors of long texts are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"phi3", "tiny", 256,  512,   2,  4,  2,  64,  0, 512,    480,    2048,  false},
    {"phi3", "mini", 3072, 8192,  32, 32, 32, 96,  0, 32064,  32000,  4096,  false},
    {"phi3", "4",    5120, 17920, 40, 40, 10, 128, 0, 100352, 100256, 16384, false},
    {"phi3", "4-mini", 3072, 8192, 32, 24, 8, 128, 0, 200064, 199999, 131072, true},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    {"", "", R"({"head_dim": "$none", "embd_pdrop": 0.0, "resid_pdrop": 0.0, "rope_scaling": null,
                 "original_max_position_embeddings": "$positions", "rope_theta": 10000.0,
                 "sliding_window": null})"},
    {"", "4-mini", R"({"original_max_position_embeddings": 4096, "partial_rotary_factor": 0.75,
                       "rope_scaling": {"type": "longrope",
      "long_factor": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0,
          15.0, 16.0, 17.0, 18.0, 19.0, 20.0, 21.0, 22.0, 23.0, 24.0, 25.0, 26.0, 27.0, 28.0, 29.0,
          30.0, 31.0, 32.0, 33.0, 34.0, 35.0, 36.0, 37.0, 38.0, 39.0, 40.0, 41.0, 42.0, 43.0, 44.0,
          45.0, 46.0, 47.0, 48.0],
      "short_factor": [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0,
          1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0,
          1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]}})"},
};

}  // namespace

const ModelFamily phi3_family = {.model_types = kModelTypes,
                                 .gguf = kGguf,
                                 .keys = kKeys,
                                 .rope_keys = kRopeKeys,
                                 .rope_kinds = kRopeKinds,
                                 .record = record,
                                 .shapes = kShapes,
                                 .shape_keys = kShapeKeys};

}  // namespace subbyte
