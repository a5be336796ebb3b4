// ERNIE 4.5, dense: transformers' Ernie4_5ForCausalLM. It is like Llama, but neighbours of a head
// turn together, and one key says whether all products have biases.

#include "models/config_keys.h"
#include "models/model_family.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr ModelType kModelTypes[] = {{.name = "ernie4_5",
                                      .architecture = "Ernie4_5ForCausalLM",
                                      .defaults = {.kv_heads = 2,
                                                   .head_dim = 128,
                                                   .max_positions = 131072,
                                                   .rms_norm_eps = 1e-5,
                                                   .rope_theta = 500000,
                                                   .tie_word_embeddings = true,
                                                   .eos = 2}}};

constexpr json::ScopedRule kKeys[] = {
    SUBBYTE_CONFIG_KEY("", "use_bias", kComputed, "", "absent: false"),
    SUBBYTE_CONFIG_KEY("", "attention_bias", kIgnored, "", "use_bias says it"),
    SUBBYTE_CONFIG_KEY("", "compression_ratio", kIgnored, "", "of positions in training"),
    SUBBYTE_CONFIG_KEY("", "fuse_rms_norm", kIgnored, "", "how it is computed"),
    SUBBYTE_CONFIG_KEY("", "use_flash_attention", kIgnored, "", "how it is computed"),
    SUBBYTE_CONFIG_KEY("", "weight_share_add_bias", kIgnored, "", "the head has no bias"),
};

/// Rows of heads lie in files as they turn.
Status complete_gguf(const GgufModel& model, json::Value& config) {
  config["use_bias"] = model.find("blk.0.attn_q.bias") != nullptr;
  return {};
}

constexpr GgufArchitecture kGguf[] = {
    {.name = "ernie4_5", .model_type = "ernie4_5", .complete = complete_gguf}};

struct Own {
  bool has_biases = false;

  bool operator==(const Own&) const = default;
};

Status read(const json::Object& config, ModelConfig& model) {
  SUBBYTE_TRY(const auto biases, config.boolean("use_bias"));
  model.own = FamilyConfig(Own{biases.value_or(false)});
  return {};
}

void record(const ModelConfig& config, StepRecorder& step) {
  const bool has_biases = config.own.as<Own>().has_biases;
  record_usual_step(config, step,
                    {.attention = {.pairs = RopePairs::kNeighbours,
                                   .has_bias = has_biases,
                                   .has_output_bias = has_biases},
                     .gated = {.has_bias = has_biases}});
}

// Sources: the config.json of baidu/ERNIE-4.5-0.3B-PT; tiny, and where added tokens begin, are
// ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    // arch, name: hidden, inner, layers, heads, KV heads, head size, window, vocabulary,
    //             first added token, positions, tied
    {"ernie4.5", "tiny", 256,  512,  2,  4,  2, 64,  0, 512,    480,    2048,   true},
    {"ernie4.5", "0.3b", 1024, 3072, 18, 16, 2, 128, 0, 103424, 100000, 131072, true},
};
// clang-format on

json::Value config_of(const ModelShape& shape, int64_t layers) {
  json::Value config = usual_config(kModelTypes[0], shape, layers);
  config.erase("attention_bias");
  config["rope_theta"] = 500000.0;
  config["use_bias"] = false;
  return config;
}

}  // namespace

extern const ModelFamily ernie4_5_family;
const ModelFamily ernie4_5_family = {.model_types = kModelTypes,
                                     .gguf = kGguf,
                                     .keys = kKeys,
                                     .read = read,
                                     .record = record,
                                     .shapes = kShapes,
                                     .config_of = config_of};

}  // namespace subbyte
