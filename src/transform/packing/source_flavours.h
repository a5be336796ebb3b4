#pragma once
// Flavours that a packed model may have come from: all that `convert` writes, and those that are
// only read, whose tensors unpacking writes again.

#include <string_view>
#include <vector>

#include "checkpoints/exporter.h"

namespace subbyte {

/// Exporters in the order in which they are tried. Those that `convert` does not have can describe
/// and write, and nothing else.
const std::vector<const Exporter*>& all_source_flavours();

/// nullptr when there is none of that name.
const Exporter* find_source_flavour(std::string_view name);

}  // namespace subbyte
