#pragma once
// Dequantizing to a buffer on a GPU, to the bits of cpu::dequantize() but for those of a NaN.

#include "base/status.h"
#include "kernels/cuda/common/elements.h"
#include "kernels/gpu/packed_weights.h"
#include "matrix/matrix.h"

namespace subbyte::cuda {

/// Weights of a canonical matrix that lies in device memory (all spans of `matrix` but its codebook
/// are device pointers; codes and out at multiples of 16 bytes) to out [rows][cols] of `number`,
/// which is kF32, kF16 or kBF16. Elements of at most 8 bits; scales of any format, of which
/// infinite ones count as NaN; at most 2^19 inputs, they and the groups in 8s. One launch, which
/// allocates nothing. Codes: cuda.format (vectors and rotated weights, too), cuda.shape,
/// cuda.launch.
SUBBYTE_BY_NVCC Status dequantize(const MatrixView& matrix, Element number, void* out,
                                  Stream stream);

/// The refusal of that call but for cuda.launch; reads nothing.
SUBBYTE_BY_NVCC Status check_dequantize(const MatrixView& matrix, Element number, const void* out);

/// The same of a packed matrix (kernels/gpu/packed_weights.h) in device memory, whose rows come in
/// the order of the canonical matrix, whatever its row order.
SUBBYTE_BY_NVCC Status dequantize(const std::byte* packed, const gpu::PackedFormat& format,
                                  double tensor_scale, Element number, void* out, Stream stream);

}  // namespace subbyte::cuda
