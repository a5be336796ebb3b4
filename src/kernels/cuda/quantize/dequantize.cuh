#pragma once
// What dequantizing canonical rows and packed tiles have in common.

#include <string>

#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/quantize/dequantize.h"

namespace subbyte::cuda {

inline constexpr int kDequantizeThreads = 256;
inline constexpr int kDequantizeChunk = 8;  // codes

/// Arguments of both kernels. Integers are code - zero, everything else values[code] - zero.
struct DequantizeCommon {
  void* out;
  int64_t rows;
  int cols;
  Element number;
  bool is_integer;
  bool is_aligned;  // rows of out at multiples of 16 bytes
  float tensor_scale;
  float values[256];
};

__device__ __forceinline__ uint32_t load_bytes(const uint8_t* p, int64_t i, int bytes) {
  if (bytes == 1) return p[i];
  if (bytes == 2) return reinterpret_cast<const uint16_t*>(p)[i];
  return reinterpret_cast<const uint32_t*>(p)[i];
}

/// Of one group: (value - zero) * scale + offset.
struct Affine {
  float zero;
  float scale;
  float offset;
};

/// The scale and the zero point of a group as they are stored.
struct StoredAffine {
  uint32_t scale;
  uint32_t zero;
};

__device__ __forceinline__ StoredAffine load_affine(const uint8_t* scales, const uint8_t* zeros,
                                                    int64_t i, int scale_bytes, int zero_bytes) {
  return {load_bytes(scales, i, scale_bytes),
          zero_bytes == 0 ? 0 : load_bytes(zeros, i, zero_bytes)};
}

__device__ __forceinline__ Affine affine_of(const StoredAffine& stored, const ScaleRule& rule,
                                            float zero, int zero_bytes, ZeroKind kind) {
  const float scale = scale_value(stored.scale, rule);
  // scale_value() gives a zero no sign. Adding -0 changes nothing.
  Affine a = {zero, (stored.scale & rule.sign) != 0 ? -fabsf(scale) : scale, -0.0f};
  if (zero_bytes == 0) return a;
  if (kind == ZeroKind::kInteger) {
    a.zero = static_cast<float>(stored.zero);
  } else {
    a.offset = to_float(kind == ZeroKind::kF16 ? Element::kF16 : Element::kBF16,
                        static_cast<uint16_t>(stored.zero));
  }
  return a;
}

/// `values` are in shared memory.
__device__ __forceinline__ float weight_of(uint32_t code, const Affine& a, bool is_integer,
                                           const float* values, float tensor_scale) {
  // The code in the mantissa of 2^23, of which the difference is exact.
  const float value = is_integer ? __uint_as_float(0x4B000000 | code) - 8388608.0f : values[code];
  return __fmul_rn(__fmaf_rn(value - a.zero, a.scale, a.offset), tensor_scale);
}

__device__ __forceinline__ void fill_values(float* shared, const DequantizeCommon& common,
                                            int bits) {
  for (int i = threadIdx.x; i < 1 << bits; i += blockDim.x) shared[i] = common.values[i];
  __syncthreads();
}

inline bool is_unsigned(Format element) {
  return element >= Format::kU2 && element <= Format::kU8;
}
inline bool is_signed(Format element) {
  return element >= Format::kI2 && element <= Format::kI8;
}

/// All but the bytes of `matrix`.
inline DequantizeCommon common_of(const MatrixView& matrix, Element number, void* out) {
  const Format element = matrix.format.element;
  DequantizeCommon c = {};
  c.out = out;
  c.rows = matrix.rows;
  c.cols = static_cast<int>(matrix.cols);
  c.number = number;
  c.is_aligned = matrix.cols % kDequantizeChunk == 0;
  c.is_integer = is_unsigned(element) || is_signed(element);
  c.tensor_scale = static_cast<float>(matrix.tensor_scale);
  for (uint32_t code = 0; code < 1u << info(element).bits; ++code) {
    c.values[code] = static_cast<float>(matrix.value_of(code));
  }
  return c;
}

inline Status check_output(int64_t ctas, Element number, const void* out, const void* codes) {
  const uintptr_t addresses = reinterpret_cast<uintptr_t>(out) | reinterpret_cast<uintptr_t>(codes);
  if (number == Element::kE4M3) {
    return Error{"cuda.format", "dequantize: expected a buffer of f32, f16 or bf16, found e4m3"};
  }
  if (addresses % 16 == 0 && ctas <= INT32_MAX) return {};
  return Error{"cuda.shape",
               "dequantize: expected codes and out at multiples of 16 bytes and at "
               "most 2^31 parts, found " +
                   std::to_string(ctas) + " parts"};
}

}  // namespace subbyte::cuda
