#pragma once
// pack of a GGUF file.

#include <filesystem>

#include "transform/packing/pack_model.h"

namespace subbyte {

/// Packs the directory that convert_model() makes of the file as "compressed-tensors", and which
/// unpack_model() gives back. It lies beside the destination meanwhile. Codes: those of
/// convert_model() and pack_model().
Result<PackReport> pack_gguf(const std::filesystem::path& source,
                             const std::filesystem::path& destination, const PackOptions& options,
                             Executor& pool, const ByteProgress& progress);

}  // namespace subbyte
