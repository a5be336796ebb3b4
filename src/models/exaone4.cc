// EXAONE 4.0: transformers' Exaone4ForCausalLM. Blocks read the residual stream as it is, and what
// they give is normalised before it is added; so is each head of queries and keys. Where three of
// four layers slide, heads of the others do not turn.

#include "models/config_keys.h"
#include "models/gguf_config.h"
#include "models/gguf_rope.h"
#include "models/model_family.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr int64_t kFullEvery = 4;
constexpr ModelType kModelTypes[] = {{.name = "exaone4",
                                      .architecture = "Exaone4ForCausalLM",
                                      .defaults = {.kv_heads = 32,
                                                   .rms_norm_eps = 1e-5,
                                                   .eos = 2,
                                                   .sliding = SlidingRule::kAllBut,
                                                   .sliding_window = 4096,
                                                   .full_every = kFullEvery}}};

constexpr GgufKeyRule kGgufKeys[] = {
    {"attention.sliding_window", "sliding_window", "null"},
    {"attention.sliding_window_pattern", "layer_types", "", kGgufByFamily | kGgufByLayer},
};
constexpr GgufTensorRule kGgufTensors[] = {
    {"rope_freqs", ""},
    {"post_attention_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};

Status complete_gguf(const GgufModel& model, json::Value& config) {
  return add_turns_rope(model, "llama3", config);
}

constexpr GgufArchitecture kGguf[] = {{.name = "exaone4",
                                       .model_type = "exaone4",
                                       .keys = kGgufKeys,
                                       .tensors = kGgufTensors,
                                       .complete = complete_gguf}};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_KEY("", "sliding_window", kComputed, "",
                       "absent: 4096; null: none, and heads of all layers turn"),
    SUBBYTE_CONFIG_KEY("", "sliding_window_pattern", kComputed, "",
                       "the last of so many layers is full, where layer_types does not say it; "
                       "absent: 4"),
    SUBBYTE_CONFIG_KEY("", "layer_types", kComputed, "", "absent: by sliding_window_pattern"),
    SUBBYTE_CONFIG_KEY("", "attention_bias", kIgnored, "", "there are no biases"),
};

constexpr RopeKind kRopeKinds[] = {{"llama3", read_turns_rope}};

struct Own {
  bool has_window = false;  // heads of full layers do not turn

  bool operator==(const Own&) const = default;
};

Status read_rest(const json::Object& config, ModelConfig& model, Own& own) {
  constexpr const char* kWindow = "sliding_window";
  SUBBYTE_TRY(const auto window, config.integer(kWindow, 1, kMaxPositions));
  own.has_window = window || config.find(kWindow) == nullptr;
  if (own.has_window && !config.has("layer_types")) {
    SUBBYTE_TRY(const auto every, config.integer("sliding_window_pattern", 1, kMaxPositions));
    const int64_t absent = kModelTypes[0].defaults.sliding_window;
    for (int64_t i = 0; i < model.num_layers; ++i) {
      const bool is_full = (i + 1) % every.value_or(kFullEvery) == 0;
      model.windows[static_cast<std::size_t>(i)] = is_full ? 0 : window.value_or(absent);
    }
  }
  return {};
}

void record(const ModelConfig& config, StepRecorder& step) {
  const bool has_window = config.own.as<Own>().has_window;
  record_usual_step(config, step,
                    {.norms = BlockNorms::kAfter,
                     .attention = {.norms = HeadsNorm::kEach},
                     .of_layer = [=](StepRecorder::Attention& attention, int64_t /*layer*/) {
                       if (has_window && attention.shape.window == 0) attention.rope = nullptr;
                     }});
}

// Sources: the config.json files of LGAI-EXAONE/EXAONE-4.0-1.2B and EXAONE-4.0-32B; tiny, and where
// added tokens begin, are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"exaone4", "tiny", 256,  512,   4,  4,  2, 64,  8,    512,    480,    2048,   false},
    {"exaone4", "1.2b", 2048, 4096,  30, 32, 8, 64,  0,    102400, 102000, 65536,  true},
    {"exaone4", "32b",  5120, 27392, 64, 40, 8, 128, 4096, 102400, 102000, 131072, false},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    {"", "", R"({"attention_bias": "$none", "rope_theta": 1000000.0, "sliding_window": "$window",
                 "rope_scaling": {"factor": 16.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                                  "original_max_position_embeddings": 8192,
                                  "rope_type": "llama3"},
                 "layer_types": "$each sssf"})"},
    {"", "1.2b", R"({"sliding_window": null,
                     "layer_types": "$each f"})"},
};

}  // namespace

const ModelFamily exaone4_family = {.model_types = kModelTypes,
                                    .gguf = kGguf,
                                    .keys = kKeys,
                                    .rope_kinds = kRopeKinds,
                                    .read = read_own<Own, kKeys, read_rest>,
                                    .record = record,
                                    .shapes = kShapes,
                                    .shape_keys = kShapeKeys};

}  // namespace subbyte
