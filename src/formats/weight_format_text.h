#pragma once
// Texts for weight formats, as to_string(WeightFormat) writes them, read.

#include <cstdint>
#include <optional>
#include <string_view>

#include "formats/format.h"

namespace subbyte {

/// A number of 1 to 2^24, as to_string() writes it; nullopt for any other text.
std::optional<int64_t> find_matrix_size(std::string_view text);

/// The inverse of to_string(), but for rotations: "u4 g128 scale f16 zero u8", "bf16". An element
/// alone has no scale. nullopt for any other text, and for groups of more than 2^24 inputs.
std::optional<WeightFormat> find_weight_format(std::string_view text);

}  // namespace subbyte
