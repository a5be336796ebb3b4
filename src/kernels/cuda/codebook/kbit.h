#pragma once
// bitsandbytes' kbit in device memory, to the bits of codebook/kbit.h on the host. Buffers are
// its own: a block of 32 numbers has k words, its bit planes, and a scale; blocks are flat or tiled
// (foreign_layouts/kbit.h). Each function is one launch, and memsets of the padding; it allocates
// nothing, waits for nothing and can be captured in a graph.

#include <cstdint>
#include <span>

#include "base/status.h"
#include "formats/format.h"
#include "kernels/cuda/common/elements.h"

namespace subbyte::cuda {

struct KbitBuffers {
  uint32_t* packed = nullptr;
  void* absmax = nullptr;
  int64_t packed_words =
      0;  // of the buffers; what follows the blocks becomes 0 where it is written
  int64_t absmax_elements = 0;
  Format scale = Format::kE4M4;  // or kF16, or kF32, which is rounded to E4M4 first
  int k = 4;                     // 2 to 5
};

/// Numbers below or at threshold i have a code of at most i; 2^k - 1 of them, which rise.
struct KbitThresholds {
  float values[31] = {};
};

/// `count` numbers of f32, f16 or bf16 to flat codes and E4M4 scales; the last block is filled up
/// with zeros. All are finite, which nothing checks. With `nearest_scales` by
/// KbitRule::kStoredScale (quantize/kbit.h), else kBitsandbytes. Codes: cuda.shape, cuda.launch.
SUBBYTE_BY_NVCC Status quantize_kbit(const void* numbers, Format number, int64_t count,
                                     const KbitThresholds& thresholds, const KbitBuffers& to,
                                     Stream stream, bool nearest_scales = false);

/// To W [rows][cols] of f32, f16 or bf16, at a multiple of 16 bytes; cols in 32s and, where tiled,
/// rows in 128s. The codebook lies on the host. Codes: cuda.shape, cuda.launch.
struct KbitDequantization {
  KbitBuffers from;
  std::span<const float> codebook;
  int64_t rows = 0;
  int64_t cols = 0;
  bool is_tiled = false;
  Format number = Format::kF16;
  void* out = nullptr;
};
SUBBYTE_BY_NVCC Status dequantize_kbit(const KbitDequantization& call, Stream stream);

/// Vectors of p = 2 or 4 numbers as bytes (bitsandbytes/vq.h): the words are those of k = 8 / p
/// planes, `vectors` [256][p] in f16 on the host. As quantize_kbit() and dequantize_kbit().
struct VqVectors {
  std::span<const uint16_t> values;
  int p = 2;
};
SUBBYTE_BY_NVCC Status quantize_vq(const void* numbers, Format number, int64_t count,
                                   const VqVectors& vectors, const KbitBuffers& to, Stream stream);
SUBBYTE_BY_NVCC Status dequantize_vq(const KbitDequantization& call, const VqVectors& vectors,
                                     Stream stream);

/// Flat blocks of [rows][cols] as tiled ones, or the way back. Scales are bytes; rows in 128s, cols
/// in 32s. Codes: cuda.shape, cuda.launch.
SUBBYTE_BY_NVCC Status repack_kbit(const KbitBuffers& from, const KbitBuffers& to, int64_t rows,
                                   int64_t cols, bool to_tiled, Stream stream);

}  // namespace subbyte::cuda
