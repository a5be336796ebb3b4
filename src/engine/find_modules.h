#pragma once
// The modules of a checkpoint whose architecture nobody knows: what the importers recognize.

#include <set>
#include <string>
#include <vector>

#include "checkpoints/importer.h"

namespace subbyte {

struct FoundModule {
  std::string name;         // "model.layers.0.mlp.up_proj"
  Result<ModuleInfo> info;  // or why the importer refuses it
};

/// In the order of the tensors that give them away. Adds the tensors of those that are not refused
/// to `used`, and leaves out what is in `used` before.
std::vector<FoundModule> find_modules(const ImportContext& context,
                                      std::set<std::string, std::less<>>& used);

}  // namespace subbyte
