#pragma once
// Lists of keys of config.json that several families have (ModelFamily::shared_keys).

#include "models/config_keys.h"

namespace subbyte {

/// Experts as DeepSeek's configs speak of them (read_routed_experts()).
inline constexpr json::ScopedRule kRoutedExpertKeys[] = {
    SUBBYTE_CONFIG_KEY("", "n_routed_experts", kComputed, "", "absent: by the type"),
    SUBBYTE_CONFIG_KEY("", "num_local_experts", kComputed, "", "n_routed_experts"),
    SUBBYTE_CONFIG_KEY("", "num_experts_per_tok", kComputed, "", "absent: by the type"),
    SUBBYTE_CONFIG_KEY("", "moe_intermediate_size", kComputed, "", "absent: by the type"),
    SUBBYTE_CONFIG_KEY("", "n_shared_experts", kComputed, "", "absent: by the type"),
    SUBBYTE_CONFIG_KEY("", "routed_scaling_factor", kComputed, "", "absent: by the type"),
    SUBBYTE_CONFIG_KEY("", "n_group", kComputed, "", "absent: by the type"),
    SUBBYTE_CONFIG_KEY("", "topk_group", kComputed, "", "absent: by the type"),
    SUBBYTE_CONFIG_KEY("", "norm_topk_prob", kComputed, "", "absent: true"),
    SUBBYTE_CONFIG_KEY("", "first_k_dense_replace", kComputed, "", "absent: by the type"),
    SUBBYTE_CONFIG_KEY("", "num_nextn_predict_layers", kIgnored, "",
                       "of parts that draft, which are not read"),
    SUBBYTE_CONFIG_KEY("", "num_mtp_layers", kIgnored, "",
                       "of parts that draft, which are not read"),
};

/// Latent attention (read_latent()), and what else configs of families with it say.
inline constexpr json::ScopedRule kLatentKeys[] = {
    SUBBYTE_CONFIG_KEY("", "q_lora_rank", kComputed, "", "null: none; absent: by the type"),
    SUBBYTE_CONFIG_KEY("", "kv_lora_rank", kComputed, "", "absent: by the type"),
    SUBBYTE_CONFIG_KEY("", "qk_nope_head_dim", kComputed, "", "absent: by the type"),
    SUBBYTE_CONFIG_KEY("", "qk_rope_head_dim", kComputed, "", "absent: 64"),
    SUBBYTE_CONFIG_KEY("", "v_head_dim", kComputed, "", "absent: by the type"),
    SUBBYTE_CONFIG_KEY("", "qk_head_dim", kIgnored, "", "the sum of two others"),
    SUBBYTE_CONFIG_KEY("", "head_dim", kIgnored, "", "qk_rope_head_dim says it"),
    SUBBYTE_CONFIG_KEY("", "num_key_value_heads", kComputed, "", "num_attention_heads"),
    SUBBYTE_CONFIG_KEY("", "rope_interleave", kComputed, "", "absent: true"),
    SUBBYTE_CONFIG_KEY("", "topk_method", kRefused, "\"noaux_tc\"",
                       "another way to choose experts"),
    SUBBYTE_CONFIG_KEY("", "scoring_func", kRefused, "\"sigmoid\"", "other scores of experts"),
    SUBBYTE_CONFIG_KEY("", "moe_layer_freq", kRefused, "1", "dense layers between the others"),
    SUBBYTE_CONFIG_KEY("", "ep_size", kIgnored, "", "how it is computed"),
    SUBBYTE_CONFIG_KEY("", "aux_loss_alpha", kIgnored, "", "of training"),
    SUBBYTE_CONFIG_KEY("", "seq_aux", kIgnored, "", "of training"),
};

inline constexpr json::KeyRule kLatentRopeKeys[] = {
    SUBBYTE_ROPE_KEY("mscale_all_dim", kComputed, "", "of YaRN; of the scale of scores, too"),
};

}  // namespace subbyte
