// Mistral 7B and what is built like it: transformers' MistralForCausalLM and Ministral3ForCausalLM.
// Attention by groups, in windows of all layers or of none, and a gated block, each after an RMS
// norm; no biases. Queries of Ministral 3 grow with their positions. Models that see have either
// inside.

#include "models/config_keys.h"
#include "models/gguf_config.h"
#include "models/gguf_rope.h"
#include "models/model_family.h"
#include "models/rope_config.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr ModelType kModelTypes[] = {{.name = "mistral",
                                      .architecture = "MistralForCausalLM",
                                      .wrapper = "mistral3",
                                      .wrapper_ties = true,
                                      .defaults = {.kv_heads = 8,
                                                   .max_positions = 131072,
                                                   .eos = 2,
                                                   .sliding = SlidingRule::kWithWindow,
                                                   .sliding_window = 4096}},
                                     {.name = "ministral3",
                                      .architecture = "Ministral3ForCausalLM",
                                      .wrapper = "mistral3",
                                      .wrapper_ties = true,
                                      .defaults = {.kv_heads = 8,
                                                   .head_dim = 128,
                                                   .max_positions = 262144,
                                                   .rms_norm_eps = 1e-5,
                                                   .rope_section = R"({"rope_type": "yarn",
    "rope_theta": 1000000.0, "factor": 16.0, "original_max_position_embeddings": 16384,
    "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1})",
                                                   .eos = 2,
                                                   .sliding = SlidingRule::kWithWindow}}};
constexpr const ModelType& kThird = kModelTypes[1];

/// No layer slides.
Status complete_full_gguf(const GgufModel& /*model*/, json::Value& config) {
  config["sliding_window"] = nullptr;
  return {};
}

constexpr std::string_view kGgufBeta = "attention.temperature_scale";
constexpr std::string_view kGgufLog = "rope.scaling.yarn_log_multiplier";
constexpr GgufKeyRule kGgufKeys[] = {
    {kGgufBeta, "rope_parameters", "", kGgufByFamily},
    {kGgufLog, "rope_parameters", "", kGgufByFamily},
};

Status complete_third_gguf(const GgufModel& model, json::Value& config) {
  SUBBYTE_TRY(const auto log, gguf_number(model.keys(), kGgufLog));
  SUBBYTE_CHECK(add_growing_rope(model.keys(), config));
  config["rope_parameters"]["mscale"] = 1.0;
  config["rope_parameters"]["mscale_all_dim"] = log.value_or(0);
  return complete_full_gguf(model, config);
}

void add_third_gguf_keys(const GgufArchitecture& architecture, const ModelConfig& model,
                         GgufKeys& keys);

/// Mistral 7B is a llama there; files of later ones are called otherwise, and those of Ministral 3
/// have queries that grow.
constexpr GgufArchitecture kGguf[] = {{.name = "llama",
                                       .model_type = "mistral",
                                       .pairs_heads = true,
                                       .complete = complete_full_gguf,
                                       .is_written_only = true},
                                      {.name = "mistral3",
                                       .model_type = "ministral3",
                                       .with = kGgufBeta,
                                       .pairs_heads = true,
                                       .keys = kGgufKeys,
                                       .complete = complete_third_gguf,
                                       .add_keys = add_third_gguf_keys,
                                       .yarn_log = 1},
                                      {.name = "mistral3",
                                       .model_type = "mistral",
                                       .pairs_heads = true,
                                       .complete = complete_full_gguf}};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_KEY("mistral", "sliding_window", kComputed, "", "absent: 4096; null: none"),
    SUBBYTE_CONFIG_KEY("ministral3", "sliding_window", kComputed, "", "absent or null: none"),
    SUBBYTE_CONFIG_KEY("ministral3", "rope_parameters", kComputed, "",
                       "absent: YaRN of 16,384 positions times 16"),
    SUBBYTE_CONFIG_KEY("", "layer_types", kComputed, "", "what sliding_window says of all layers"),
    SUBBYTE_CONFIG_KEY("", "attention_bias", kIgnored, "", "there are no biases"),
};

constexpr json::KeyRule kRopeKeys[] = {
    SUBBYTE_ROPE_KEY("llama_4_scaling_beta", kComputed, "",
                     "ministral3: queries are times 1 + beta ln(1 + floor(position / "
                     "original_max_position_embeddings))"),
    SUBBYTE_ROPE_KEY("max_position_embeddings", kIgnored, "", "that beside the section counts"),
};

struct Own {
  QueryScale query_scale;

  bool operator==(const Own&) const = default;
};

void add_third_gguf_keys(const GgufArchitecture& architecture, const ModelConfig& model,
                         GgufKeys& keys) {
  keys.number(architecture.key(kGgufBeta), model.own.as<Own>().query_scale.beta);
}

Status read_rest(const json::Object& config, ModelConfig& model, Own& own) {
  if (model.model_type != kThird.name) return {};
  SUBBYTE_TRY(own.query_scale, read_query_scale(config, model));
  return {};
}

void record(const ModelConfig& config, StepRecorder& step) {
  record_usual_step(config, step, {.attention = {.query_scale = config.own.as<Own>().query_scale}});
}

// Sources: the config.json files of mistralai/Mistral-7B-v0.3, Mistral-Nemo-Base-2407 and
// Ministral-3-*-2512; tiny, and where added tokens begin, are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"mistral", "tiny", 256,  512,   2,  4,  2, 64,  0, 512,    480,    2048,   false},
    {"mistral", "7b",   4096, 14336, 32, 32, 8, 128, 0, 32768,  32000,  32768,  false},
    {"mistral", "nemo", 5120, 14336, 40, 32, 8, 128, 0, 131072, 131000, 131072, false},
    {"ministral3", "tiny", 256, 512, 2, 4, 2, 64, 0, 512, 480, 2048, false},
    {"ministral3", "3b", 3072, 9216, 26, 32, 8, 128, 0, 131072, 131000, 262144, true},
    {"ministral3", "8b", 4096, 14336, 34, 32, 8, 128, 0, 131072, 131000, 262144, false},
    {"ministral3", "14b", 5120, 16384, 40, 32, 8, 128, 0, 131072, 131000, 262144, false},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    {"mistral", "", R"({"rope_theta": 1000000.0})"},
    {"ministral3", "", R"({"model_type": "ministral3",
                           "rope_parameters": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 16.0,
                                               "llama_4_scaling_beta": 0.1, "mscale": 1.0,
                                               "mscale_all_dim": 1.0, "rope_theta": 1000000.0,
                                               "original_max_position_embeddings": 16384,
                                               "rope_type": "yarn"}})"},
    {"", "", R"({"attention_bias": "$none", "rms_norm_eps": 1e-5, "sliding_window": null})"},
};

}  // namespace

const ModelFamily mistral_family = {.model_types = kModelTypes,
                                    .gguf = kGguf,
                                    .keys = kKeys,
                                    .rope_keys = kRopeKeys,
                                    .read = read_own<Own, kKeys, read_rest>,
                                    .record = record,
                                    .shapes = kShapes,
                                    .shape_keys = kShapeKeys};

}  // namespace subbyte
