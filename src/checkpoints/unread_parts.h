#pragma once
// Parts of a checkpoint that no model here computes: those that see, hear or draft. Neither their
// tensors nor what a config says of them may keep the rest from being read; commands that write a
// checkpoint copy their bytes.

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "checkpoints/containers/tensor_source.h"

namespace subbyte {

/// Says whether a tensor or module of that name is of such a part: "mtp.layers.0.mlp.up_proj".
bool is_in_unread_part(std::string_view name);

/// The same of a tensor or module of a checkpoint, of which whole layers may draft, too: those that
/// normalise an embedding, "model.layers.61.enorm.weight", come after the layers of the model.
bool is_in_unread_part(const TensorSource& tensors, std::string_view name);

/// Says whether an entry of a config, a name or a pattern, is for modules of such a part alone:
/// "mtp.fc", "model.visual*", "re:.*visual.*".
bool names_unread_part(std::string_view entry);

/// A notice for who writes a checkpoint: quantized `modules` (at least one) of such parts keep
/// their bytes, and the new config.json has no words for them.
std::string describe_unread(const std::filesystem::path& model,
                            std::span<const std::string> modules);

}  // namespace subbyte
