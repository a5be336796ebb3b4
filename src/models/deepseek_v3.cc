// DeepSeek V2 and V3, Moonlight and Kimi K2: latent attention; after it the first layers have a
// dense block, the others a mixture whose router may take groups of experts and a bias that only
// chooses, beside an expert that every token goes to. Reference: transformers, models/deepseek_v2
// and deepseek_v3.

#include <algorithm>
#include <cmath>

#include "models/gguf_config.h"
#include "models/latent_config.h"
#include "models/model_family.h"

namespace subbyte {
namespace {

constexpr const char* kTurning = "qk_rope_head_dim";

constexpr ModelType kModelTypes[] = {
    {.name = "deepseek_v3",
     .architecture = "DeepseekV3ForCausalLM",
     .wrapper = "kimi_k25",
     .defaults = {.kv_heads = 128,
                  .head_dim = 64,
                  .head_dim_key = kTurning,
                  .max_positions = 4096,
                  .eos = 1}},
    {.name = "deepseek_v2",
     .architecture = "DeepseekV2ForCausalLM",
     .defaults = {.head_dim = 64, .head_dim_key = kTurning, .eos = 2}},
};
constexpr const ModelType& kV2 = kModelTypes[1];
/// Kimi K2 is a DeepSeek V3 by another name.
constexpr std::string_view kContainers[] = {"kimi_k2"};

constexpr GgufKeyRule kGgufKeys[] = {
    {.name = "attention.head_count_kv", .key = "num_key_value_heads", .by_family = true},
    {.name = "attention.key_length", .key = "qk_nope_head_dim", .by_family = true},
    {.name = "attention.key_length_mla", .key = "qk_nope_head_dim", .by_family = true},
    {.name = "attention.value_length", .key = "v_head_dim", .by_family = true},
    {.name = "attention.value_length_mla", .key = "v_head_dim", .by_family = true},
    {"attention.q_lora_rank", "q_lora_rank", "null"},
    {"attention.kv_lora_rank", "kv_lora_rank"},
    {"rope.dimension_count", "qk_rope_head_dim"},
    {.name = "rope.scaling.yarn_log_multiplier", .key = "rope_scaling", .by_family = true},
    {"expert_count", "n_routed_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_count", "n_shared_experts"},
    {"expert_group_count", "n_group", "1"},
    {"expert_group_used_count", "topk_group", "1"},
    {"expert_weights_norm", "norm_topk_prob", "false"},
    {"expert_weights_scale", "routed_scaling_factor", "1.0", true},
    {"leading_dense_block_count", "first_k_dense_replace", "0"},
    {.name = "expert_gating_func", .key = "scoring_func", .by_family = true},
};
constexpr GgufTensorRule kGgufTensors[] = {
    {"attn_q_a", "self_attn.q_a_proj"},
    {"attn_q_a_norm", "self_attn.q_a_layernorm"},
    {"attn_q_b", "self_attn.q_b_proj"},
    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
    {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
    {"attn_kv_b", "self_attn.kv_b_proj"},
    {"attn_k_b", "self_attn.k_b_proj", GgufChange::kHeads},
    {"attn_v_b", "self_attn.v_b_proj", GgufChange::kHeads},
};
constexpr double kOfConverter = 0.1;  // which mscale_all_dim is times
constexpr double kSixDigits = 1e6;

/// The number of six digits that a key of F32 was made of, where there is one.
double mscale_of(double log) {
  const double said = log / kOfConverter;
  const double rounded = std::round(said * kSixDigits) / kSixDigits;
  return static_cast<float>(kOfConverter * rounded) == static_cast<float>(log) ? rounded : said;
}

/// Files whose sides of kv_b are apart say the sizes of heads beside those of latents.
Status add_head_sizes(const GgufFile& file, json::Value& config) {
  SUBBYTE_TRY(const auto turning, gguf_integer(file, "rope.dimension_count"));
  const bool are_apart = file.find("deepseek2.attention.key_length_mla") != nullptr;
  SUBBYTE_TRY(const auto keys,
              gguf_integer(file, are_apart ? "attention.key_length_mla" : "attention.key_length"));
  SUBBYTE_TRY(const auto values, gguf_integer(file, are_apart ? "attention.value_length_mla"
                                                              : "attention.value_length"));
  if (!turning || !keys || !values || *turning < 1 || *keys <= *turning || *values < 1) {
    return file.error("gguf.value", "attention.key_length_mla",
                      "a size above that of rope.dimension_count, beside value_length_mla");
  }
  config["qk_nope_head_dim"] = static_cast<uint64_t>(*keys - *turning);
  config["v_head_dim"] = static_cast<uint64_t>(*values);
  config["num_key_value_heads"] = config["num_attention_heads"];
  config.erase("head_dim");
  return {};
}

constexpr int kSoftmax = 1;
constexpr int kSigmoids = 2;
constexpr uint64_t kFlashVocabulary = 154880;  // of GLM-4.7-Flash, whose first files say no rule

/// Files whose routers have softmax are of DeepSeek V2.
Status complete_gguf(const GgufModel& model, json::Value& config) {
  SUBBYTE_CHECK(add_head_sizes(model.keys(), config));
  SUBBYTE_TRY(const auto log, gguf_number(model.keys(), "rope.scaling.yarn_log_multiplier"));
  if (log && *log != 0 && config.contains("rope_scaling")) {
    json::Value& section = config["rope_scaling"];
    section["mscale"] = section["mscale_all_dim"] = mscale_of(*log);
  }
  SUBBYTE_TRY(const auto said, gguf_integer(model.keys(), "expert_gating_func"));
  const bool is_flash = config["vocab_size"] == json::Value(kFlashVocabulary);
  const int64_t gating = said.value_or(0) != 0 ? *said : is_flash ? kSigmoids : kSoftmax;
  if (gating == kSigmoids) return {};
  if (gating != kSoftmax) {
    return model.keys().error("gguf.value", "deepseek2.expert_gating_func", "1 or 2");
  }
  config["model_type"] = std::string(kV2.name);
  config["architectures"] = json::Value::array({std::string(kV2.architecture)});
  const bool has_groups = config["n_group"].get<int64_t>() > 1;
  config["topk_method"] = has_groups ? "group_limited_greedy" : "greedy";
  return {};
}

void add_gguf_keys(const GgufArchitecture& architecture, const ModelConfig& model, GgufKeys& keys);

constexpr GgufArchitecture kGguf[] = {{.name = "deepseek2",
                                       .model_type = "deepseek_v3",
                                       .keys = kGgufKeys,
                                       .tensors = kGgufTensors,
                                       .complete = complete_gguf,
                                       .add_keys = add_gguf_keys,
                                       .yarn_log = kOfConverter},
                                      {.name = "deepseek2",
                                       .model_type = "deepseek_v2",
                                       .keys = kGgufKeys,
                                       .tensors = kGgufTensors,
                                       .complete = complete_gguf,
                                       .add_keys = add_gguf_keys,
                                       .yarn_log = kOfConverter,
                                       .is_written_only = true}};

/// Latents are the keys and values of one head, and heads have the sizes that they are widened to.
void add_gguf_keys(const GgufArchitecture& architecture, const ModelConfig& model, GgufKeys& keys) {
  const LatentConfig& latent = model.own.as<LatentConfig>();
  const ExpertConfig& experts = latent.experts;
  const auto whole = [&](std::string_view name, int64_t number) {
    keys.whole(architecture.key(name), static_cast<uint32_t>(number));
  };
  const bool has_sigmoids = experts.routing.scores == Routing::Scores::kSigmoid;
  whole("expert_gating_func", has_sigmoids ? kSigmoids : kSoftmax);
  whole("attention.head_count_kv", 1);
  whole("attention.key_length", latent.rank + model.head_dim);
  whole("attention.value_length", latent.rank);
  whole("attention.key_length_mla", latent.nope + model.head_dim);
  whole("attention.value_length_mla", latent.value);
  whole("attention.kv_lora_rank", latent.rank);
  if (latent.query_rank > 0) whole("attention.q_lora_rank", latent.query_rank);
  const auto dense = std::ranges::find(experts.layers, true) - experts.layers.begin();
  whole("leading_dense_block_count", dense);
  whole("expert_count", experts.count);
  whole("expert_used_count", experts.per_token);
  whole("expert_feed_forward_length", experts.inner);
  whole("expert_shared_count", experts.shared_inner / std::max<int64_t>(1, experts.inner));
  whole("expert_group_count", experts.routing.groups);
  whole("expert_group_used_count", experts.routing.top_groups);
  keys.flag(architecture.key("expert_weights_norm"), experts.routing.normalises);
  keys.number(architecture.key("expert_weights_scale"), experts.routing.factor);
}

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_KEY("deepseek_v2", "num_experts", kComputed, "", "n_routed_experts"),
    SUBBYTE_CONFIG_KEY("deepseek_v2", "num_local_experts", kIgnored, "",
                       "n_routed_experts says it"),
    SUBBYTE_CONFIG_KEY("deepseek_v2", "norm_topk_prob", kRefused, "false",
                       "weights of experts add up to 1"),
    SUBBYTE_CONFIG_KEY("deepseek_v2", "topk_method", kComputed, "",
                       "greedy or group_limited_greedy; absent: greedy"),
    SUBBYTE_CONFIG_KEY("deepseek_v2", "scoring_func", kRefused, "\"softmax\"",
                       "other scores of experts"),
    SUBBYTE_CONFIG_KEY("deepseek_v2", "rope_interleave", kIgnored, "", "neighbours turn together"),
    SUBBYTE_CONFIG_KEY("deepseek_v2", "mlp_bias", kRefused, "false", "biases of blocks"),
};

// ---- config.json

/// Without "group_limited_greedy" groups of the older type say nothing.
Status read_method(const json::Object& config, ExpertConfig& experts) {
  SUBBYTE_TRY(const auto method, config.string("topk_method"));
  if (method && *method == "group_limited_greedy") return {};
  if (method && *method != "greedy") {
    return config.error("config.experts", "topk_method", "\"greedy\" or \"group_limited_greedy\"");
  }
  experts.routing.groups = experts.routing.top_groups = 1;
  return {};
}

Status read(const json::Object& config, ModelConfig& model) {
  const bool is_v2 = model.model_type == kV2.name;
  LatentConfig latent = {.query_rank = 1536, .nope = 128, .value = 128};
  SUBBYTE_CHECK(read_latent(config, model, latent));
  ExpertConfig& experts = latent.experts;
  if (is_v2) {
    latent.pairs = RopePairs::kNeighbours;
    experts = {.count = 64, .inner = 1407, .shared_inner = 2, .routing = {.normalises = false}};
  } else {
    experts = {.count = 256, .per_token = 8, .inner = 2048, .shared_inner = 1};
    experts.routing = {.scores = Routing::Scores::kSigmoid,
                       .added = 1e-20f,
                       .factor = 2.5f,
                       .groups = 8,
                       .top_groups = 4,
                       .groups_by_two = true};
  }
  SUBBYTE_CHECK(read_routed_experts(
      config, experts,
      is_v2 ? "n_routed_experts num_experts" : "n_routed_experts num_local_experts"));
  if (is_v2) SUBBYTE_CHECK(read_method(config, experts));
  SUBBYTE_TRY(experts.layers,
              read_layers_after(config, "first_k_dense_replace", is_v2 ? 0 : 3, model.num_layers));
  model.own = FamilyConfig(std::move(latent));
  return {};
}

// ---- synth

// Sources: the config.json files of deepseek-ai/DeepSeek-V2-Lite and DeepSeek-V3,
// moonshotai/Moonlight-16B-A3B and Kimi-K2; tiny, and where added tokens begin, are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"deepseek-v3", "tiny", 256, 512, 2, 4, 4, 32, 0, 512, 480, 2048, false, 8, 2, 128},
    {"deepseek-v3",   "moonlight", 2048, 11264, 27, 16,  16,  64, 0, 163840, 163584, 8192,   false,
     64, 6, 1408},
    {"deepseek-v3",   "671b",      7168, 18432, 61, 128, 128, 64, 0, 129280, 128000, 163840, false,
     256, 8, 2048},
    {"deepseek-v3",   "kimi-k2",   7168, 18432, 61, 64,  64,  64, 0, 163840, 163584, 131072, false,
     384, 8, 2048},
    {"deepseek-v2", "tiny", 256, 512, 2, 4, 4, 32, 0, 512, 480, 2048, false, 8, 2, 128},
    {"deepseek-v2",   "lite",      2048, 10944, 27, 16,  16,  64, 0, 102400, 100000, 163840, false,
     64, 6, 1408},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    kLatentShape,
    {"", "",
     R"({"q_lora_rank": 1536, "routed_scaling_factor": 2.446, "first_k_dense_replace": 1})"},
    kTinyLatentShape,
    {"", "moonlight", R"({"q_lora_rank": null, "n_shared_experts": 2, "rope_theta": 50000.0})"},
    {"", "671b", R"({"n_group": 8, "topk_group": 4, "routed_scaling_factor": 2.5,
                     "first_k_dense_replace": 3})"},
    {"deepseek-v2", "", R"({"model_type": "deepseek_v2", "q_lora_rank": null,
                            "n_shared_experts": 2, "norm_topk_prob": false,
                            "routed_scaling_factor": 1.0, "topk_method": "greedy"})"},
};

}  // namespace

const ModelFamily deepseek_v3_family = {.model_types = kModelTypes,
                                        .containers = kContainers,
                                        .gguf = kGguf,
                                        .keys = kKeys,
                                        .shared_keys = {kRoutedExpertKeys, kLatentKeys},
                                        .rope_keys = kLatentRopeKeys,
                                        .read = read,
                                        .record = record_latent_step,
                                        .shapes = kShapes,
                                        .shape_keys = kShapeKeys};

}  // namespace subbyte
