// DeepSeek V3.2 and GLM-5: DeepSeek V3 whose tokens attend to the positions that an indexer selects
// alone: index_topk of those before them. Of GLM a layer may take those of the one before.
// Reference: transformers, models/deepseek_v32 and glm_moe_dsa.

#include <fmt/format.h>

#include <algorithm>

#include "models/latent_config.h"
#include "models/model_family.h"

namespace subbyte {
namespace {

constexpr const char* kTurning = "qk_rope_head_dim";

constexpr ModelType kModelTypes[] = {{.name = "deepseek_v32",
                                      .architecture = "DeepseekV32ForCausalLM",
                                      .defaults = {.intermediate_size = 18432,
                                                   .kv_heads = 128,
                                                   .head_dim = 64,
                                                   .head_dim_key = kTurning,
                                                   .max_positions = 163840,
                                                   .eos = 1,
                                                   .sliding = SlidingRule::kOfFamily}},
                                     {.name = "glm_moe_dsa",
                                      .architecture = "GlmMoeDsaForCausalLM",
                                      .defaults = {.intermediate_size = 12288,
                                                   .kv_heads = 64,
                                                   .head_dim = 64,
                                                   .head_dim_key = kTurning,
                                                   .max_positions = 202752,
                                                   .rms_norm_eps = 1e-5,
                                                   .eos = 1,
                                                   .sliding = SlidingRule::kOfFamily}}};
constexpr const ModelType& kGlm = kModelTypes[1];

constexpr int64_t kMaxSelected = 1 << 16;    // places in a list of each token; real ones have 2,048
constexpr int64_t kMaxIndexHeads = 1 << 12;  // real ones have 64
constexpr int64_t kMaxSelectable = 1 << 24;  // positions, which lists have as float32

constexpr ConfigKey kKeys[] = {
    SUBBYTE_CONFIG_NUMBER(LatentConfig, "", "index_topk", indexer.top, 2048, 1, kMaxSelected,
                          "positions that a token attends to at most"),
    SUBBYTE_CONFIG_NUMBER(LatentConfig, "", "index_n_heads", indexer.heads, kKept, 1,
                          kMaxIndexHeads, ""),
    SUBBYTE_CONFIG_NUMBER(LatentConfig, "", "index_head_dim", indexer.head_dim, 128, 1, kMaxWidth,
                          ""),
    SUBBYTE_CONFIG_KEY("glm_moe_dsa", "indexer_types", kComputed, "",
                       "full, or shared: as the layer before selects; absent: by index_topk_freq"),
    SUBBYTE_CONFIG_KEY("glm_moe_dsa", "index_topk_pattern", kComputed, "",
                       "the same as letters F and S, or a list; absent: by index_topk_freq"),
    SUBBYTE_CONFIG_KEY("glm_moe_dsa", "index_topk_freq", kComputed, "",
                       "layer i selects where this divides max(i + 1 - index_skip_topk_offset, 0); "
                       "absent: 1"),
    SUBBYTE_CONFIG_KEY("glm_moe_dsa", "index_skip_topk_offset", kComputed, "",
                       "see index_topk_freq; absent: 2"),
    SUBBYTE_CONFIG_KEY("deepseek_v32", "indexer_rope_interleave", kRefused, "false",
                       "heads of the indexer that turn otherwise"),
    SUBBYTE_CONFIG_KEY("glm_moe_dsa", "indexer_rope_interleave", kRefused, "true",
                       "heads of the indexer that turn otherwise"),
    SUBBYTE_CONFIG_KEY("", "mlp_layer_types", kComputed, "",
                       "absent: dense up to first_k_dense_replace, then sparse"),
    SUBBYTE_CONFIG_KEY("", "rope_interleave", kRefused, "true", "halves of heads that turn"),
    SUBBYTE_CONFIG_KEY("", "num_experts", kRefused, "", "n_routed_experts, older"),
    SUBBYTE_CONFIG_KEY("", "layer_types", kIgnored, "", "all select"),
    SUBBYTE_CONFIG_KEY("", "mlp_bias", kIgnored, "", "blocks have no biases"),
};

/// Layers that the schedule of index_topk_freq has select.
Result<std::vector<bool>> scheduled(const json::Object& config, int64_t num_layers) {
  SUBBYTE_TRY(const auto step, config.integer("index_topk_freq", 0, kMaxPositions));
  SUBBYTE_TRY(const auto offset, config.integer("index_skip_topk_offset", 0, kMaxPositions));
  std::vector<bool> selects;
  for (int64_t i = 0; i < num_layers; ++i) {
    const int64_t place = std::max<int64_t>(i - offset.value_or(2) + 1, 0);
    selects.push_back(place % std::max<int64_t>(step.value_or(1), 1) == 0);
  }
  if (selects.front()) return selects;
  return config.error("config.layer_types", "index_skip_topk_offset",
                      "a number with which the first layer selects, such as 1");
}

/// Those of the first key that is there; the first layer must be one.
Result<std::vector<bool>> read_selecting(const json::Object& config, int64_t num_layers) {
  const char* const key = config.has("indexer_types") ? "indexer_types" : "index_topk_pattern";
  if (!config.has(key)) return scheduled(config, num_layers);
  json::Value list = *config.find(key);
  if (list.is_string()) {
    const std::string letters = list.get<std::string>();
    list = json::Value::array();
    for (const char c : letters) list.push_back(c == 'F' ? "full" : c == 'S' ? "shared" : "");
  }
  const auto is_known = [](const json::Value& one) { return one == "full" || one == "shared"; };
  if (!list.is_array() || std::ssize(list) != num_layers || !std::ranges::all_of(list, is_known) ||
      list[0] != "full") {
    return config.error("config.layer_types", key,
                        fmt::format("\"full\" or \"shared\" for each of {} layers, the first one "
                                    "\"full\"",
                                    num_layers));
  }
  std::vector<bool> selects;
  for (const json::Value& one : list) selects.push_back(one == "full");
  return selects;
}

/// Codes: config.heads where a head turns more than it has, or queries have no rank; json.range.
Status check_indexer(const json::Object& config, const ModelConfig& model,
                     const LatentConfig& latent) {
  if (latent.indexer.head_dim < model.rope.dim()) {
    return config.error("config.heads", "index_head_dim",
                        fmt::format("at least qk_rope_head_dim ({})", model.rope.dim()));
  }
  if (model.max_positions > kMaxSelectable) {
    return config.error("json.range", "max_position_embeddings",
                        fmt::format("at most {} where an indexer selects", kMaxSelectable));
  }
  if (latent.query_rank > 0) return {};
  return config.error("config.heads", "q_lora_rank", "a rank, which the indexer reads");
}

Status read(const json::Object& config, ModelConfig& model) {
  const bool is_glm = model.model_type == kGlm.name;
  LatentConfig latent = {.query_rank = 1536, .nope = 128, .value = 128};
  latent.indexer = {.heads = 64, .pairs = RopePairs::kHalves};
  if (is_glm) {
    latent = {.query_rank = 2048, .nope = 192, .value = 256};
    latent.indexer = {.heads = 32, .pairs = RopePairs::kNeighbours};
  }
  latent.experts = {.count = 256, .per_token = 8, .inner = 2048, .shared_inner = 1};
  latent.experts.routing = is_glm ? sigmoid_routing(2.5f) : sigmoid_routing(2.5f, 8, 4);
  SUBBYTE_CHECK(read_latent(config, model, latent));
  SUBBYTE_CHECK(read_keys(config, kKeys, &latent, model));
  SUBBYTE_CHECK(check_indexer(config, model, latent));
  if (is_glm) {
    SUBBYTE_TRY(latent.selects, read_selecting(config, model.num_layers));
  }
  SUBBYTE_TRY(const auto dense, config.integer("first_k_dense_replace", 0, model.num_layers));
  SUBBYTE_TRY(latent.experts.layers,
              read_mlp_layer_types(config, dense.value_or(3), model.num_layers));
  model.own = FamilyConfig(std::move(latent));
  return {};
}

// Sources: the classes in transformers, whose defaults are deepseek-ai/DeepSeek-V3.2-Exp and
// zai-org/GLM-5; tiny, and where added tokens begin, are ours.
// clang-format off
constexpr ModelShape kShapes[] = {
    {"deepseek-v32", "tiny", 256, 512, 2, 4, 4, 32, 0, 512, 480, 2048, false, 8, 2, 128},
    {"deepseek-v32", "671b", 7168, 18432, 61, 128, 128, 64, 0, 129280, 128000, 163840, false,
     256, 8, 2048},
    {"glm-moe-dsa", "tiny", 256, 512, 2, 4, 4, 32, 0, 512, 480, 2048, false, 8, 2, 128},
    {"glm-moe-dsa",  "glm-5", 6144, 12288, 78, 64, 64,  64, 0, 154880, 154820, 202752, false,
     256, 8, 2048},
};
// clang-format on

constexpr ShapeKeys kShapeKeys[] = {
    kLatentShape,
    {"", "", R"({"q_lora_rank": 1536, "n_group": 8, "topk_group": 4,
                 "routed_scaling_factor": 2.5, "first_k_dense_replace": 3, "index_head_dim": 128,
                 "index_n_heads": 64, "index_topk": 2048})"},
    {"glm-moe-dsa", "", R"({"model_type": "glm_moe_dsa", "q_lora_rank": 2048,
                            "qk_nope_head_dim": 192, "v_head_dim": 256, "n_group": 1,
                            "topk_group": 1, "index_n_heads": 32, "rope_theta": 1000000.0})"},
    kTinyLatentShape,
    {"", "tiny", R"({"n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
                     "index_head_dim": 64, "index_n_heads": 8, "index_topk": 64})"},
};

}  // namespace

const ModelFamily deepseek_v32_family = {.model_types = kModelTypes,
                                         .keys = kKeys,
                                         .shared_keys = {kRoutedExpertKeys, kLatentKeys},
                                         .rope_keys = kLatentRopeKeys,
                                         .read = read,
                                         .record = record_latent_step,
                                         .shapes = kShapes,
                                         .shape_keys = kShapeKeys};

}  // namespace subbyte
