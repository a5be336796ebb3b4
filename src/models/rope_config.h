#pragma once
// The rotary embedding as config.json states it, in the older schema (rope_theta, rope_scaling) and
// in the newer one (rope_parameters).

#include "models/model_config.h"

namespace subbyte {

/// Reads frequencies, and makes the positions more where their kind does. `model` has the
/// max_positions and head_dim that config.json states. Codes: config.rope, json.*,
/// config.not_computed.
Status read_rope(const json::Object& config, ModelConfig& model);

}  // namespace subbyte
