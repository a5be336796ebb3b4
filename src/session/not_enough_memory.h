#pragma once
// What to say when memory does not suffice.

#include <string_view>

#include "models/model.h"

namespace subbyte {

/// Memory of this machine that is free.
struct FreeMemory {
  double bytes = 0;        // infinite where the system does not say
  std::string_view limit;  // what it is the rest of
};
FreeMemory free_memory();

/// Bytes of the weights of a model in its files; 0 where these do not open.
double weight_bytes(const ModelFiles& files);

/// An error that names what a model and its cache want, what there is, and what helps. Code memory.
Error not_enough_memory(const ModelFiles& files, const ModelConfig& config,
                        const LoadOptions& options);

}  // namespace subbyte
