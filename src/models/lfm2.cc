// LFM2: transformers' Lfm2ForCausalLM. Most layers are short convolutions between two gates, the
// others attention by groups with norms of each head; then a gated block, each after an RMS norm.

#include <fmt/format.h>

#include "models/config_keys.h"
#include "models/conv_layers.h"
#include "models/model_family.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr ModelType kModelTypes[] = {{.name = "lfm2",
                                      .architecture = "Lfm2ForCausalLM",
                                      .defaults = {.intermediate_size = 12288,
                                                   .kv_heads = 8,
                                                   .max_positions = 128000,
                                                   .rope_theta = 1000000,
                                                   .tie_word_embeddings = true,
                                                   .eos = 2,
                                                   .sliding = SlidingRule::kOfFamily}}};

constexpr GgufKeyRule kGgufKeys[] = {
    {"attention.layer_norm_rms_epsilon", "norm_eps"},
    {"attention.head_count_kv", "num_key_value_heads", "", kGgufByLayer},
    {"shortconv.l_cache", "conv_L_cache"},
};

/// Sizes are as they are.
Status complete_gguf(const GgufModel& model, json::Value& config) {
  SUBBYTE_CHECK(add_conv_layers(model, config));
  config["block_auto_adjust_ff_dim"] = false;
  return {};
}

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_KEY("", "block_ff_dim", kComputed, "", "intermediate_size, older"),
    SUBBYTE_CONFIG_KEY("", "block_auto_adjust_ff_dim", kComputed, "",
                       "two thirds of intermediate_size are the inner size; absent: true"),
    SUBBYTE_CONFIG_KEY("", "block_ffn_dim_multiplier", kComputed, "",
                       "of these two thirds; absent: 1; null: they are not rounded up either"),
    SUBBYTE_CONFIG_KEY("", "block_multiple_of", kComputed, "",
                       "to a multiple of which they are rounded up; absent: 256"),
    SUBBYTE_CONFIG_KEY("", "layer_types", kComputed, "", "absent: full_attn_idxs says it"),
    SUBBYTE_CONFIG_KEY("", "full_attn_idxs", kComputed, "",
                       "layers with attention; absent or null: all"),
    SUBBYTE_CONFIG_KEY("", "block_norm_eps", kIgnored, "", "norm_eps says it"),
    SUBBYTE_CONFIG_KEY("", "block_dim conv_dim conv_dim_out", kIgnored, "", "hidden_size says it"),
    SUBBYTE_CONFIG_KEY("", "num_heads", kIgnored, "", "num_attention_heads says it"),
    SUBBYTE_CONFIG_KEY("", "block_use_swiglu", kIgnored, "", "all blocks have their gate"),
    SUBBYTE_CONFIG_KEY("",
                       "block_mlp_init_scale block_out_init_scale block_use_xavier_init "
                       "conv_use_xavier_init",
                       kIgnored, "", "of training"),
};

constexpr GgufArchitecture kGguf[] = {{.name = "lfm2",
                                       .model_type = "lfm2",
                                       .keys = kGgufKeys,
                                       .tensors = kConvGgufTensors,
                                       .complete = complete_gguf}};

void record(const ModelConfig& config, StepRecorder& step) {
  record_conv_layers(config, step, config.own.as<ConvLayers>());
}

// ---- config.json

/// The inner size of blocks.
Status read_inner_size(const json::Object& config, ModelConfig& model) {
  SUBBYTE_TRY(const auto older, config.integer("block_ff_dim", 1, kMaxWidth));
  SUBBYTE_TRY(const auto adjusts, config.boolean("block_auto_adjust_ff_dim"));
  SUBBYTE_TRY(const auto factor, config.number("block_ffn_dim_multiplier", 1e-3, 1e3));
  SUBBYTE_TRY(const auto multiple, config.integer("block_multiple_of", 1, kMaxWidth));
  int64_t inner = older.value_or(model.intermediate_size);
  if (adjusts.value_or(true)) {
    inner = 2 * inner / 3;
    const bool is_null = config.find("block_ffn_dim_multiplier") != nullptr && !factor;
    if (!is_null) {
      inner = static_cast<int64_t>(factor.value_or(1) * static_cast<double>(inner));
      const int64_t step = multiple.value_or(256);
      inner = (inner + step - 1) / step * step;
    }
  }
  model.intermediate_size = inner;
  if (inner >= 1 && inner <= kMaxWidth) return {};
  return config.error("config.intermediate_size", "intermediate_size",
                      fmt::format("an inner size from 1 to {}, not {}", kMaxWidth, inner));
}

Status read_rest(const json::Object& config, ModelConfig& model, ConvLayers& layers) {
  SUBBYTE_CHECK(read_inner_size(config, model));
  SUBBYTE_TRY(layers, read_conv_layers(config, model));
  return {};
}

// ---- synth

// Sources: the config.json files of LiquidAI/LFM2-*; tiny, and where added tokens begin, are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"lfm2", "tiny", 256,  768,   3,  4,  2, 64, 0, 512,   480,   2048,   true},
    {"lfm2", "350m", 1024, 6656,  16, 16, 8, 64, 0, 65536, 64400, 128000, true},
    {"lfm2", "700m", 1536, 10240, 16, 24, 8, 64, 0, 65536, 64400, 128000, true},
    {"lfm2", "1.2b", 2048, 12288, 16, 32, 8, 64, 0, 65536, 64400, 128000, true},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    kConvShape,
    {"", "", R"({"block_auto_adjust_ff_dim": true, "block_ffn_dim_multiplier": 1.0,
                 "block_multiple_of": 256,
                 "layer_types": "$each ccfccfccfcfcfcfc"})"},
};

}  // namespace

const ModelFamily lfm2_family = {.model_types = kModelTypes,
                                 .gguf = kGguf,
                                 .keys = kKeys,
                                 .shared_keys = {kConvKeys},
                                 .read = read_own<ConvLayers, kKeys, read_rest>,
                                 .record = record,
                                 .shapes = kShapes,
                                 .shape_keys = kShapeKeys};

}  // namespace subbyte
