// One kernel: a lane has 16 bytes of x, neighbouring lanes a group, a CTA some chunks of a row. x
// is read once, and codes and scales are written where they belong, padding too.

#include <string>

#include "kernels/block_codes.h"
#include "kernels/cuda/common/ptx.cuh"
#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ops/quantize.h"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kChunks =
    4;  // of a lane, one after the other; all are loaded before the first is used

struct QuantizeArguments {
  const uint4* x;
  uint8_t* codes;
  uint8_t* scales;
  uint32_t rows;
  uint32_t ctas_of_row;
  uint32_t row_chunks;    // of x
  uint32_t code_chunks;   // of the codes, with padding
  uint32_t scale_chunks;  // of the scales
  uint32_t scale_cols;
  uint32_t threshold;  // blocks::scale_threshold()
  int layout;
  float tensor_scale;
};

/// The 4 or 8 numbers of 16 bytes as bits of floats.
template <Format kInput>
struct Chunk;
template <>
struct Chunk<Format::kF32> {
  static constexpr int kSize = 4;
  static __device__ __forceinline__ void bits(uint32_t (&to)[4], const uint4& x) {
    to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
  }
};
template <>
struct Chunk<Format::kBF16> {
  static constexpr int kSize = 8;
  static __device__ __forceinline__ void bits(uint32_t (&to)[8], const uint4& x) {
    const uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to[2 * i] = words[i] << 16;
      to[2 * i + 1] = words[i] & 0xFFFF0000;
    }
  }
};
template <>
struct Chunk<Format::kF16> {
  static constexpr int kSize = 8;
  static __device__ __forceinline__ void bits(uint32_t (&to)[8], const uint4& x) {
    const uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const auto half = static_cast<uint16_t>(words[i / 2] >> 16 * (i % 2));
      to[i] = __float_as_uint(gpu::F16::to_float(half));
    }
  }
};

/// Two codes, the first one in the low bits. The instructions saturate and round as encode() does.
template <class Element>
__device__ __forceinline__ uint32_t encode_x2(float low, float high) {
#if __CUDA_ARCH__ >= 890
  if constexpr (Element::kBits == 8) {
    uint16_t codes;
    if constexpr (Element::kMantissa == 3) {
      asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
    } else {
      asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
    }
    return codes;
  }
#endif
  return blocks::encode<Element>(__float_as_uint(low)) |
         blocks::encode<Element>(__float_as_uint(high)) << Element::kBits;
}

/// The codes of a lane, at the low end of two words.
template <class Element, int kSize>
__device__ __forceinline__ uint2 encode_chunk(const uint32_t (&bits)[kSize], float inverse,
                                              bool is_nan) {
  uint64_t codes = 0;
#pragma unroll
  for (int i = 0; i < kSize; i += 2) {
    const uint64_t pair = encode_x2<Element>(__uint_as_float(bits[i]) * inverse,
                                             __uint_as_float(bits[i + 1]) * inverse);
    codes |= pair << (i * Element::kBits);
  }
  if (is_nan) codes = Element::kNan * 0x0101010101010101u;
  return {static_cast<uint32_t>(codes), static_cast<uint32_t>(codes >> 32)};
}

template <int kBytes>
__device__ __forceinline__ void store_codes(uint8_t* to, uint2 codes) {
  if constexpr (kBytes == 8) *reinterpret_cast<uint2*>(to) = codes;
  if constexpr (kBytes == 4) *reinterpret_cast<uint32_t*>(to) = codes.x;
  if constexpr (kBytes == 2) *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(codes.x);
}

/// A chunk of a group; all lanes of the warp take part.
template <class Element, bool kIsNv, Format kInput>
__device__ __forceinline__ void quantize_chunk(const QuantizeArguments& a, uint32_t row,
                                               uint32_t chunk, const uint4& x) {
  constexpr int kSize = Chunk<kInput>::kSize;
  constexpr int kLanesOfGroup = (kIsNv ? 16 : 32) / kSize;
  constexpr int kBytes = kSize * Element::kBits / 8;
  uint32_t bits[kSize];
  Chunk<kInput>::bits(bits, x);
  uint32_t amax = 0;
#pragma unroll
  for (int i = 0; i < kSize; ++i) amax = max(amax, bits[i] & blocks::kMagnitude);
#pragma unroll
  for (int distance = 1; distance < kLanesOfGroup; distance *= 2) {
    amax = max(amax, __shfl_xor_sync(~0u, amax, distance));
  }
  uint32_t scale;
  float inverse;
  if constexpr (kIsNv) {
    scale = blocks::e4m3_scale_of(amax, 6 * a.tensor_scale);
    inverse = blocks::inverse_e4m3(scale, a.tensor_scale);
  } else {
    scale = blocks::e8m0_of<Element>(amax, a.threshold);
    inverse = blocks::inverse_e8m0(scale);
  }
  if (row < a.rows && chunk < a.code_chunks) {
    const uint2 codes = encode_chunk<Element>(bits, inverse, amax > blocks::kInfinity);
    store_codes<kBytes>(a.codes + (int64_t{row} * a.code_chunks + chunk) * kBytes, codes);
  }
  if (chunk % kLanesOfGroup == 0 && chunk < a.scale_chunks) {
    a.scales[blocks::scale_place(a.layout, row, chunk / kLanesOfGroup, a.scale_cols)] =
        static_cast<uint8_t>(scale);
  }
}

template <class Element, bool kIsNv, Format kInput>
__global__ void __launch_bounds__(kThreads) quantize(QuantizeArguments a) {
  begin_operation();
  const uint32_t row = blockIdx.x / a.ctas_of_row;
  const uint32_t first = (blockIdx.x % a.ctas_of_row) * (kThreads * kChunks) + threadIdx.x;
  uint4 x[kChunks];
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const uint32_t chunk = first + i * kThreads;
    x[i] =
        row < a.rows && chunk < a.row_chunks ? a.x[int64_t{row} * a.row_chunks + chunk] : uint4{};
  }
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    quantize_chunk<Element, kIsNv, kInput>(a, row, first + i * kThreads, x[i]);
  }
}

using Kernel = void (*)(QuantizeArguments);

template <class Element, bool kIsNv>
Kernel kernel_of(Format input) {
  if (input == Format::kF32) return &quantize<Element, kIsNv, Format::kF32>;
  if (input == Format::kF16) return &quantize<Element, kIsNv, Format::kF16>;
  return &quantize<Element, kIsNv, Format::kBF16>;
}

Kernel kernel_of(const BlockQuantization& b) {
  switch (b.format) {
    case BlockFormat::kMxfp8E4M3:
      return kernel_of<blocks::E4M3, false>(b.input);
    case BlockFormat::kMxfp8E5M2:
      return kernel_of<blocks::E5M2, false>(b.input);
    case BlockFormat::kMxfp4:
      return kernel_of<blocks::E2M1, false>(b.input);
    default:
      return kernel_of<blocks::E2M1, true>(b.input);
  }
}

uint32_t threshold_of(const BlockQuantization& b) {
  const int rule = static_cast<int>(b.rule);
  if (b.format == BlockFormat::kMxfp8E4M3) return blocks::scale_threshold<blocks::E4M3>(rule);
  if (b.format == BlockFormat::kMxfp8E5M2) return blocks::scale_threshold<blocks::E5M2>(rule);
  return blocks::scale_threshold<blocks::E2M1>(rule);
}

}  // namespace

Status quantize_blocks(const BlockQuantization& blocks, const void* x, void* codes, void* scales,
                       Stream stream) {
  SUBBYTE_CHECK(check_block_quantization(blocks));
  if (blocks.scale_rows() == 0) return {};
  if ((reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(codes)) % 16 != 0) {
    return Error{"cuda.shape", "quantize: expected x and codes at multiples of 16 bytes"};
  }
  const auto size = static_cast<uint32_t>(16 / (info(blocks.input).bits / 8));
  QuantizeArguments a = {};
  a.x = static_cast<const uint4*>(x);
  a.codes = static_cast<uint8_t*>(codes);
  a.scales = static_cast<uint8_t*>(scales);
  a.rows = static_cast<uint32_t>(blocks.rows);
  a.row_chunks = static_cast<uint32_t>(blocks.cols) / size;
  a.code_chunks = static_cast<uint32_t>(blocks.padded_cols()) / size;
  a.scale_cols = static_cast<uint32_t>(blocks.scale_cols());
  a.scale_chunks = a.scale_cols * static_cast<uint32_t>(blocks.group()) / size;
  constexpr uint32_t kChunksOfCta = kThreads * kChunks;
  a.ctas_of_row = (a.scale_chunks + kChunksOfCta - 1) / kChunksOfCta;
  a.threshold = threshold_of(blocks);
  a.layout = static_cast<int>(blocks.layout);
  a.tensor_scale = blocks.tensor_scale;
  const int64_t ctas = blocks.scale_rows() * a.ctas_of_row;
  if (ctas > INT32_MAX) {
    return Error{"cuda.shape", "quantize: expected at most 2^31 parts of rows of 16 KiB, found " +
                                   std::to_string(ctas)};
  }
  launch(kernel_of(blocks), {dim3(static_cast<unsigned>(ctas)), kThreads}, stream, a);
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return {};
  return Error{"cuda.launch", std::string("quantize: ") + cudaGetErrorString(error)};
}

}  // namespace subbyte::cuda
