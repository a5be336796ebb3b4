#pragma once
// What the files of kbit and vectors share: blocks of 32 numbers, of which four neighbouring lanes
// have eight each, their scales, and what the host checks.

#include <cuda_runtime.h>

#include <string>

#include "kernels/cuda/codebook/kbit.h"
#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/common/prologue_epilogue.cuh"

namespace subbyte::cuda::kbit {

inline constexpr int kThreads = 256;
inline constexpr int kBlock = 32;
inline constexpr int kNumbersOfLane = 8;                       // numbers
inline constexpr int kLanesOfBlock = kBlock / kNumbersOfLane;  // whose numbers follow each other
inline constexpr float kBitsandbytesFloor = 1e-8f;             // what it divides by at least
// 32 bits hold what is added to addresses for rows and tiles.
inline constexpr int64_t kMaxCols = (1 << 24) - 512;
inline constexpr int64_t kMaxRows = 1 << 26;

/// The exponent that bitsandbytes finds just below a power of two: there its logarithm, a float, is
/// a whole number already. Apart, as few blocks need it.
static __device__ __noinline__ int exponent_near_power(float value) {
  return static_cast<int>(floorf(static_cast<float>(log2(static_cast<double>(value)))));
}

/// encode_e4m4_as_bitsandbytes() of quantize/kbit.h.
__device__ __forceinline__ uint32_t e4m4_as_bitsandbytes(float value) {
  constexpr int kBias = 11;
  if (!(value > 0)) return 0;
  const uint32_t bits = __float_as_uint(value);
  int exponent = static_cast<int>(bits >> 23) - 127;
  if ((bits & 0x7FFFFF) >= 0x7FFF00) exponent = exponent_near_power(value);
  const int stored = min(max(exponent + kBias, 0), 15);
  const float power = __uint_as_float(static_cast<uint32_t>(131 - exponent) << 23);  // 2^(4 - e)
  const float sixteenths = stored == 0 ? value * 0x1p14f : value * power - 16;
  const int mantissa = min(max(__float2int_rn(sixteenths), 0), 15);
  return static_cast<uint32_t>(stored << 4 | mantissa);
}

/// The scale of a block, stored in 1, 2 or 4 bytes; what has 4 is rounded to E4M4.
__device__ __forceinline__ float scale_of(const uint8_t* absmax, int64_t block, int bytes,
                                          const ScaleRule& e4m4) {
  if (bytes == 1) return scale_value(absmax[block], e4m4);
  if (bytes == 2) return gpu::F16::to_float(reinterpret_cast<const uint16_t*>(absmax)[block]);
  return scale_value(e4m4_as_bitsandbytes(reinterpret_cast<const float*>(absmax)[block]), e4m4);
}

/// The largest magnitude of a block, of a lane's numbers and those of its three neighbours.
__device__ __forceinline__ float largest_of_block(const float (&x)[kNumbersOfLane]) {
  float largest = 0;
#pragma unroll
  for (const float number : x) largest = fmaxf(largest, fabsf(number));
  largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
  return fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
}

inline Error wrong_shape(const char* what, const std::string& expected, int64_t found) {
  return Error{"cuda.shape",
               std::string(what) + ": expected " + expected + ", found " + std::to_string(found)};
}

inline Status check_buffers(const char* what, const KbitBuffers& b, int64_t blocks) {
  if (b.k < 2 || b.k > 5) return wrong_shape(what, "2 to 5 bits", b.k);
  if (b.packed_words < blocks * b.k) {
    return wrong_shape(what, std::to_string(blocks * b.k) + " words of codes or more",
                       b.packed_words);
  }
  if (b.absmax_elements >= blocks) return {};
  return wrong_shape(what, std::to_string(blocks) + " scales or more", b.absmax_elements);
}

/// How many blocks the buffers have, with padding. Code cuda.shape.
inline Result<int64_t> blocks_to_dequantize(const char* what, const KbitDequantization& call) {
  const int64_t groups = call.cols / kBlock;
  const int64_t blocks = call.rows * (call.is_tiled ? (groups + 1) / 2 * 2 : groups);
  if (call.cols % kBlock != 0) return wrong_shape(what, "inputs in 32s", call.cols);
  if (call.is_tiled && call.rows % 128 != 0) return wrong_shape(what, "outputs in 128s", call.rows);
  SUBBYTE_CHECK(check_buffers(what, call.from, blocks));
  if (blocks / 256 >= INT32_MAX) return wrong_shape(what, "fewer than 2^39 blocks", blocks);
  if (call.cols > kMaxCols) return wrong_shape(what, "at most 2^24 - 512 inputs", call.cols);
  if (reinterpret_cast<uintptr_t>(call.out) % 16 == 0) return blocks;
  return Error{"cuda.shape", std::string(what) + ": expected results at a multiple of 16 bytes"};
}

/// Zeros after the blocks.
inline void pad(const KbitBuffers& to, int64_t blocks, Stream stream) {
  const int64_t words = to.packed_words - blocks * to.k;
  const int64_t scales = to.absmax_elements - blocks;
  if (words > 0) cudaMemsetAsync(to.packed + blocks * to.k, 0, words * 4, stream);
  if (scales > 0) {
    cudaMemsetAsync(static_cast<uint8_t*>(to.absmax) + blocks, 0, scales, stream);
  }
}

inline Element element_of_number(Format number) {
  return number == Format::kF32   ? Element::kF32
         : number == Format::kF16 ? Element::kF16
                                  : Element::kBF16;
}

inline int bytes_of_scale(Format scale) {
  return scale == Format::kE4M4 ? 1 : scale == Format::kF16 ? 2 : 4;
}

/// Numbers that become blocks, and their scales.
struct QuantizedNumbers {
  const uint8_t* numbers;
  uint8_t* absmax;
  int64_t count;
  int64_t blocks;
};

inline QuantizedNumbers quantized_numbers(const void* numbers, int64_t count,
                                          const KbitBuffers& to) {
  return {static_cast<const uint8_t*>(numbers), static_cast<uint8_t*>(to.absmax), count,
          (count + kBlock - 1) / kBlock};
}

/// Blocks that become numbers: their scales and places.
struct DequantizedBlocks {
  const uint8_t* absmax;
  uint8_t* out;
  int64_t blocks;
  int32_t cols;
  int32_t groups;    // of a row
  uint32_t tiles_n;  // of 128 outputs; 0: flat
  int scale_bytes;   // 1, 2 or 4
  Element number;
  ScaleRule rule;  // of E4M4
};

inline DequantizedBlocks dequantized_blocks(const KbitDequantization& call, int64_t blocks) {
  return {static_cast<const uint8_t*>(call.from.absmax),
          static_cast<uint8_t*>(call.out),
          blocks,
          static_cast<int32_t>(call.cols),
          static_cast<int32_t>(call.cols / kBlock),
          call.is_tiled ? static_cast<uint32_t>(call.rows / 128) : 0,
          bytes_of_scale(call.from.scale),
          element_of_number(call.number),
          scale_rule(ScaleKind::kE4M4)};
}

/// Of 2, 3, 4 or 5 bits.
template <class Kernel>
Kernel by_bits(int bits, const Kernel (&kernels)[4]) {
  return kernels[bits - 2];
}

}  // namespace subbyte::cuda::kbit
