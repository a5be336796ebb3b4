#pragma once
// Apart from packed_weights.h, whose headers take longer to compile than some kernels do.

#include <cstdint>

namespace subbyte::gpu {

/// Type of activations and results; products accumulate in float32.
enum class Number : uint8_t { kF16, kBF16 };

}  // namespace subbyte::gpu
