#pragma once
// Rotary embedding of GGUF files whose tensor rope_freqs has factors that divide frequencies.

#include <optional>
#include <string_view>

#include "models/gguf_architecture.h"
#include "ops/rope.h"

namespace subbyte {

/// Adds the rope_scaling that the factors follow from, by how often frequencies turn
/// (read_turns_rope); nothing where there are none. Codes: gguf.value for those of another rule,
/// gguf.tensor beside rope.scaling.type.
Status add_turns_rope(const GgufModel& model, std::string_view type, json::Value& config);

/// The part of a head's pairs that turn, where factors divide the frequencies of the others by so
/// much that these stay; 1 where there are none. Code gguf.value for other factors.
Result<double> turning_part_of(const GgufModel& model);

/// Puts rope_scaling and rope_theta into one section, rope_parameters, with the growth of queries
/// that attention.temperature_scale says. Code gguf.value.
Status add_growing_rope(const GgufFile& file, json::Value& config);

/// The base of all frequencies by the second one; nullopt where there is none, as it may be any.
std::optional<double> base_of(const Rope& rope);

}  // namespace subbyte
