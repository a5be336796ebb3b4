#pragma once
// Parts of a checkpoint that no model here computes: those that see, hear or draft. Neither their
// tensors nor what a config says of them may keep the rest from being read; commands that write a
// checkpoint copy their bytes.

#include <string_view>

namespace subbyte {

/// Says whether a tensor or module of that name is of such a part: "mtp.layers.0.mlp.up_proj".
bool is_in_unread_part(std::string_view name);

/// Says whether an entry of a config, a name or a pattern, is for modules of such a part alone:
/// "mtp.fc", "model.visual*", "re:.*visual.*".
bool names_unread_part(std::string_view entry);

}  // namespace subbyte
