// DeepSeek V2 and V3, Moonlight and Kimi K2: latent attention; after it the first layers have a
// dense block, the others a mixture whose router may take groups of experts and a bias that only
// chooses, beside an expert that every token goes to. Reference: transformers, models/deepseek_v2
// and deepseek_v3.

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

constexpr int kSoftmax = 1;
constexpr int kSigmoids = 2;
constexpr uint64_t kFlashVocabulary = 154880;  // of GLM-4.7-Flash, whose first files say no rule

/// Files whose routers have softmax are of DeepSeek V2.
Status complete_gguf(const GgufModel& model, json::Value& config) {
  SUBBYTE_CHECK(add_latent_sizes(model.keys(), config));
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

constexpr GgufArchitecture kGguf[] = {
    latent_gguf("deepseek2", "deepseek_v3", complete_gguf),
    latent_gguf("deepseek2", "deepseek_v2", complete_gguf, true),
};

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
  ExpertConfig& experts = latent.experts;
  if (is_v2) {
    experts = {.count = 64, .inner = 1407, .shared_inner = 2, .routing = {.normalises = false}};
    SUBBYTE_CHECK(read_latent(config, model, latent, "n_routed_experts num_experts"));
    SUBBYTE_CHECK(read_method(config, experts));
    latent.pairs = RopePairs::kNeighbours;
  } else {
    experts = {.count = 256, .per_token = 8, .inner = 2048, .shared_inner = 1};
    experts.routing = sigmoid_routing(2.5f, 8, 4);
    SUBBYTE_CHECK(read_latent(config, model, latent));
  }
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
