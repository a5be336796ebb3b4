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

constexpr json::ScopedRule kKeys[] = {
    SUBBYTE_CONFIG_KEY("", "intermediate_size", kComputed, "", "absent: 14336"),
    SUBBYTE_CONFIG_KEY("", "attn_layer_indices", kComputed, "",
                       "layers with attention; absent: none"),
    SUBBYTE_CONFIG_KEY("", "mlp_bias", kComputed, "", "absent: false"),
    SUBBYTE_CONFIG_KEY("", "mamba_n_heads", kComputed, "", "absent: 128"),
    SUBBYTE_CONFIG_KEY("", "mamba_d_head", kComputed, "", "absent: as mamba_expand says"),
    SUBBYTE_CONFIG_KEY("", "mamba_expand", kComputed, "", "absent: 2"),
    SUBBYTE_CONFIG_KEY("", "mamba_n_groups", kComputed, "", "of B, C and the norm; absent: 1"),
    SUBBYTE_CONFIG_KEY("", "mamba_d_state", kComputed, "", "absent: 256"),
    SUBBYTE_CONFIG_KEY("", "mamba_d_conv", kComputed, "", "taps of the filters; absent: 4"),
    SUBBYTE_CONFIG_KEY("", "mamba_conv_bias", kComputed, "", "absent: true"),
    SUBBYTE_CONFIG_KEY("", "mamba_proj_bias", kComputed, "", "absent: false"),
    SUBBYTE_CONFIG_KEY("", "mamba_chunk_size", kComputed, "", "of the reference: only looked at"),
    SUBBYTE_CONFIG_KEY("", "time_step_limit", kComputed, "", "absent: from 0 on"),
    SUBBYTE_CONFIG_KEY("", "partial_rotary_factor", kRefused, "0.5", "one half of a head turns"),
    SUBBYTE_CONFIG_KEY("", "attn_rotary_emb", kIgnored, "", "one half of a head turns"),
    SUBBYTE_CONFIG_KEY("", "layer_types", kIgnored, "", "attn_layer_indices says it"),
    SUBBYTE_CONFIG_KEY("", "layers_block_type", kIgnored, "", "attn_layer_indices says it"),
    SUBBYTE_CONFIG_KEY("", "num_logits_to_keep", kIgnored, "", "how it is computed"),
    SUBBYTE_CONFIG_KEY("", "z_loss_coefficient", kIgnored, "", "of training"),
};

constexpr json::KeyRule kRopeKeys[] = {
    SUBBYTE_ROPE_KEY("partial_rotary_factor", kRefused, "0.5", "one half of a head turns"),
};

struct Own {
  std::vector<bool> attends;  // [num_layers]
  MambaConfig mamba;
  bool mlp_bias = false;

  bool operator==(const Own&) const = default;
};

Status read(const json::Object& config, ModelConfig& model) {
  Own own;
  SUBBYTE_TRY(own.attends, read_layer_numbers(config, "attn_layer_indices", model.num_layers));
  SUBBYTE_TRY(own.mamba, read_mamba(config, {}, model));
  SUBBYTE_TRY(const auto biases, config.boolean("mlp_bias"));
  own.mlp_bias = biases.value_or(false);
  model.own = FamilyConfig(std::move(own));
  return {};
}

void record(const ModelConfig& config, StepRecorder& step) {
  const Own& own = config.own.as<Own>();
  const auto rope = step.rope();
  ValueId x = step.embed({});
  ValueId delta = kNoValue;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    step.begin_layer(i);
    ValueId h = step.add_norm("input_layernorm", x, delta);
    if (own.attends[static_cast<std::size_t>(i)]) {
      delta = step.attention(h, {.shape = attention_shape(config, i),
                                 .rope = rope,
                                 .has_bias = config.attention_bias,
                                 .has_output_bias = config.attention_bias});
    } else {
      delta = step.mamba(h, {.shape = own.mamba.shape,
                             .has_conv_bias = own.mamba.has_conv_bias,
                             .has_bias = own.mamba.has_bias});
    }
    h = step.add_norm("pre_ff_layernorm", x, delta);
    delta = step.gated_block(
        h,
        {.inner = config.intermediate_size, .has_bias = own.mlp_bias, .prefix = "feed_forward."});
  }
  step.finish(x, delta, {.norm = "final_layernorm"});
}

// Sources: the config.json of ibm-ai-platform/Bamba-9B-v2; tiny, and where added tokens begin, are
// ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    // arch, name: hidden, inner, layers, heads, KV heads, head size, window, vocabulary,
    //             first added token, positions, tied
    {"bamba", "tiny", 256,  512,   3,  4,  2, 64,  0, 512,    480,    2048,   false},
    {"bamba", "9b",   4096, 14336, 32, 32, 8, 128, 0, 128256, 128000, 262144, false},
};
// clang-format on

json::Value config_of(const ModelShape& shape, int64_t layers) {
  const bool is_tiny = shape.hidden < 1024;
  json::Value config = usual_config(kModelTypes[0], shape, layers);
  config.erase("head_dim");
  config["attn_layer_indices"] =
      is_tiny ? json::Value::array({1}) : json::Value::array({9, 18, 27});
  config["mamba_chunk_size"] = 256;
  config["mamba_conv_bias"] = true;
  config["mamba_d_conv"] = 4;
  config["mamba_d_head"] = 64;
  config["mamba_d_state"] = 128;
  config["mamba_expand"] = 2;
  config["mamba_n_groups"] = 1;
  config["mamba_n_heads"] = 2 * shape.hidden / 64;
  config["mamba_proj_bias"] = false;
  config["mlp_bias"] = false;
  config["rope_theta"] = 10000.0;
  return config;
}

}  // namespace

extern const ModelFamily bamba_family;
const ModelFamily bamba_family = {.model_types = kModelTypes,
                                  .keys = kKeys,
                                  .rope_keys = kRopeKeys,
                                  .read = read,
                                  .record = record,
                                  .shapes = kShapes,
                                  .config_of = config_of};

}  // namespace subbyte
