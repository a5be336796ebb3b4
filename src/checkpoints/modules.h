#pragma once
// The quantized and unquantized matrices of a checkpoint, found by the names of its tensors.

#include <string>
#include <vector>

#include "checkpoints/expert_names.h"
#include "checkpoints/importer.h"

namespace subbyte {

struct FoundModule {
  std::string name;  // "model.layers.0.mlp.up_proj"
  Result<ModuleInfo> info;
  bool is_read = true;  // false: of a part that nothing here computes (checkpoints/unread_parts.h)
};

/// All modules that some importer knows, in the order of the names of their first tensors. `info`
/// is the importer's refusal where its tensors contradict themselves or the config; what is not
/// read may be refused, and decides nothing.
std::vector<FoundModule> find_modules(const ImportContext& context);

}  // namespace subbyte
