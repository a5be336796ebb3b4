// SmolLM3: transformers' SmolLM3ForCausalLM. It is like Llama, but heads of every fourth layer do
// not turn.

#include <vector>

#include "models/config_keys.h"
#include "models/model_family.h"
#include "models/rope_config.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr ModelType kModelTypes[] = {{.name = "smollm3",
                                      .architecture = "SmolLM3ForCausalLM",
                                      .defaults = {.kv_heads = 4,
                                                   .max_positions = 32768,
                                                   .rope_theta = 2000000,
                                                   .tie_word_embeddings = true,
                                                   .eos = 128001}}};

struct Own {
  std::vector<bool> turning;  // [num_layers]

  bool operator==(const Own&) const = default;
};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_KEY("", "no_rope_layers", kComputed, "",
                       "1: heads of the layer turn; absent: by no_rope_layer_interval"),
    SUBBYTE_CONFIG_KEY("", "no_rope_layer_interval", kComputed, "",
                       "heads do not turn in the last of so many layers; absent: 4"),
    SUBBYTE_CONFIG_FLAG(ModelConfig, "", "mlp_bias", mlp_bias, false, ""),
    SUBBYTE_CONFIG_KEY("", "layer_types", kComputed, "", "all are full_attention"),
    SUBBYTE_CONFIG_KEY("", "use_sliding_window", kRefused, "false", "layers that slide"),
    SUBBYTE_CONFIG_KEY("", "sliding_window max_window_layers", kIgnored, "", "no layer slides"),
    SUBBYTE_CONFIG_KEY("", "pretraining_tp", kIgnored, "", "how it is computed"),
};

constexpr GgufArchitecture kGguf[] = {
    {.name = "smollm3", .model_type = "smollm3", .pairs_heads = true, .biases = kUsualGgufBiases}};

Status read_rest(const json::Object& config, ModelConfig& model, Own& own) {
  SUBBYTE_TRY(own.turning, read_turning_layers(config, model.num_layers));
  return {};
}

void record(const ModelConfig& config, StepRecorder& step) {
  const Own& own = config.own.as<Own>();
  record_usual_step(config, step,
                    {.of_layer = [&own](StepRecorder::Attention& attention, int64_t layer) {
                      if (!own.turning[static_cast<std::size_t>(layer)]) attention.rope = nullptr;
                    }});
}

// Sources: the config.json of HuggingFaceTB/SmolLM3-3B; tiny is ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"smollm3", "tiny", 256,  512,   4,  4,  2, 64,  0, 512,    480,    2048,  true},
    {"smollm3", "3b",   2048, 11008, 36, 16, 4, 128, 0, 128256, 128000, 65536, true},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    {"", "", R"({"head_dim": "$none", "mlp_bias": false, "no_rope_layer_interval": 4,
                 "rope_theta": 5000000.0, "use_sliding_window": false})"},
};

}  // namespace

const ModelFamily smollm3_family = {.model_types = kModelTypes,
                                    .gguf = kGguf,
                                    .keys = kKeys,
                                    .read = read_own<Own, kKeys, read_rest>,
                                    .record = record,
                                    .shapes = kShapes,
                                    .shape_keys = kShapeKeys};

}  // namespace subbyte
