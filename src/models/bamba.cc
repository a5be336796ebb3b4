// Bamba: transformers' BambaForCausalLM. A layer is a block of Mamba 2, or attention of whose heads
// one half turns; then a gated block, each after an RMS norm.

#include "models/config_keys.h"
#include "models/layer_lists.h"
#include "models/mamba_config.h"
#include "models/model_family.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr ModelType kModelTypes[] = {{.name = "bamba",
                                      .architecture = "BambaForCausalLM",
                                      .defaults = {.intermediate_size = 14336,
                                                   .vocab = 128000,
                                                   .heads = 32,
                                                   .kv_heads = 8,
                                                   .max_positions = 262144,
                                                   .rms_norm_eps = 1e-5,
                                                   .rotary_fraction = 0.5,
                                                   .eos = 2,
                                                   .sliding = SlidingRule::kOfFamily}}};

struct Own {
  std::vector<bool> attends;  // [num_layers]
  MambaConfig mamba;

  bool operator==(const Own&) const = default;
};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_KEY("", "attn_layer_indices", kComputed, "",
                       "layers with attention; absent: none"),
    SUBBYTE_CONFIG_FLAG(ModelConfig, "", "mlp_bias", mlp_bias, false, ""),
    SUBBYTE_CONFIG_KEY("", "partial_rotary_factor", kRefused, "0.5", "one half of a head turns"),
    SUBBYTE_CONFIG_KEY("", "attn_rotary_emb", kIgnored, "", "one half of a head turns"),
    SUBBYTE_CONFIG_KEY("", "layer_types layers_block_type", kIgnored, "",
                       "attn_layer_indices says it"),
    SUBBYTE_CONFIG_KEY("", "num_logits_to_keep", kIgnored, "", "how it is computed"),
    SUBBYTE_CONFIG_KEY("", "z_loss_coefficient", kIgnored, "", "of training"),
};

constexpr json::KeyRule kRopeKeys[] = {
    SUBBYTE_ROPE_KEY("partial_rotary_factor", kRefused, "0.5", "one half of a head turns"),
};

Status read_rest(const json::Object& config, ModelConfig& model, Own& own) {
  SUBBYTE_TRY(own.attends, read_layer_numbers(config, "attn_layer_indices", model.num_layers));
  SUBBYTE_TRY(own.mamba, read_mamba(config, model));
  return {};
}

void record(const ModelConfig& config, StepRecorder& step) {
  const Own& own = config.own.as<Own>();
  const auto first = [&](ValueId h, int64_t layer) {
    if (own.attends[static_cast<std::size_t>(layer)]) return kNoValue;
    return step.mixer(h, "mamba.", own.mamba.op(), own.mamba.has_bias);
  };
  record_usual_step(config, step,
                    {.names = LayerNorms{.before_second = "pre_ff_layernorm"},
                     .gated = {.prefix = "feed_forward."},
                     .logits = {.norm = "final_layernorm"},
                     .first = first});
}

// Sources: the config.json of ibm-ai-platform/Bamba-9B-v2; tiny, and where added tokens begin, are
// ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"bamba", "tiny", 256,  512,   3,  4,  2, 64,  0, 512,    480,    2048,   false},
    {"bamba", "9b",   4096, 14336, 32, 32, 8, 128, 0, 128256, 128000, 262144, false},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    kMambaShape,
    {"", "", R"({"head_dim": "$none", "attn_layer_indices": [9, 18, 27], "mlp_bias": false,
                 "rope_theta": 10000.0})"},
    {"", "tiny", R"({"attn_layer_indices": [1]})"},
};

}  // namespace

const ModelFamily bamba_family = {.model_types = kModelTypes,
                                  .keys = kKeys,
                                  .shared_keys = {kMambaKeys},
                                  .rope_keys = kRopeKeys,
                                  .read = read_own<Own, kKeys, read_rest>,
                                  .record = record,
                                  .shapes = kShapes,
                                  .shape_keys = kShapeKeys};

}  // namespace subbyte
