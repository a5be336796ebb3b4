#pragma once
// A kernel that only reads: what the GPU's memory gives at best.

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/linear.h"

namespace subbyte::cuda {

/// Reads `bytes` of device memory, a multiple of 16, once with all multiprocessors. `sink` is a
/// word of device memory that keeps the compiler from leaving the loads out. `dependent_launch` as
/// in LinearCall.
void run_read(const std::byte* data, int64_t bytes, unsigned* sink, bool dependent_launch,
              Stream stream);

}  // namespace subbyte::cuda
