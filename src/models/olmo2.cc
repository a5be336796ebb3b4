// OLMo 2 and 3: transformers' Olmo2ForCausalLM, Olmo3ForCausalLM. Blocks read the residual stream
// as it is, and what they give is normalised before it is added; so are all queries of a token
// together, and all keys. Of OLMo 3 three of four layers slide, and their rope is not scaled.

#include "models/config_keys.h"
#include "models/gguf_config.h"
#include "models/model_family.h"
#include "models/rope_config.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr ModelType kModelTypes[] = {{.name = "olmo2",
                                      .architecture = "Olmo2ForCausalLM",
                                      .defaults = {.rms_norm_eps = 1e-5, .eos = 50279}},
                                     {.name = "olmo3",
                                      .architecture = "Olmo3ForCausalLM",
                                      .defaults = {.rms_norm_eps = 1e-5,
                                                   .rope_theta = 500000,
                                                   .eos = 50279,
                                                   .sliding = SlidingRule::kAllBut,
                                                   .sliding_window = 4096,
                                                   .full_every = 4,
                                                   .has_sliding_rope = true}}};

constexpr const ModelType& kThird = kModelTypes[1];

constexpr GgufKeyRule kGgufKeys[] = {
    {"attention.sliding_window", "sliding_window", "null"},
    {"attention.sliding_window_pattern", "layer_types", "", kGgufByFamily | kGgufByLayer},
};
constexpr GgufTensorRule kGgufTensors[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};

/// Files with windows are of OLMo 3.
Status complete_gguf(const GgufModel& /*model*/, json::Value& config) {
  if (config["sliding_window"].is_null()) {
    config.erase("sliding_window");
    config.erase("layer_types");
  } else {
    config["model_type"] = std::string(kThird.name);
    config["architectures"] = json::Value::array({std::string(kThird.architecture)});
  }
  return {};
}

constexpr GgufArchitecture kGguf[] = {{.name = "olmo2",
                                       .model_type = "olmo2",
                                       .keys = kGgufKeys,
                                       .tensors = kGgufTensors,
                                       .complete = complete_gguf},
                                      {.name = "olmo2",
                                       .model_type = "olmo3",
                                       .keys = kGgufKeys,
                                       .tensors = kGgufTensors,
                                       .complete = complete_gguf,
                                       .is_written_only = true}};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_KEY("olmo3", "sliding_window", kComputed, "", "absent: 4096; null: none"),
    SUBBYTE_CONFIG_KEY("olmo3", "layer_types", kComputed, "", "absent: each fourth layer is full"),
};

struct Own {
  Rope sliding_rope;  // of OLMo 3

  bool operator==(const Own&) const = default;
};

/// A base counts for all layers, whether or not one section is there for each type of them.
Status read_rest(const json::Object& config, ModelConfig& model, Own& own) {
  own.sliding_rope = model.rope;
  const ConfigDefaults& defaults = type_of(model).defaults;
  if (!defaults.has_sliding_rope) return {};
  SUBBYTE_TRY(auto theta, config.number("rope_theta", 1, 1e15));
  SUBBYTE_TRY(const auto section, config.object("rope_parameters"));
  if (section) {
    SUBBYTE_TRY(const auto inside, section->number("rope_theta", 1, 1e15));
    if (inside) theta = inside;
  }
  SUBBYTE_TRY(own.sliding_rope,
              read_sliding_rope(config, model, theta.value_or(defaults.rope_theta)));
  return {};
}

void record(const ModelConfig& config, StepRecorder& step) {
  record_usual_step(config, step,
                    {.norms = BlockNorms::kAfter,
                     .attention = {.norms = HeadsNorm::kAll},
                     .sliding_rope = &config.own.as<Own>().sliding_rope});
}

// Sources: the config.json files of allenai/OLMo-2-* and Olmo-3-*; tiny, and where added tokens
// begin, are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"olmo2", "tiny", 256,  512,   2,  4,  2,  64,  0, 512,    480,    2048, false},
    {"olmo2", "1b",   2048, 8192,  16, 16, 16, 128, 0, 100352, 100256, 4096, false},
    {"olmo2", "7b",   4096, 11008, 32, 32, 32, 128, 0, 100352, 100256, 4096, false},
    {"olmo2", "13b",  5120, 13824, 40, 40, 40, 128, 0, 100352, 100256, 4096, false},
    {"olmo2", "32b",  5120, 27648, 64, 40, 8,  128, 0, 100352, 100256, 4096, false},
    {"olmo3", "tiny", 256,  512,   4,  4,  2,  64,  8, 512,    480,    2048, false},
    {"olmo3", "7b",   4096, 11008, 32, 32, 32, 128, 4096, 100278, 100257, 65536, false},
    {"olmo3", "32b",  5120, 27648, 64, 40, 8,  128, 4096, 100278, 100257, 65536, false},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    {"", "", R"({"head_dim": "$none", "rms_norm_eps": 1e-6, "rope_scaling": null,
                 "rope_theta": 500000.0})"},
    {"olmo3", "", R"({"model_type": "olmo3", "sliding_window": "$window"})"},
    {"olmo3", "7b 32b", R"({"rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 8.0,
                                             "original_max_position_embeddings": 8192,
                                             "rope_type": "yarn"}})"},
};

}  // namespace

const ModelFamily olmo2_family = {.model_types = kModelTypes,
                                  .gguf = kGguf,
                                  .keys = kKeys,
                                  .read = read_own<Own, kKeys, read_rest>,
                                  .record = record,
                                  .shapes = kShapes,
                                  .shape_keys = kShapeKeys};

}  // namespace subbyte
