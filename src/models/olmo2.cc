// OLMo 2: transformers' Olmo2ForCausalLM. Blocks read the residual stream as it is, and what they
// give is normalised before it is added; so are all queries of a token together, and all keys.

#include "models/config_keys.h"
#include "models/model_family.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr ModelType kModelTypes[] = {{.name = "olmo2",
                                      .architecture = "Olmo2ForCausalLM",
                                      .defaults = {.rms_norm_eps = 1e-5, .eos = 50279}}};

void record(const ModelConfig& config, StepRecorder& step) {
  record_usual_step(config, step,
                    {.norms = BlockNorms::kAfter,
                     .attention = {.has_bias = config.attention_bias,
                                   .has_output_bias = config.attention_bias,
                                   .norms = HeadsNorm::kAll}});
}

// Sources: the config.json files of allenai/OLMo-2-*; tiny, and where added tokens begin, are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    // arch, name: hidden, inner, layers, heads, KV heads, head size, window, vocabulary,
    //             first added token, positions, tied
    {"olmo2", "tiny", 256,  512,   2,  4,  2,  64,  0, 512,    480,    2048, false},
    {"olmo2", "1b",   2048, 8192,  16, 16, 16, 128, 0, 100352, 100256, 4096, false},
    {"olmo2", "7b",   4096, 11008, 32, 32, 32, 128, 0, 100352, 100256, 4096, false},
    {"olmo2", "13b",  5120, 13824, 40, 40, 40, 128, 0, 100352, 100256, 4096, false},
    {"olmo2", "32b",  5120, 27648, 64, 40, 8,  128, 0, 100352, 100256, 4096, false},
};
// clang-format on

json::Value config_of(const ModelShape& shape, int64_t layers) {
  json::Value config = usual_config(kModelTypes[0], shape, layers);
  config.erase("head_dim");
  config["rms_norm_eps"] = 1e-6;
  config["rope_scaling"] = nullptr;
  config["rope_theta"] = 500000.0;
  return config;
}

}  // namespace

extern const ModelFamily olmo2_family;
const ModelFamily olmo2_family = {
    .model_types = kModelTypes, .record = record, .shapes = kShapes, .config_of = config_of};

}  // namespace subbyte
