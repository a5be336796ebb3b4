#pragma once
// Latent attention as config.json speaks of it, and the step of families that have it with a
// mixture beside an expert that every token goes to.

#include "models/config_keys.h"
#include "models/expert_config.h"
#include "models/gguf_architecture.h"
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

/// Reads kLatentKeys, and the experts by read_routed_experts(); `latent` has what absent keys mean.
/// The head_dim of the model is what turns of a head (ConfigDefaults), and its rope is read. Codes:
/// config.heads, config.rope, json.*, those of read_routed_experts().
Status read_latent(const json::Object& config, ModelConfig& model, LatentConfig& latent,
                   std::string_view count = kRoutedExperts);

/// The step of a family whose own config is a LatentConfig. Routers with sigmoids have a bias that
/// only chooses.
void record_latent_step(const ModelConfig& config, StepRecorder& step);

/// GGUF files of such models, with the sides of kv_b apart or joined.
inline constexpr GgufKeyRule kLatentGgufKeys[] = {
    {"attention.head_count_kv", "num_key_value_heads", "", kGgufByFamily},
    {"attention.key_length", "qk_nope_head_dim", "", kGgufByFamily},
    {"attention.key_length_mla", "qk_nope_head_dim", "", kGgufByFamily},
    {"attention.value_length", "v_head_dim", "", kGgufByFamily},
    {"attention.value_length_mla", "v_head_dim", "", kGgufByFamily},
    {"attention.q_lora_rank", "q_lora_rank", "null"},
    {"attention.kv_lora_rank", "kv_lora_rank"},
    {"rope.dimension_count", "qk_rope_head_dim"},
    {"rope.scaling.yarn_log_multiplier", "rope_scaling", "", kGgufByFamily},
    {"expert_count", "n_routed_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_count", "n_shared_experts"},
    {"expert_group_count", "n_group", "1"},
    {"expert_group_used_count", "topk_group", "1"},
    {"expert_weights_norm", "norm_topk_prob", "false"},
    {"expert_weights_scale", "routed_scaling_factor", "1.0", kGgufFloat},
    {"leading_dense_block_count", "first_k_dense_replace", "0"},
    {"expert_gating_func", "scoring_func", "", kGgufByFamily},
};
inline constexpr GgufTensorRule kLatentGgufTensors[] = {
    {"attn_q_a", "self_attn.q_a_proj"},
    {"attn_q_a_norm", "self_attn.q_a_layernorm"},
    {"attn_q_b", "self_attn.q_b_proj"},
    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
    {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
    {"attn_kv_b", "self_attn.kv_b_proj"},
    {"attn_k_b", "self_attn.k_b_proj", GgufChange::kHeads},
    {"attn_v_b", "self_attn.v_b_proj", GgufChange::kHeads},
};
/// GgufArchitecture::yarn_log of converters.
inline constexpr double kLatentYarnLog = 0.1;

/// Adds the sizes of heads, which files whose sides of kv_b are apart say beside those of latents,
/// and mscale_all_dim. Code gguf.value.
Status add_latent_sizes(const GgufFile& file, json::Value& config);

/// Its inverse: adds keys of models whose own config is a LatentConfig. Latents are the keys and
/// values of one head there.
void add_latent_gguf_keys(const GgufArchitecture& architecture, const ModelConfig& model,
                          GgufKeys& keys);

/// The row of an architecture without keys of its own.
constexpr GgufArchitecture latent_gguf(std::string_view name, std::string_view model_type,
                                       Status (*complete)(const GgufModel&, json::Value&),
                                       bool is_written_only = false) {
  return {.name = name,
          .model_type = model_type,
          .keys = kLatentGgufKeys,
          .tensors = kLatentGgufTensors,
          .complete = complete,
          .add_keys = add_latent_gguf_keys,
          .yarn_log = kLatentYarnLog,
          .is_written_only = is_written_only};
}

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
