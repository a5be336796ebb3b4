#pragma once
// What the importers of compressed-tensors share.

#include <string>
#include <string_view>

#include "checkpoints/import_parts.h"

namespace subbyte {

/// For people: "pack-quantized 4 bits symmetric group 128, or nvfp4-pack-quantized".
std::string list_of(const std::vector<CompressedScheme>& schemes);

/// Checks that some config group has the format that the tensors of `module` have. Code
/// import.config.
Status require_scheme(const ImportContext& context, std::string_view module,
                      CompressedScheme::Format format);

}  // namespace subbyte
