#pragma once
// What to say when memory does not suffice.

#include <filesystem>

#include "models/model.h"

namespace subbyte {

/// An error that names what the model at `path` and its cache want, what there is, and what helps.
/// Code memory.
Error not_enough_memory(const std::filesystem::path& path, const ModelConfig& config,
                        const LoadOptions& options);

}  // namespace subbyte
