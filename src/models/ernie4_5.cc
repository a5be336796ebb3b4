// ERNIE 4.5: transformers' Ernie4_5ForCausalLM. It is like Llama, but neighbours of a head turn
// together, and one key says whether all products have biases. Ernie4_5_MoeForCausalLM has mixtures
// of experts in some layers, whose router has biases that only choose, beside one that every token
// goes to.

#include "models/config_keys.h"
#include "models/expert_config.h"
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
                                                   .eos = 2}},
                                     {.name = "ernie4_5_moe",
                                      .architecture = "Ernie4_5_MoeForCausalLM",
                                      .defaults = {.intermediate_size = 12288,
                                                   .vocab = 103424,
                                                   .heads = 20,
                                                   .kv_heads = 4,
                                                   .max_positions = 131072,
                                                   .rms_norm_eps = 1e-5,
                                                   .rope_theta = 500000,
                                                   .tie_word_embeddings = true,
                                                   .eos = 2}}};
constexpr const ModelType& kMoe = kModelTypes[1];

struct Own {
  bool has_head_bias = false;
  int64_t shared_experts = 0;  // all of the size of one
  ExpertConfig experts;

  bool operator==(const Own&) const = default;
};

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_FLAG(ModelConfig, "", "use_bias", attention_bias, false,
                        "of experts alone there are none"),
    SUBBYTE_CONFIG_KEY("", "attention_bias", kIgnored, "", "use_bias says it"),
    SUBBYTE_CONFIG_KEY("", "compression_ratio", kIgnored, "", "of positions in training"),
    SUBBYTE_CONFIG_KEY("", "fuse_rms_norm use_flash_attention", kIgnored, "", "how it is computed"),
    SUBBYTE_CONFIG_KEY("", "weight_share_add_bias", kIgnored, "", "the head has no bias"),
    SUBBYTE_CONFIG_KEY("ernie4_5_moe", "intermediate_size", kComputed, "",
                       "of layers without experts; absent: 12288"),
    SUBBYTE_CONFIG_KEY("ernie4_5_moe", "moe_num_experts", kComputed, "", "absent: 64"),
    SUBBYTE_CONFIG_KEY("ernie4_5_moe", "num_experts", kComputed, "", "moe_num_experts"),
    SUBBYTE_CONFIG_KEY("ernie4_5_moe", "moe_k", kComputed, "", "experts of a token; absent: 6"),
    SUBBYTE_CONFIG_KEY("ernie4_5_moe", "num_experts_per_tok", kComputed, "", "moe_k"),
    SUBBYTE_CONFIG_KEY("ernie4_5_moe", "moe_intermediate_size", kComputed, "", "absent: 1536"),
    SUBBYTE_CONFIG_NUMBER(Own, "ernie4_5_moe", "moe_num_shared_experts", shared_experts, 2, 0,
                          kMaxExperts, "each of the same size"),
    SUBBYTE_CONFIG_KEY("ernie4_5_moe", "moe_layer_start_index", kComputed, "",
                       "the first layer that may have experts; absent: 1"),
    SUBBYTE_CONFIG_KEY("ernie4_5_moe", "moe_layer_end_index", kComputed, "",
                       "the last one; -1 and absent: of all"),
    SUBBYTE_CONFIG_KEY("ernie4_5_moe", "moe_layer_interval", kComputed, "",
                       "experts are in the last of so many layers; absent: 1"),
    SUBBYTE_CONFIG_NUMBER(Own, "ernie4_5_moe", "moe_norm_min", experts.routing.smallest_sum, 1e-12,
                          0, 1e6, "what weights are divided by at least"),
    SUBBYTE_CONFIG_KEY("ernie4_5_moe", "moe_capacity moe_gate", kIgnored, "", "of training"),
    SUBBYTE_CONFIG_KEY("ernie4_5_moe", "moe_use_aux_free", kIgnored, "",
                       "routers always have their biases"),
    SUBBYTE_CONFIG_KEY("ernie4_5_moe", "num_nextn_predict_layers", kIgnored, "",
                       "of the part that drafts, which is not read"),
};

constexpr GgufKeyRule kGgufKeys[] = {
    {"expert_count", "moe_num_experts"},
    {"expert_used_count", "moe_k"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_count", "moe_num_shared_experts", "0"},
    {"leading_dense_block_count", "moe_layer_start_index", "0"},
    {"interleave_moe_layer_step", "moe_layer_interval"},
};
constexpr GgufTensorRule kGgufTensors[] = {
    {"exp_probs_b", "mlp.moe_statics.e_score_correction_bias!.bias", GgufChange::kRow},
};

constexpr GgufBias kGgufBiases[] = {{"use_bias", "attn_q"}};

void add_gguf_keys(const GgufArchitecture& architecture, const ModelConfig& model, GgufKeys& keys);

constexpr GgufArchitecture kGguf[] = {
    {.name = "ernie4_5", .model_type = "ernie4_5", .biases = kGgufBiases},
    {.name = "ernie4_5-moe",
     .model_type = "ernie4_5_moe",
     .keys = kGgufKeys,
     .tensors = kGgufTensors,
     .add_keys = add_gguf_keys,
     .biases = kGgufBiases}};

void add_gguf_keys(const GgufArchitecture& architecture, const ModelConfig& model, GgufKeys& keys) {
  const ExpertConfig& experts = model.own.as<Own>().experts;
  keys.whole(architecture.key("expert_shared_feed_forward_length"),
             static_cast<uint32_t>(experts.shared_inner));
}

/// Layers from the first to the last one that may have experts, of each so many the last one.
Result<std::vector<bool>> read_mixed_layers(const json::Object& config, int64_t num_layers) {
  SUBBYTE_TRY(const auto first, config.integer("moe_layer_start_index", 0, kMaxPositions));
  SUBBYTE_TRY(const auto last, config.integer("moe_layer_end_index", -1, kMaxPositions));
  SUBBYTE_TRY(const auto every, config.integer("moe_layer_interval", 1, kMaxPositions));
  std::vector<bool> layers(static_cast<std::size_t>(num_layers));
  for (int64_t i = first.value_or(1); i < num_layers; ++i) {
    const bool is_before_end = last.value_or(-1) == -1 || i <= *last;
    layers[i] = is_before_end && (i + 1) % every.value_or(1) == 0;
  }
  return layers;
}

Status read_mixture(const json::Object& config, const ModelConfig& model, ExpertConfig& experts) {
  experts.count = 64;
  experts.per_token = 6;
  experts.inner = 1536;
  SUBBYTE_CHECK(read_experts(
      config, model,
      {.count = "moe_num_experts num_experts", .per_token = "moe_k num_experts_per_tok"}, experts));
  SUBBYTE_TRY(experts.layers, read_mixed_layers(config, model.num_layers));
  return {};
}

Status read_rest(const json::Object& config, ModelConfig& model, Own& own) {
  model.mlp_bias = model.attention_bias;
  if (model.model_type == kMoe.name) {
    SUBBYTE_CHECK(read_mixture(config, model, own.experts));
    own.has_head_bias = model.attention_bias;
    own.experts.shared_inner = own.shared_experts * own.experts.inner;
  }
  if (!own.has_head_bias || !model.tie_word_embeddings) return {};
  return config.error("config.not_computed", "use_bias",
                      "false, or tie_word_embeddings false, as lm_head has a bias, too");
}

void record(const ModelConfig& config, StepRecorder& step) {
  const Own& own = config.own.as<Own>();
  record_usual_step(config, step,
                    {.attention = {.pairs = RopePairs::kNeighbours},
                     .experts = &own.experts,
                     .mixture = {.choice_bias = "moe_statics.e_score_correction_bias",
                                 .is_bias_row = true,
                                 .shared = {.name = "shared_experts", .has_gate = false}},
                     .logits = {.has_bias = own.has_head_bias}});
}

// Sources: the config.json files of baidu/ERNIE-4.5-*-PT; those called tiny, and where added tokens
// begin, are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"ernie4.5", "tiny", 256,  512,  2,  4,  2, 64,  0, 512,    480,    2048,   true},
    {"ernie4.5", "0.3b", 1024, 3072, 18, 16, 2, 128, 0, 103424, 100000, 131072, true},
    {"ernie4.5-moe", "tiny", 256, 512, 2, 4, 2, 64, 0, 512, 480, 2048, true, 8, 2, 128},
    {"ernie4.5-moe", "21b-a3b", 2560, 12288, 28, 20, 4, 128, 0, 103424, 100000, 131072, true, 64, 6,
     1536},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    {"", "", R"({"attention_bias": "$none", "rope_theta": 500000.0, "use_bias": false})"},
    {"ernie4.5-moe", "", R"({"model_type": "ernie4_5_moe", "head_dim": "$none",
                             "moe_k": "$per_token", "moe_layer_interval": 1,
                             "moe_layer_start_index": 1, "moe_num_experts": "$experts",
                             "moe_num_shared_experts": 2, "num_experts_per_tok": "$none"})"},
};

}  // namespace

const ModelFamily ernie4_5_family = {.model_types = kModelTypes,
                                     .gguf = kGguf,
                                     .keys = kKeys,
                                     .read = read_own<Own, kKeys, read_rest>,
                                     .record = record,
                                     .shapes = kShapes,
                                     .shape_keys = kShapeKeys};

}  // namespace subbyte
