#pragma once
// Dequantizing packed vectors of weights to a buffer, rotated back.

#include "base/status.h"
#include "kernels/cuda/common/elements.h"
#include "kernels/gpu/packed_weights.h"

namespace subbyte::cuda {

/// As dequantize() of packed matrices; sums of rotations are in float32. Codes: cuda.format,
/// cuda.shape, cuda.launch.
Status dequantize_vectors(const std::byte* packed, const gpu::PackedFormat& format,
                          double tensor_scale, Element number, void* out, Stream stream);

}  // namespace subbyte::cuda
