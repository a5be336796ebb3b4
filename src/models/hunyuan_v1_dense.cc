// Hunyuan 0.5B to 7B: transformers' HunYuanDenseV1ForCausalLM. It is like Llama, with norms of each
// head of queries and keys after it has turned, and a rope whose base is times a power of a number.

#include <cmath>

#include "models/config_keys.h"
#include "models/model_family.h"
#include "models/rope_config.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr ModelType kModelTypes[] = {{.name = "hunyuan_v1_dense",
                                      .architecture = "HunYuanDenseV1ForCausalLM",
                                      .defaults = {.rms_norm_eps = 1e-5, .eos = 2}}};

constexpr json::ScopedRule kKeys[] = {
    SUBBYTE_CONFIG_KEY("", "attention_head_dim", kIgnored, "", "head_dim says it"),
    SUBBYTE_CONFIG_KEY("", "cla_share_factor", kIgnored, "", "each layer has keys of its own"),
    SUBBYTE_CONFIG_KEY("", "eod_token_id", kIgnored, "", "eos_token_id ends a text"),
    SUBBYTE_CONFIG_KEY("", "mlp_bias", kIgnored, "", "there are none"),
    SUBBYTE_CONFIG_KEY("", "norm_type", kIgnored, "", "all are RMS norms"),
    SUBBYTE_CONFIG_KEY("", "num_experts", kIgnored, "", "there is one block"),
    SUBBYTE_CONFIG_KEY("", "org_vocab_size", kIgnored, "", "vocab_size says it"),
    SUBBYTE_CONFIG_KEY("", "pretraining_tp", kIgnored, "", "how it is computed"),
    SUBBYTE_CONFIG_KEY("", "use_cla", kIgnored, "", "each layer has keys of its own"),
    SUBBYTE_CONFIG_KEY("", "use_qk_norm", kIgnored, "", "all heads have their norms"),
};

constexpr json::KeyRule kRopeKeys[] = {
    SUBBYTE_ROPE_KEY("alpha", kComputed, "",
                     "of \"dynamic\", which must have it: rope_theta is times "
                     "alpha^(d / (d - 2)), d numbers of a head"),
    SUBBYTE_ROPE_KEY("factor", kComputed, "", "not of \"dynamic\""),
    SUBBYTE_ROPE_KEY("beta_fast", kComputed, "", "of YaRN; absent: 32; not of \"dynamic\""),
    SUBBYTE_ROPE_KEY("beta_slow", kComputed, "", "of YaRN; absent: 1; not of \"dynamic\""),
};

/// A larger base, whatever the length of a text.
Result<ScaledRope> read_alpha_rope(const RopeInput& input) {
  SUBBYTE_TRY(const auto alpha, input.section.number("alpha", 1e-6, 1e9));
  if (!alpha) return input.section.error("config.rope", "alpha", "a number above 0");
  if (input.dim <= 2) return input.config.error("config.heads", "head_dim", "more than 2");
  const auto dim = static_cast<double>(input.dim);
  return ScaledRope{Rope(input.dim, input.theta * std::pow(*alpha, dim / (dim - 2))),
                    input.max_positions};
}
constexpr RopeKind kRopeKinds[] = {{"dynamic", read_alpha_rope}};

constexpr GgufTensorRule kGgufTensors[] = {
    {"attn_q_norm", "self_attn.query_layernorm"},
    {"attn_k_norm", "self_attn.key_layernorm"},
};

/// The base is the larger one.
Status complete_gguf(const GgufModel& model, json::Value& config) {
  config["attention_bias"] = model.find("blk.0.attn_q.bias") != nullptr;
  return {};
}

constexpr GgufArchitecture kGguf[] = {{.name = "hunyuan-dense",
                                       .model_type = "hunyuan_v1_dense",
                                       .tensors = kGgufTensors,
                                       .complete = complete_gguf}};

void record(const ModelConfig& config, StepRecorder& step) {
  record_usual_step(config, step,
                    {.attention = {.has_bias = config.attention_bias,
                                   .has_output_bias = config.attention_bias,
                                   .norms = HeadsNorm::kEachAfterRope,
                                   .q_norm = "query_layernorm",
                                   .k_norm = "key_layernorm"}});
}

// Sources: the config.json files of tencent/Hunyuan-*-Instruct; tiny, and where added tokens begin,
// are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    // arch, name: hidden, inner, layers, heads, KV heads, head size, window, vocabulary,
    //             first added token, positions, tied
    {"hunyuan-dense", "tiny", 256,  512,   2,  4,  2, 64,  0, 512,    480,    2048,   true},
    {"hunyuan-dense", "0.5b", 1024, 3584,  24, 8,  4, 128, 0, 120818, 120000, 262144, true},
    {"hunyuan-dense", "1.8b", 2048, 6144,  32, 16, 4, 128, 0, 120818, 120000, 262144, true},
    {"hunyuan-dense", "4b",   3072, 8192,  36, 32, 8, 128, 0, 120818, 120000, 262144, true},
    {"hunyuan-dense", "7b",   4096, 14336, 32, 32, 8, 128, 0, 128167, 127957, 262144, true},
};
// clang-format on

json::Value config_of(const ModelShape& shape, int64_t layers) {
  json::Value config = usual_config(kModelTypes[0], shape, layers);
  config["rope_scaling"] = {{"alpha", 1000.0}, {"factor", 1.0}, {"type", "dynamic"}};
  config["rope_theta"] = 10000.0;
  config["use_qk_norm"] = true;
  return config;
}

}  // namespace

extern const ModelFamily hunyuan_v1_dense_family;
const ModelFamily hunyuan_v1_dense_family = {.model_types = kModelTypes,
                                             .gguf = kGguf,
                                             .keys = kKeys,
                                             .rope_keys = kRopeKeys,
                                             .rope_kinds = kRopeKinds,
                                             .record = record,
                                             .shapes = kShapes,
                                             .config_of = config_of};

}  // namespace subbyte
