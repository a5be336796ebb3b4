#pragma once
// What the host needs to call the Metal kernels: their arguments and names. Packing is that of
// CUDA: packed_format() says what is supported, pack_on_host() packs. Nothing here needs Metal.

#include <cstdint>
#include <string>

#include "kernels/cuda/packed_weights.h"
#include "kernels/metal/arguments.h"

namespace subbyte::apple {

/// For a product with `tokens` tokens whose rows lie densely; `tokens`, `x_stride` and `y_stride`
/// are what a caller may change.
Arguments arguments_of(const cuda::PackedFormat& format, double tensor_scale, int tokens);

/// "narrow1_integers4_f16": for 1 token, or narrow8 for 2 to kMostTokens. No kernel has the name of
/// a matrix with offsets (float zero points).
std::string narrow_kernel(const cuda::PackedFormat& format, cuda::Number number, int tokens);

/// "dequantize_integers4_f16"; y_stride is then that of the dense matrix.
std::string dequantize_kernel(const cuda::PackedFormat& format, cuda::Number number);

}  // namespace subbyte::apple
