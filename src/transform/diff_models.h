#pragma once
// Whether two model directories hold the same weights, however they store them.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoints/containers/checkpoint_writer.h"
#include "subbyte/executor.h"
#include "subbyte/transform.h"
#include "transform/difference.h"

namespace subbyte {

/// Compares what importers make of `first` and `second`, module by module, and the other tensors by
/// name; floats of different types by value. Configs and side files are only used for reading.
/// Memory: one module or tensor of each. `progress` counts the bytes of `first`.
/// Codes: those of config.json, of TensorSource and of importers.
Result<ModelDiff> diff_models(const std::filesystem::path& first,
                              const std::filesystem::path& second, Executor& pool,
                              const ByteProgress& progress = nullptr);

}  // namespace subbyte
