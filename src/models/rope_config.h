#pragma once
// The rotary embedding as config.json states it, in the older schema (rope_theta, rope_scaling) and
// in the newer one (rope_parameters).

#include <vector>

#include "models/config_keys.h"
#include "models/model_config.h"
#include "ops/step_plan.h"

namespace subbyte {

/// Types of layers that may have a section of rope_parameters each.
inline constexpr const char* kFullLayers = "full_attention";
inline constexpr const char* kSlidingLayers = "sliding_attention";

/// Reads frequencies, and makes the positions more where their kind does. `model` has the
/// max_positions and head_dim that config.json states. Where types of layers have sections of their
/// own, it is that of full attention. Codes: config.rope, json.*, config.not_computed.
Status read_rope(const json::Object& config, ModelConfig& model);

/// Reads that of layers that slide, where they have one of their own: by the section of their type,
/// else from `theta` alone. Codes: those of read_rope.
Result<Rope> read_sliding_rope(const json::Object& config, const ModelConfig& model, double theta);

/// Layers whose heads turn: those of no_rope_layers that are 1, or all but each last one of
/// no_rope_layer_interval. Codes: json.*, config.no_rope_layers.
Result<std::vector<bool>> read_turning_layers(const json::Object& config, int64_t num_layers);

/// Base and scaling as config.json says them, or the family where it says nothing.
struct SaidRope {
  double theta = 0;
  json::Value section;  // rope_parameters or rope_scaling; null where nothing is scaled
};
/// Reads a config that read_rope() takes. Codes: those of read_rope().
Result<SaidRope> said_rope(const json::Object& config, const ModelConfig& model);

/// The factor of scores that mscale_all_dim of such a config makes, where positions are scaled and
/// the family has one. Codes: those of read_rope().
Result<double> rope_score_factor(const json::Object& config, const ModelConfig& model);

/// llama_4_scaling_beta and the original positions of such a config, which must be there. Codes:
/// those of read_rope(), json.missing.
Result<QueryScale> read_query_scale(const json::Object& config, const ModelConfig& model);

/// Keys of heads of which a part turns (ConfigDefaults::rotary_fraction), and of their section.
inline constexpr ConfigKey kPartKeys[] = {
    SUBBYTE_CONFIG_KEY("", "partial_rotary_factor", kComputed, "",
                       "absent: by the type; that of rope_parameters counts before it"),
};
inline constexpr json::KeyRule kPartRopeKeys[] = {
    SUBBYTE_ROPE_KEY("partial_rotary_factor", kComputed, "", "absent: that beside the section"),
};

}  // namespace subbyte
