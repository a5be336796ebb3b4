#pragma once
// Experts as config.json speaks of them, for the configs of families.

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/routing.h"
#include "base/status.h"
#include "models/config_keys.h"

namespace subbyte {

namespace json {
class Object;
}
struct ModelConfig;

struct ExpertConfig {
  int64_t count = 0;  // of a layer; 0: none
  int64_t per_token = 0;
  int64_t inner = 0;              // outputs of the gate of one
  int64_t shared_inner = 0;       // of the expert that every token goes to; 0: there is none
  std::vector<bool> layers = {};  // [num_layers], those that have them; empty: none
  Routing routing = {};

  bool are_in(int64_t layer) const { return !layers.empty() && layers[layer]; }

  bool operator==(const ExpertConfig&) const = default;
};

/// Scores are sigmoids, and a group is as good as its two best experts.
constexpr Routing sigmoid_routing(float factor = 1, int32_t groups = 1, int32_t top_groups = 1) {
  return {.scores = Routing::Scores::kSigmoid,
          .added = 1e-20f,
          .factor = factor,
          .groups = groups,
          .top_groups = top_groups,
          .groups_by_two = true};
}

/// The keys of how many experts there are, how many a token goes to, and the size of one, each with
/// blanks between its names; one without a key is as large as a dense block.
struct ExpertKeys {
  std::string_view count = "num_experts";
  std::string_view per_token = "num_experts_per_tok";
  std::string_view inner = "moe_intermediate_size";
};

/// `experts` has what absent keys mean; 0: they must be there. All layers have them, until a family
/// says otherwise. Codes: json.missing, json.range, config.experts, config.contradiction.
Status read_experts(const json::Object& config, const ModelConfig& model, const ExpertKeys& keys,
                    ExpertConfig& experts);

/// Layers that have experts: each decoder_sparse_step-th, but for those of mlp_only_layers. As in
/// the reference, a number of which there is no layer says nothing. Codes: json.range,
/// config.layer_types.
Result<std::vector<bool>> read_expert_layers(const json::Object& config, int64_t num_layers);

/// The first layers, as many as `key` says, are dense, the others have experts. Code json.range.
Result<std::vector<bool>> read_layers_after(const json::Object& config, std::string_view key,
                                            int64_t absent, int64_t num_layers);

/// Layers that mlp_layer_types calls "sparse", and not "dense"; without it all but the first
/// `dense`. Code config.layer_types.
Result<std::vector<bool>> read_mlp_layer_types(const json::Object& config, int64_t dense,
                                               int64_t num_layers);

/// n_group, topk_group, norm_topk_prob and routed_scaling_factor change `experts.routing`, which
/// has what absent keys mean; its number of experts and those of a token are there. Codes:
/// json.range, config.experts for groups that do not divide the experts or have too few.
Status read_routing(const json::Object& config, ExpertConfig& experts);

inline constexpr std::string_view kRoutedExperts = "n_routed_experts num_local_experts";

/// n_routed_experts, n_shared_experts, num_experts_per_tok, moe_intermediate_size and what
/// read_routing() reads; `experts` has what absent keys mean, shared_inner as how many there are.
/// Codes: those of read_experts() and read_routing().
Status read_routed_experts(const json::Object& config, const ModelConfig& model,
                           ExpertConfig& experts, std::string_view count = kRoutedExperts);

/// The keys that it reads, and what else configs with such experts say.
inline constexpr ConfigKey kRoutedExpertKeys[] = {
    SUBBYTE_CONFIG_KEY("",
                       "n_routed_experts num_experts_per_tok moe_intermediate_size "
                       "n_shared_experts routed_scaling_factor n_group topk_group "
                       "first_k_dense_replace",
                       kComputed, "", "absent: by the type"),
    SUBBYTE_CONFIG_KEY("", "num_local_experts", kComputed, "", "n_routed_experts"),
    SUBBYTE_CONFIG_KEY("", "norm_topk_prob", kComputed, "", "absent: true"),
    SUBBYTE_CONFIG_KEY("", "num_nextn_predict_layers num_mtp_layers", kIgnored, "",
                       "of parts that draft, which are not read"),
};

}  // namespace subbyte
