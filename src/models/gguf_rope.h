#pragma once
// Rotary embedding of GGUF files whose tensor rope_freqs has factors that divide frequencies.

#include <string_view>

#include "models/gguf_architecture.h"

namespace subbyte {

/// Adds the rope_scaling that the factors follow from, by how often frequencies turn
/// (read_turns_rope); nothing where there are none. Codes: gguf.value for those of another rule,
/// gguf.tensor beside rope.scaling.type.
Status add_turns_rope(const GgufModel& model, std::string_view type, json::Value& config);

}  // namespace subbyte
