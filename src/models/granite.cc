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
    {"attention.scale", "attention_multiplier", "", true},
    {"embedding_scale", "embedding_multiplier", "1.0", true},
    {"residual_scale", "residual_multiplier", "1.0", true},
    {"logit_scale", "logits_scaling", "", true},
};
constexpr GgufKeyRule kGgufMoeKeys[] = {
    {"attention.scale", "attention_multiplier", "", true},
    {"embedding_scale", "embedding_multiplier", "1.0", true},
    {"residual_scale", "residual_multiplier", "1.0", true},
    {"logit_scale", "logits_scaling", "", true},
    {"expert_count", "num_local_experts"},
    {"expert_used_count", "num_experts_per_tok"},
};
constexpr GgufTensorRule kGgufTensors[] = {
    {"attn_q", "self_attn.q_proj", GgufChange::kPairedQueries},
    {"attn_k", "self_attn.k_proj", GgufChange::kPairedKeys},
};

constexpr GgufTensorRule kGgufMoeTensors[] = {
    {"ffn_gate_inp", "block_sparse_moe.router.layer"},
    {"ffn_gate_exps", "block_sparse_moe.experts.gate_proj", GgufChange::kExperts},
    {"ffn_up_exps", "block_sparse_moe.experts.up_proj", GgufChange::kExperts},
    {"ffn_down_exps", "block_sparse_moe.output_linear", GgufChange::kExperts},
};

Status complete_gguf(const GgufModel& model, json::Value& config) {
  config["attention_bias"] = model.find("blk.0.attn_q.bias") != nullptr;
  config["mlp_bias"] = model.find("blk.0.ffn_down.bias") != nullptr;
  return {};
}

constexpr GgufArchitecture kGguf[] = {{.name = "granite",
                                       .model_type = "granite",
                                       .keys = kGgufKeys,
                                       .tensors = kGgufTensors,
                                       .complete = complete_gguf},
                                      {.name = "granitemoe",
                                       .model_type = "granitemoe",
                                       .keys = kGgufMoeKeys,
                                       .tensors = kGgufTensors,
                                       .own_tensors = kGgufMoeTensors,
                                       .complete = complete_gguf}};

constexpr json::ScopedRule kKeys[] = {
    SUBBYTE_CONFIG_KEY("granite", "mlp_bias", kComputed, "", "absent: false"),
    SUBBYTE_CONFIG_KEY("granitemoe", "mlp_bias", kIgnored, "", "no layer is dense"),
    SUBBYTE_CONFIG_KEY("granitemoe", "num_local_experts", kComputed, "", "absent: 8"),
    SUBBYTE_CONFIG_KEY("granitemoe", "num_experts_per_tok", kComputed, "", "absent: 2"),
    SUBBYTE_CONFIG_KEY("", "embedding_multiplier", kComputed, "", "absent: 1"),
    SUBBYTE_CONFIG_KEY("", "residual_multiplier", kComputed, "", "absent: 1"),
    SUBBYTE_CONFIG_KEY("", "attention_multiplier", kComputed, "", "of scores; absent: 1"),
    SUBBYTE_CONFIG_KEY("", "logits_scaling", kComputed, "", "logits are divided by it; absent: 1"),
};

struct Own {
  bool mlp_bias = false;
  float embedding_factor = 1;
  float residual_factor = 1;
  float score_scale = 1;
  float logit_factor = 1;
  ExpertConfig experts = {};

  bool operator==(const Own&) const = default;
};

Status read(const json::Object& config, ModelConfig& model) {
  const auto factor = [&](const char* key) -> Result<double> {
    SUBBYTE_TRY(const auto value, config.number(key, 1e-6, 1e6));
    return value.value_or(1);
  };
  ExpertConfig experts = {.layers = std::vector<bool>(model.num_layers, false)};
  if (model.model_type == kMoe.name) {
    experts = {.count = 8, .per_token = 2, .inner = model.intermediate_size};
    SUBBYTE_CHECK(read_experts(config, {.count = "num_local_experts", .inner = "intermediate_size"},
                               experts));
    experts.layers.assign(model.num_layers, true);
  }
  SUBBYTE_TRY(const auto biases, config.boolean("mlp_bias"));
  SUBBYTE_TRY(const double embedding, factor("embedding_multiplier"));
  SUBBYTE_TRY(const double residual, factor("residual_multiplier"));
  SUBBYTE_TRY(const double scores, factor("attention_multiplier"));
  SUBBYTE_TRY(const double logits, factor("logits_scaling"));
  model.own = FamilyConfig(Own{biases.value_or(false), static_cast<float>(embedding),
                               static_cast<float>(residual), static_cast<float>(scores),
                               static_cast<float>(1 / logits), std::move(experts)});
  return {};
}

void record(const ModelConfig& config, StepRecorder& step) {
  const Own& own = config.own.as<Own>();
  record_usual_step(
      config, step,
      {.stream = {.embedding_factor = own.embedding_factor, .residual_factor = own.residual_factor},
       .attention = {.has_bias = config.attention_bias, .has_output_bias = config.attention_bias},
       .score_scale = own.score_scale,
       .gated = {.has_bias = own.mlp_bias},
       .experts = &own.experts,
       .mixture = {.prefix = "block_sparse_moe.",
                   .router = "router.layer",
                   .joined = "input_linear",
                   .gate_name = "experts.gate_proj",
                   .up = "experts.up_proj",
                   .down = "output_linear"},
       .logits = {.factor = own.logit_factor}});
}

// Sources: the config.json files of ibm-granite/granite-3.3-* and granite-3.1-*-a*; those called
// tiny, and where added tokens begin, are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    // arch, name: hidden, inner, layers, heads, KV heads, head size, window, vocabulary,
    //             first added token, positions, tied, experts, experts of a token
    {"granite", "tiny", 256,  512,   2,  4,  2, 64,  0, 512,   480,   2048,   true},
    {"granite", "2b",   2048, 8192,  40, 32, 8, 64,  0, 49159, 49152, 131072, true},
    {"granite", "8b",   4096, 12800, 40, 32, 8, 128, 0, 49159, 49152, 131072, true},
    {"granitemoe", "tiny",    256,  128, 2,  4,  2, 64, 0, 512,   480,   2048,   true, 8,  2},
    {"granitemoe", "1b-a400m", 1024, 512, 24, 16, 8, 64, 0, 49155, 49152, 131072, true, 32, 8},
    {"granitemoe", "3b-a800m", 1536, 512, 32, 24, 8, 64, 0, 49155, 49152, 131072, true, 40, 8},
};
// clang-format on

json::Value config_of(const ModelShape& shape, int64_t layers) {
  const bool is_moe = shape.experts > 0;
  json::Value config = usual_config(is_moe ? kMoe : kModelTypes[0], shape, layers);
  config.erase("head_dim");
  config["attention_multiplier"] = 1.0 / static_cast<double>(shape.head_dim);
  config["embedding_multiplier"] = 12.0;
  config["logits_scaling"] = shape.hidden == 4096 ? 16.0 : 8.0;
  if (is_moe) {
    config["num_experts_per_tok"] = shape.per_token;
    config["num_local_experts"] = shape.experts;
  } else {
    config["mlp_bias"] = false;
  }
  config["residual_multiplier"] = 0.22;
  config["rope_scaling"] = nullptr;
  config["rope_theta"] = 10000000.0;
  return config;
}

}  // namespace

extern const ModelFamily granite_family;
const ModelFamily granite_family = {.model_types = kModelTypes,
                                    .gguf = kGguf,
                                    .keys = kKeys,
                                    .read = read,
                                    .record = record,
                                    .shapes = kShapes,
                                    .config_of = config_of};

}  // namespace subbyte
