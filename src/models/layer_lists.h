#pragma once
// Lists of config.json that say something of each layer: numbers of layers, or a word for each.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace subbyte {

namespace json {
class Object;
}

/// Reads an array of numbers of layers, [num_layers]; absent: of none. As in the reference, one of
/// which there is no layer says nothing. Code config.layer_types.
Result<std::vector<bool>> read_layer_numbers(const json::Object& config, std::string_view key,
                                             int64_t num_layers);

/// Reads an array of a word for each layer, one of `known`, whose place it becomes; absent:
/// nullopt. Code config.layer_types.
Result<std::optional<std::vector<int>>> read_layer_kinds(const json::Object& config,
                                                         std::string_view key,
                                                         std::span<const std::string_view> known,
                                                         int64_t num_layers);

}  // namespace subbyte
