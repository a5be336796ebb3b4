#pragma once
// Quantizing, dequantizing, rotating for one instruction set, a table like vector_kernels.h.

#include <cstdint>

#include "base/operands.h"

namespace subbyte::cpu {

/// The elements before kE4M3, of the side that is not quantized.
inline constexpr int kBufferElements = 3;

/// Neighbouring groups of one row (kernels/quantized_blocks.h).
struct BlockTask {
  const void* x = nullptr;
  uint8_t* codes = nullptr;
  uint8_t* scales = nullptr;  // one byte each
  int64_t groups = 0;
  int rule = 0;  // of ScaleRule
  float tensor_scale = 1;
};
inline constexpr int kBlockFormats = 4;  // in the order of BlockFormat

/// One group of one row: (value(code) - zero) * scale + offset, times tensor_scale; each operation
/// in f32, product and sum rounded once together.
struct DequantizeTask {
  const uint8_t* codes = nullptr;  // of the row
  int64_t begin = 0;               // inputs of the row
  int64_t end = 0;
  int bits = 0;                   // of a code, 2 to 8
  const float* values = nullptr;  // [1 << bits]
  float zero = 0;
  float scale = 1;
  float offset = -0.0f;  // that changes nothing
  float tensor_scale = 1;
  float* out = nullptr;  // [end - begin]
};

struct BlockKernels {
  void (*quantize[kBlockFormats][kBufferElements])(const BlockTask& task);
  void (*dequantize)(const DequantizeTask& task);
  /// The same where a byte stands for p = 8 / bits inputs: value(byte, i) is values[p * byte + i],
  /// and nothing is added. begin and end are multiples of 8 / bits.
  void (*dequantize_vectors)(const DequantizeTask& task);
  /// Rotates x[count] in place, in runs of 16, 64 or 256 (formats/rotation.h); the same bits on all
  /// instruction sets.
  void (*rotate)(float* x, int64_t count, int64_t size);
  /// Rounds to nearest, ties to even.
  void (*store[kBufferElements])(void* to, const float* from, int64_t n);
  /// Says whether none of the numbers is a subnormal bf16, which instructions for bf16 take for 0.
  bool (*load[kBufferElements])(float* to, const void* from, int64_t n);
  /// Rounds sums of x[count * size], `size` numbers each, that were added in double precision and
  /// multiplied by `factor`; the same bits on all instruction sets.
  void (*sum_groups)(float* sums, const float* x, int64_t count, int64_t size, double factor);
};

}  // namespace subbyte::cpu
