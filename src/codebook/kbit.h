#pragma once
// The kbit operators of bitsandbytes (branch archive/kbit-gemv-v8) with the meaning of their
// arguments, in host memory: blocks of 32 numbers, codes of k = 2 to 5 bits that are indices of a
// codebook, a scale for each block.
//
//   packed    words of 32 bits, k for each block, which are its bit planes; then k words of padding
//   absmax    E4M4, a byte for each block, then one byte of padding; or F16, or F32
//   codebook  2^k increasing floats
//
// foreign_layouts/kbit.h has the flat and the tiled order of blocks. Buffers that are read may lack
// their padding; those that are written have it, filled with zeros. Matrices are [N, K_dim], their
// outputs first; tiles need N in 128s, all else K_dim in 32s alone.
//
// Quantizing gives the bytes of bitsandbytes, with what its encoder of E4M4 does wrong
// (KbitRule::kBitsandbytes in quantize/kbit.h), or with nearest scales those of
// KbitRule::kStoredScale, which are off by less. Dequantized numbers are the product in f32,
// rounded to what is asked for. Products are those of linear() with weights that are not rounded
// (its bound is in docs/kernels/accuracy.md), rounded to nearest even; bitsandbytes rounds
// codebook, scale and weight to the type of the activations first.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "formats/format.h"
#include "subbyte/executor.h"

namespace subbyte::codebook {

/// Elements of packed and absmax for n numbers, with padding.
int64_t kbit_packed_words(int64_t n, int k);
int64_t kbit_absmax_elements(int64_t n);

/// Buffers of codes with all that gives them a meaning.
struct KbitCodes {
  std::span<const uint32_t> packed;
  std::span<const std::byte> absmax;
  std::span<const float> codebook;
  int k = 4;
  Format absmax_dtype = Format::kE4M4;  // or kF16, or kF32, which is rounded to E4M4 first
};

/// `a` holds numbers of `dtype`, f16, bf16 or f32; the last block is filled up with zeros.
/// Codes: kbit.dtype, kbit.buffer, quantize.bits, quantize.codebook, quantize.not_finite.
Status quantize_kbit(std::span<const std::byte> a, Format dtype, std::span<const float> codebook,
                     int k, std::span<uint32_t> packed, std::span<uint8_t> absmax,
                     Executor& executor, bool nearest_scales = false);

/// `out` gets whole blocks, n rounded up to 32s, of `dtype`. Codes: kbit.dtype, kbit.buffer,
/// kbit.codebook, layout.shape.
Status dequantize_kbit(const KbitCodes& codes, int64_t n, Format dtype, std::span<std::byte> out,
                       Executor& executor);

/// The same of tiles, to W [N, K_dim].
Status dequantize_kbit_tiled(const KbitCodes& codes, int64_t k_dim, int64_t n, Format dtype,
                             std::span<std::byte> out, Executor& executor);

/// Flat buffers as tiled ones: inputs in 64s, the last half tiles filled up with zeros. Bytes of
/// absmax are copied as they are. Codes: kbit.buffer, layout.shape.
Status repack_kbit(std::span<const uint32_t> packed_flat, std::span<const uint8_t> absmax_flat,
                   int64_t k_dim, int64_t n, int k, std::span<uint32_t> packed,
                   std::span<uint8_t> absmax);

/// The way back, which bitsandbytes has not.
Status flatten_kbit(std::span<const uint32_t> packed_tiled, std::span<const uint8_t> absmax_tiled,
                    int64_t k_dim, int64_t n, int k, std::span<uint32_t> packed,
                    std::span<uint8_t> absmax);

/// Activations and results of a product: a is [M, K_dim] and out [M, N], both of `dtype`, f16 or
/// bf16.
struct KbitProduct {
  std::span<const std::byte> a;
  std::span<std::byte> out;
  Format dtype = Format::kF16;
  int64_t k_dim = 0;
  int64_t n = 0;
};

/// a times the tiled weights, transposed. `k_chunks` chooses nothing, as it does upstream.
/// Codes: kbit.dtype, kbit.buffer, kbit.codebook, layout.shape.
Status kbit_gemm_prod(const KbitProduct& product, const KbitCodes& tiled, int k_chunks,
                      Executor& executor);

/// The same with flat weights, for M from 1 to 4 (kbit.rows).
Status kbit_scalar_gemv(const KbitProduct& product, const KbitCodes& flat, Executor& executor);

/// Experts one after the other, tiled: rows [offsets[e], offsets[e + 1]) of a times the weights of
/// expert e. `offsets` rise from 0 to M, one more than there are experts; experts may have no rows.
/// Codes: those of kbit_gemm_prod, and kbit.offsets.
Status kbit_grouped_gemm(const KbitProduct& product, const KbitCodes& tiled,
                         std::span<const int32_t> offsets, Executor& executor);

}  // namespace subbyte::codebook
