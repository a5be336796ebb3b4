// Granite 3: transformers' GraniteForCausalLM. It is like Llama, with factors of the embedding, of
// what blocks add, of scores and of logits. Granite 3 with experts, GraniteMoeForCausalLM, has a
// mixture of them in all layers.

#include "models/config_keys.h"
#include "models/expert_config.h"
#include "models/model_family.h"
#include "models/step_recorder.h"

namespace subbyte {
namespace {

constexpr ModelType kModelTypes[] = {
    {.name = "granite", .architecture = "GraniteForCausalLM", .defaults = {.eos = 2}},
    {.name = "granitemoe", .architecture = "GraniteMoeForCausalLM", .defaults = {.eos = 2}}};
constexpr const ModelType& kMoe = kModelTypes[1];

constexpr GgufKeyRule kGgufKeys[] = {
    {"attention.scale", "attention_multiplier", "", kGgufFloat},
    {"embedding_scale", "embedding_multiplier", "1.0", kGgufFloat},
    {"residual_scale", "residual_multiplier", "1.0", kGgufFloat},
    {"logit_scale", "logits_scaling", "", kGgufFloat},
    {"expert_count", "num_local_experts"},
    {"expert_used_count", "num_experts_per_tok"},
};
constexpr GgufTensorRule kGgufTensors[] = {
    {"ffn_gate_inp", "block_sparse_moe.router.layer"},
    {"ffn_gate_exps", "block_sparse_moe.experts.gate_proj", GgufChange::kExperts},
    {"ffn_up_exps", "block_sparse_moe.experts.up_proj", GgufChange::kExperts},
    {"ffn_down_exps", "block_sparse_moe.output_linear", GgufChange::kExperts},
};

constexpr GgufArchitecture kGguf[] = {{.name = "granite",
                                       .model_type = "granite",
                                       .pairs_heads = true,
                                       .keys = kGgufKeys,
                                       .tensors = kGgufTensors,
                                       .biases = kUsualGgufBiases},
                                      {.name = "granitemoe",
                                       .model_type = "granitemoe",
                                       .pairs_heads = true,
                                       .keys = kGgufKeys,
                                       .tensors = kGgufTensors,
                                       .biases = kUsualGgufBiases}};

struct Own {
  float embedding_factor = 1;
  float residual_factor = 1;
  float score_scale = 1;
  float logits_scaling = 1;
  ExpertConfig experts = {};

  bool operator==(const Own&) const = default;
};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_FLAG(ModelConfig, "granite", "mlp_bias", mlp_bias, false, ""),
    SUBBYTE_CONFIG_KEY("granitemoe", "mlp_bias", kIgnored, "", "no layer is dense"),
    SUBBYTE_CONFIG_KEY("granitemoe", "num_local_experts", kComputed, "", "absent: 8"),
    SUBBYTE_CONFIG_KEY("granitemoe", "num_experts_per_tok", kComputed, "", "absent: 2"),
    SUBBYTE_CONFIG_NUMBER(Own, "", "embedding_multiplier", embedding_factor, 1, 1e-6, 1e6, ""),
    SUBBYTE_CONFIG_NUMBER(Own, "", "residual_multiplier", residual_factor, 1, 1e-6, 1e6, ""),
    SUBBYTE_CONFIG_NUMBER(Own, "", "attention_multiplier", score_scale, 1, 1e-6, 1e6, "of scores"),
    SUBBYTE_CONFIG_NUMBER(Own, "", "logits_scaling", logits_scaling, 1, 1e-6, 1e6,
                          "logits are divided by it"),
};

Status read_rest(const json::Object& config, ModelConfig& model, Own& own) {
  if (model.model_type != kMoe.name) return {};
  own.experts = {.count = 8, .per_token = 2};
  return read_experts(config, model, {.count = "num_local_experts", .inner = ""}, own.experts);
}

void record(const ModelConfig& config, StepRecorder& step) {
  const Own& own = config.own.as<Own>();
  record_usual_step(
      config, step,
      {.stream = {.embedding_factor = own.embedding_factor, .residual_factor = own.residual_factor},
       .score_scale = own.score_scale,
       .experts = &own.experts,
       .mixture = {.prefix = "block_sparse_moe.",
                   .router = "router.layer",
                   .joined = "input_linear",
                   .gate_name = "experts.gate_proj",
                   .up = "experts.up_proj",
                   .down = "output_linear"},
       .logits = {.factor = 1 / own.logits_scaling}});
}

// Sources: the config.json files of ibm-granite/granite-3.3-* and granite-3.1-*-a*; those called
// tiny, and where added tokens begin, are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"granite", "tiny", 256,  512,   2,  4,  2, 64,  0, 512,   480,   2048,   true},
    {"granite", "2b",   2048, 8192,  40, 32, 8, 64,  0, 49159, 49152, 131072, true},
    {"granite", "8b",   4096, 12800, 40, 32, 8, 128, 0, 49159, 49152, 131072, true},
    {"granitemoe", "tiny",    256,  128, 2,  4,  2, 64, 0, 512,   480,   2048,   true, 8,  2},
    {"granitemoe", "1b-a400m", 1024, 512, 24, 16, 8, 64, 0, 49155, 49152, 131072, true, 32, 8},
    {"granitemoe", "3b-a800m", 1536, 512, 32, 24, 8, 64, 0, 49155, 49152, 131072, true, 40, 8},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    {"", "", R"({"head_dim": "$none", "attention_multiplier": 0.015625,
                 "embedding_multiplier": 12.0, "logits_scaling": 8.0, "residual_multiplier": 0.22,
                 "rope_scaling": null, "rope_theta": 10000000.0})"},
    {"granite", "", R"({"mlp_bias": false})"},
    {"granite", "8b", R"({"attention_multiplier": 0.0078125, "logits_scaling": 16.0})"},
    {"granitemoe", "", R"({"model_type": "granitemoe", "num_local_experts": "$experts"})"},
};

}  // namespace

const ModelFamily granite_family = {.model_types = kModelTypes,
                                    .gguf = kGguf,
                                    .keys = kKeys,
                                    .read = read_own<Own, kKeys, read_rest>,
                                    .record = record,
                                    .shapes = kShapes,
                                    .shape_keys = kShapeKeys};

}  // namespace subbyte
