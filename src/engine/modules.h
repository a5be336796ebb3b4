#pragma once
// The quantized and unquantized matrices of a checkpoint, found by the names of its tensors.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/importer.h"

namespace subbyte {

struct FoundModule {
  std::string name;  // "model.layers.0.mlp.up_proj"
  Result<ModuleInfo> info;
};

/// All modules that some importer knows, in the order of the names of their first tensors. `info`
/// is the importer's refusal where its tensors contradict themselves or the config.
std::vector<FoundModule> find_modules(const ImportContext& context);

inline bool is_dense(const ModuleInfo& info) {
  return is_dense(info.format);
}

/// "layer.experts.3.up_proj" as "layer.experts.up_proj" and 3; nullopt for other names. This is how
/// flavours with one matrix in a tensor name the experts that others keep in one.
struct ExpertName {
  std::string stack;
  int64_t expert = 0;
};
std::optional<ExpertName> parse_expert_name(std::string_view name);

/// The inverse: the name of one expert of a stack. Stacks without "experts." before the last part
/// of their name get the number at the end.
std::string expert_name(std::string_view stack, int64_t expert);

}  // namespace subbyte
