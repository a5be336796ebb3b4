#pragma once
// What the host needs to call the Metal kernels: their arguments and names. Packing is that of
// CUDA: packed_format() says what is supported, pack_on_host() packs. Nothing here needs Metal.

#include <cstdint>
#include <string>

#include "kernels/gpu/packed_weights.h"
#include "kernels/metal/arguments.h"

namespace subbyte::apple {

/// For a product with `tokens` tokens whose rows lie densely; `tokens`, `x_stride` and `y_stride`
/// are what a caller may change.
Arguments arguments_of(const gpu::PackedFormat& format, double tensor_scale, int tokens);

/// "small_m1_integers4_f16": for 1 token, or small_m8 for 2 to kMaxTokens. No kernel has the name
/// of a matrix with offsets (float zero points).
std::string small_m_kernel(const gpu::PackedFormat& format, gpu::Number number, int tokens);

/// "dequantize_integers4_f16"; y_stride is then that of the dense matrix.
std::string dequantize_kernel(const gpu::PackedFormat& format, gpu::Number number);

}  // namespace subbyte::apple
