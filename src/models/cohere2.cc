// Command R7B, Command A and Aya of 2025: transformers' Cohere2ForCausalLM. Attention and a gated
// block read the same LayerNorm and are both added. Three of four layers slide, and neighbours of
// their heads turn; in the others nothing does. The embedding is the head, with scaled logits.

#include "models/config_keys.h"
#include "models/gguf_config.h"
#include "models/model_family.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr ModelType kModelTypes[] = {{.name = "cohere2",
                                      .architecture = "Cohere2ForCausalLM",
                                      .defaults = {.max_positions = 8192,
                                                   .rms_norm_eps = 1e-5,
                                                   .tie_word_embeddings = true,
                                                   .eos = 255001,
                                                   .sliding = SlidingRule::kAllBut,
                                                   .sliding_window = 4096,
                                                   .full_every = 4,
                                                   .full_every_key = "sliding_window_pattern"}}};

constexpr GgufKeyRule kGgufKeys[] = {
    {"attention.layer_norm_epsilon", "layer_norm_eps"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", "", kGgufByFamily},
    {"attention.sliding_window", "sliding_window"},
    {"attention.sliding_window_pattern", "layer_types", "", kGgufByFamily | kGgufByLayer},
    {"logit_scale", "logit_scale", "", kGgufFloat},
};

/// Without a pattern each fourth layer is full, as in config.json.
constexpr GgufArchitecture kGguf[] = {
    {.name = "cohere2", .model_type = "cohere2", .keys = kGgufKeys}};

struct Own {
  float logit_scale = 0.0625f;

  bool operator==(const Own&) const = default;
};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_NUMBER(ModelConfig, "", "layer_norm_eps", rms_norm_eps, 1e-5, 1e-12, 1.0, ""),
    SUBBYTE_CONFIG_KEY("", "rms_norm_eps", kIgnored, "", "layer_norm_eps says it"),
    SUBBYTE_CONFIG_NUMBER(Own, "", "logit_scale", logit_scale, 0.0625, 1e-6, 1e6,
                          "logits are times it"),
    SUBBYTE_CONFIG_KEY("", "sliding_window", kComputed, "", "absent: 4096; null: none"),
    SUBBYTE_CONFIG_KEY("", "sliding_window_pattern", kComputed, "",
                       "absent: 4, each fourth layer is full, and does not turn"),
    SUBBYTE_CONFIG_KEY("", "layer_types", kComputed, "", "absent: by sliding_window_pattern"),
    SUBBYTE_CONFIG_KEY("", "layer_switch order_of_interleaved_layers position_embedding_type",
                       kIgnored, "", "layer_types says it"),
    SUBBYTE_CONFIG_KEY("", "rotary_pct", kIgnored, "", "all of a head turns"),
    SUBBYTE_CONFIG_KEY("", "use_embedding_sharing", kIgnored, "", "tie_word_embeddings says it"),
    SUBBYTE_CONFIG_KEY("", "use_gated_activation", kIgnored, "", "all blocks have their gate"),
    SUBBYTE_CONFIG_KEY("", "use_parallel_block", kIgnored, "", "all layers have both at once"),
    SUBBYTE_CONFIG_KEY("", "use_parallel_embedding", kIgnored, "", "how it is computed"),
};

void record(const ModelConfig& config, StepRecorder& step) {
  const auto rope = step.rope();
  ValueId x = step.embed({.is_centred = true});
  ValueId delta = kNoValue;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    step.begin_layer(i);
    const ValueId h = step.add_norm("input_layernorm", x, delta);
    StepRecorder::Attention attention = {.shape = attention_shape(config, i),
                                         .pairs = RopePairs::kNeighbours};
    if (attention.shape.window > 0) attention.rope = rope;
    const ValueId block = step.gated_block(h, {.inner = config.intermediate_size});
    delta = step.sum("blocks.added", block, step.attention(h, attention));
  }
  step.finish(x, delta, {.factor = config.own.as<Own>().logit_scale});
}

// Sources: the config.json files of CohereLabs/c4ai-command-r7b-12-2024 and c4ai-command-a-03-2025;
// tiny, and where added tokens begin, are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"cohere2", "tiny", 256,   512,   4,  4,  2, 64,  8,    512,    480,    2048,   true},
    {"cohere2", "r7b",  4096,  14336, 32, 32, 8, 128, 4096, 256000, 255000, 132096, true},
    {"cohere2", "a",    12288, 36864, 64, 96, 8, 128, 4096, 256000, 255000, 131072, true},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    {"", "", R"({"head_dim": "$none", "rms_norm_eps": "$none", "layer_norm_eps": 1e-5,
                 "logit_scale": 0.25, "rope_theta": 50000.0, "sliding_window": "$window"})"},
};

}  // namespace

const ModelFamily cohere2_family = {.model_types = kModelTypes,
                                    .gguf = kGguf,
                                    .keys = kKeys,
                                    .read = read_own<Own, kKeys>,
                                    .record = record,
                                    .shapes = kShapes,
                                    .shape_keys = kShapeKeys};

}  // namespace subbyte
