#pragma once
// What the importers and exporters of compressed-tensors share.

#include <string>
#include <string_view>

#include "checkpoints/config/exported_config.h"
#include "checkpoints/import_parts.h"

namespace subbyte {

/// For people: "pack-quantized 4 bits symmetric group 128, or nvfp4-pack-quantized".
std::string list_of(const std::vector<CompressedScheme>& schemes);

/// Checks that some config group has the format that the tensors of `module` have. Code
/// import.config.
Status require_scheme(const ImportContext& context, std::string_view module,
                      CompressedScheme::Format format);

/// Says whether compressed_config() has words for it: FP8, and what compressed-tensors said itself.
bool says_compressed_kv_cache(const KvCacheScheme& scheme, QuantizationConfig::Method from);

/// Groups with formats of their own.
inline constexpr std::string_view kMixedPrecision = "mixed-precision";

/// The quantization_config of a checkpoint all of whose modules have `format`
/// ("pack-quantized"), or each its own with kMixedPrecision: a config group for each kind of
/// weights.
ExportedConfig compressed_config(const ExportedModel& model, std::string_view format);

}  // namespace subbyte
