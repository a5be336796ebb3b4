#pragma once
// What to say when memory does not suffice.

#include <filesystem>
#include <string_view>

#include "models/model.h"

namespace subbyte {

/// Memory of this machine that is free.
struct FreeMemory {
  double bytes = 0;        // infinite where the system does not say
  std::string_view limit;  // what it is the rest of
};
FreeMemory free_memory();

/// Bytes of the files that have the weights of a model.
double weight_file_bytes(const std::filesystem::path& model);

/// An error that names what the model at `path` and its cache want, what there is, and what helps.
/// Code memory.
Error not_enough_memory(const std::filesystem::path& path, const ModelConfig& config,
                        const LoadOptions& options);

}  // namespace subbyte
