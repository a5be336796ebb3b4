#pragma once
// Latent attention as config.json speaks of it, and the step of families that have it with a
// mixture beside an expert that every token goes to.

#include "models/config_keys.h"
#include "models/expert_config.h"
#include "models/model_shape.h"
#include "models/step_recorder.h"

namespace subbyte {

struct LatentConfig {
  int64_t query_rank = 0;  // 0: none
  int64_t rank = 512;
  int64_t nope = 0;
  int64_t value = 0;
  float scale = 1;  // of scores
  RopePairs pairs = RopePairs::kNeighbours;
  QueryScale query_scale = {};
  StepRecorder::Indexer indexer = {};
  std::vector<bool> selects = {};  // by layer, whether it has an indexer; empty: all that do
  ExpertConfig experts = {};

  bool operator==(const LatentConfig&) const = default;
};

/// Latent attention (read_latent()), and what else configs of families with it say.
inline constexpr ConfigKey kLatentKeys[] = {
    SUBBYTE_CONFIG_NUMBER(LatentConfig, "", "q_lora_rank", query_rank, kKept, 1, kMaxWidth,
                          "null: none"),
    SUBBYTE_CONFIG_NUMBER(LatentConfig, "", "kv_lora_rank", rank, kKept, 1, kMaxWidth, ""),
    SUBBYTE_CONFIG_NUMBER(LatentConfig, "", "qk_nope_head_dim", nope, kKept, 1, kMaxWidth, ""),
    SUBBYTE_CONFIG_KEY("", "qk_rope_head_dim", kComputed, "", "absent: 64"),
    SUBBYTE_CONFIG_NUMBER(LatentConfig, "", "v_head_dim", value, kKept, 1, kMaxWidth, ""),
    SUBBYTE_CONFIG_KEY("", "qk_head_dim", kIgnored, "", "the sum of two others"),
    SUBBYTE_CONFIG_KEY("", "head_dim", kIgnored, "", "qk_rope_head_dim says it"),
    SUBBYTE_CONFIG_KEY("", "num_key_value_heads", kComputed, "", "num_attention_heads"),
    SUBBYTE_CONFIG_KEY("", "rope_interleave", kComputed, "", "absent: true"),
    SUBBYTE_CONFIG_KEY("", "topk_method", kRefused, "\"noaux_tc\"",
                       "another way to choose experts"),
    SUBBYTE_CONFIG_KEY("", "scoring_func", kRefused, "\"sigmoid\"", "other scores of experts"),
    SUBBYTE_CONFIG_KEY("", "moe_layer_freq", kRefused, "1", "dense layers between the others"),
    SUBBYTE_CONFIG_KEY("", "ep_size", kIgnored, "", "how it is computed"),
    SUBBYTE_CONFIG_KEY("", "aux_loss_alpha seq_aux", kIgnored, "", "of training"),
};

inline constexpr json::KeyRule kLatentRopeKeys[] = {
    SUBBYTE_ROPE_KEY("mscale_all_dim", kComputed, "", "of YaRN; of the scale of scores, too"),
};

/// Reads kLatentKeys; `latent` has what absent keys mean. The head_dim of the model is what turns
/// of a head (ConfigDefaults), and its rope is read. Codes: config.heads, config.rope, json.*.
Status read_latent(const json::Object& config, ModelConfig& model, LatentConfig& latent);

/// The step of a family whose own config is a LatentConfig. Routers with sigmoids have a bias that
/// only chooses.
void record_latent_step(const ModelConfig& config, StepRecorder& step);

/// Keys of shapes with latent attention, and of their tiny ones.
inline constexpr ShapeKeys kLatentShape = {
    "", "", R"({"head_dim": "$none", "kv_lora_rank": 512, "qk_nope_head_dim": 128,
                "qk_rope_head_dim": "$head_dim", "v_head_dim": 128,
                "n_routed_experts": "$experts", "n_shared_experts": 1, "n_group": 1,
                "topk_group": 1, "norm_topk_prob": true, "rope_theta": 10000.0})"};
inline constexpr ShapeKeys kTinyLatentShape = {
    "", "tiny", R"({"q_lora_rank": 128, "kv_lora_rank": 128, "qk_nope_head_dim": 64,
                    "v_head_dim": 64})"};

}  // namespace subbyte
