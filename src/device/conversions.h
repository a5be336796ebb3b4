#pragma once
// What is done to weights once, on the GPU where they lie, to the bits of the host. The functions
// that return a bool look at what a kernel has found, for which the stream is waited for; false:
// the host has to say what is wrong. In a capture, which cannot wait, they look at nothing.

#include "device/gpu.h"
#include "kernels/cuda/layouts/int4_operands.h"
#include "kernels/cuda/layouts/repack.h"
#include "kernels/cuda/quantize/quantize_weights.h"
#include "kernels/quantized_blocks.h"

namespace subbyte::device {

/// Quantizes weights; `buffers` has no byte codes and no state. Codes: cuda.*.
Result<bool> quantize_weights(const WeightRounding& how, cuda::WeightBuffers buffers,
                              const Gpu& gpu);

/// Words of GPTQ or AWQ to those of Marlin; `repack` has no fault. Codes: cuda.*.
Result<bool> repack_marlin(cuda::MarlinRepack repack, const Gpu& gpu);

/// Codes of aten's converters to its words; `codes` has no target and no fault, and `shape` the
/// order of the words. Codes: cuda.*.
Result<bool> convert_int4(cuda::NibbleCodes codes, std::byte* to, const cuda::Int4Codes& shape,
                          const Gpu& gpu);

/// Codes of e2m1 with scales in the layout of `blocks` times `factor` to f32. Does not wait. Codes:
/// cuda.*.
Status dequantize_blocks(const BlockQuantization& blocks, const std::byte* codes,
                         const std::byte* scales, double factor, float* out, const Gpu& gpu);

}  // namespace subbyte::device
