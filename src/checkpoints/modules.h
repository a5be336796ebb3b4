#pragma once
// The quantized and unquantized matrices of a checkpoint, found by the names of its tensors.

#include <vector>

#include "checkpoints/expert_names.h"
#include "checkpoints/importer.h"

namespace subbyte {

/// All modules that some importer knows, in the order of the names of their first tensors. `info`
/// is the importer's refusal where its tensors contradict themselves or the config; what is not
/// read may be refused, and decides nothing.
std::vector<FoundModule> find_modules(const ImportContext& context);

}  // namespace subbyte
