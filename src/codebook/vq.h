#pragma once
// The vector quantization of bitsandbytes (branch archive/kbit-gemv-v8), in host memory: a byte is
// the index of a vector of p = 2 or 4 numbers, so that a weight takes 4 or 2 bits, and a block of
// 32 has a scale as in kbit.h.
//
//   packed    words of 32 bits, four indices each from the low byte up: 8 / p words a block
//   absmax    as in kbit.h
//   codebook  F16 [256, p]
//
// The orders of blocks are those of kbit with k = 8 / p planes (foreign_layouts/kbit.h). Quantizing
// gives the bytes of bitsandbytes: a block is divided by its largest magnitude, or 1e-8 if that is
// larger, and a vector is that of the least square distance, all in f32; of equal ones the first.
// Weights are usually rotated first (hadamard.h), which makes them more like the normal numbers
// that its codebooks are trained on.

#include "codebook/kbit.h"

namespace subbyte::codebook {

struct VqCodes {
  std::span<const uint32_t> packed;
  std::span<const std::byte> absmax;
  std::span<const uint16_t> codebook;  // F16 [256, p], finite
  int p = 2;                           // or 4
  Format absmax_dtype = Format::kE4M4;
};

/// Codes: vq.p, kbit.codebook.
Status check_vq_codebook(std::span<const uint16_t> codebook, int p);

/// As quantize_kbit(); codes kbit.dtype, kbit.buffer, kbit.codebook, vq.p, quantize.not_finite.
Status quantize_vq(std::span<const std::byte> a, Format dtype, std::span<const uint16_t> codebook,
                   int p, std::span<uint32_t> packed, std::span<uint8_t> absmax);

/// As dequantize_kbit() and dequantize_kbit_tiled(); code vq.p, too.
Status dequantize_vq(const VqCodes& codes, int64_t n, Format dtype, std::span<std::byte> out);
Status dequantize_vq_tiled(const VqCodes& codes, int64_t k_dim, int64_t n, Format dtype,
                           std::span<std::byte> out);

/// As repack_kbit().
Status repack_vq(std::span<const uint32_t> packed_flat, std::span<const uint8_t> absmax_flat,
                 int64_t k_dim, int64_t n, int p, std::span<uint32_t> packed,
                 std::span<uint8_t> absmax);

/// As kbit_gemm_prod() and kbit_scalar_gemv(). Weights are dequantized to f32 first.
Status vq_gemm_prod(const KbitProduct& product, const VqCodes& tiled, Executor& executor);
Status vq_scalar_gemv(const KbitProduct& product, const VqCodes& flat, Executor& executor);

}  // namespace subbyte::codebook
