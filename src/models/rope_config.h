#pragma once
// The rotary embedding as config.json states it, in the older schema (rope_theta, rope_scaling) and
// in the newer one (rope_parameters).

#include "models/model_config.h"

namespace subbyte {

/// Reads theta and scaling, and makes the positions more where YaRN does: original positions times
/// factor. `model` has the max_positions that config.json states. Codes: config.rope, json.*,
/// config.not_computed.
Status read_rope(const json::Object& config, ModelConfig& model);

}  // namespace subbyte
