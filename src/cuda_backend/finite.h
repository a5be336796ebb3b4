#pragma once
// Whether numbers on the GPU are finite.

#include "base/status.h"
#include "kernels/cuda/ops/elements.h"

namespace subbyte {

/// Waits for the stream. Code cuda.copy.
Result<bool> are_finite(const void* numbers, int64_t count, cuda::Element element,
                        cuda::Stream stream);

}  // namespace subbyte
