// One kernel: a lane has a chunk of 32 bytes of x, one to four neighbouring lanes a group, a CTA
// some chunks of a row. x is read once, and codes and scales are written where they belong, padding
// too.

#include <string>

#include "kernels/block_codes.h"
#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/ptx.cuh"
#include "kernels/cuda/quantize/quantize.h"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;
/// Of a lane, one after the other; all are loaded before the first is used.
constexpr int kChunks = 2;

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
  // Of NVFP4.
  const float* global_scale_there;
  float global_scale;
  bool is_squared;
};

/// The bits of the 4 or 8 numbers of 16 bytes as floats.
template <Format kInput>
__device__ __forceinline__ void unpack(uint32_t* to, const uint4& x) {
  const uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (kInput == Format::kF32) {
      to[i] = words[i];
    } else if constexpr (kInput == Format::kBF16) {
      to[2 * i] = words[i] << 16;
      to[2 * i + 1] = words[i] & 0xFFFF0000;
    } else {
      to[2 * i] = __float_as_uint(gpu::F16::to_float(static_cast<uint16_t>(words[i])));
      to[2 * i + 1] = __float_as_uint(gpu::F16::to_float(static_cast<uint16_t>(words[i] >> 16)));
    }
  }
}

/// Numbers of a chunk.
template <Format kInput>
constexpr int kChunkSize = kInput == Format::kF32 ? 8 : 16;

/// Two codes of 8 bits, the first one in the low bits. The instructions saturate and round as
/// encode() does.
template <class Element>
__device__ __forceinline__ uint32_t encode_x2(float low, float high) {
#if __CUDA_ARCH__ >= 890
  if constexpr (Element::kMantissa == 3) return e4m3_x2(low, high);
  uint16_t codes;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
#else
  return blocks::encode<Element>(__float_as_uint(low)) |
         blocks::encode<Element>(__float_as_uint(high)) << 8;
#endif
}

/// The magnitude, at most 6, plus a power of two that leaves its code but for the exponent in the
/// lowest bits, rounded to nearest even: 2^22 below 2, 2^23 below 4, else 2^24.
__device__ __forceinline__ uint32_t e2m1_sum(float value) {
  const float magnitude = fminf(fabsf(value), 6.0f);
  const uint32_t power = max(__float_as_uint(magnitude) & blocks::kInfinity, 0x3F800000u);
  return __float_as_uint(magnitude + __uint_as_float(power) * 0x1p22f);
}

/// Two e2m1 codes in a byte, as blocks::encode() has them, by two thirds of its instructions: what
/// is left of the sums is put together for both at once. Whatever is above the byte is to be left.
__device__ __forceinline__ uint32_t encode_e2m1_x2(float low, float high) {
  const uint32_t sums[2] = {e2m1_sum(low), e2m1_sum(high)};
  const uint32_t mantissas = __byte_perm(sums[0], sums[1], 0x5410);
  const uint32_t exponents = __byte_perm(sums[0], sums[1], 0x7632) >> 6 & 0x00060006;
  const uint32_t signs = __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x7632) >> 12;
  const uint32_t codes = (mantissas + exponents - 0x00020002) | (signs & 0x00080008);
  return codes | codes >> 12;
}

/// A word of codes of neighbours.
template <class Element>
__device__ __forceinline__ uint32_t encode_word(const uint32_t* bits, float inverse) {
  const auto number = [&](int i) { return __uint_as_float(bits[i]) * inverse; };
  if constexpr (Element::kBits == 4) {
    const uint32_t low = __byte_perm(encode_e2m1_x2(number(0), number(1)),
                                     encode_e2m1_x2(number(2), number(3)), 0x0040);
    const uint32_t high = __byte_perm(encode_e2m1_x2(number(4), number(5)),
                                      encode_e2m1_x2(number(6), number(7)), 0x0040);
    return __byte_perm(low, high, 0x5410);
  } else {
    return __byte_perm(encode_x2<Element>(number(0), number(1)),
                       encode_x2<Element>(number(2), number(3)), 0x5410);
  }
}

/// Stores the codes of a chunk.
template <class Element, int kSize>
__device__ __forceinline__ void store_codes(uint8_t* to, const uint32_t (&bits)[kSize],
                                            float inverse, bool is_nan) {
  constexpr int kOfWord = 32 / Element::kBits;
  constexpr int kWords = kSize / kOfWord;
  uint32_t words[kWords];
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    words[i] = encode_word<Element>(bits + i * kOfWord, inverse);
    if (is_nan) words[i] = Element::kNan * 0x01010101u;
  }
  if constexpr (kWords == 4) {
    *reinterpret_cast<uint4*>(to) = {words[0], words[1], words[2], words[3]};
  } else if constexpr (kWords == 2) {
    *reinterpret_cast<uint2*>(to) = {words[0], words[1]};
  } else {
    *reinterpret_cast<uint32_t*>(to) = words[0];
  }
}

/// A scale of "4 over 6" and the factor of its elements, 1 / (scale * tensor_scale).
struct Candidate {
  uint32_t scale;
  float inverse;
};

/// The error of a lane's numbers added to `error`, one after the other, each operation rounded: as
/// candidate() of torch_operators/four_over_six.cc does it.
template <int kSize>
__device__ __forceinline__ float add_errors(float error, const Candidate& c, float tensor_scale,
                                            const uint32_t (&bits)[kSize], bool is_squared) {
  const float scale = blocks::e4m3_value(c.scale);
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    const float x = __uint_as_float(bits[i]);
    const float scaled = fminf(fabsf(__fmul_rn(x, c.inverse)), 6.0f);
    const float power =
        __uint_as_float(max(__float_as_uint(scaled) & blocks::kInfinity, 0x3F800000u)) * 0x1p22f;
    const float rounded = __fsub_rn(__fadd_rn(scaled, power), power);
    const float value = __fmul_rn(__fmul_rn(rounded, scale), tensor_scale);
    const float off = __fsub_rn(value, fabsf(x));
    error = __fadd_rn(error, is_squared ? __fmul_rn(off, off) : fabsf(off));
  }
  return error;
}

__device__ __forceinline__ Candidate candidate(float wanted, float tensor_scale) {
  const uint32_t scale = blocks::encode<blocks::E4M3>(__float_as_uint(fminf(wanted, 448.0f)));
  const float product = __fmul_rn(blocks::e4m3_value(scale), tensor_scale);
  return {scale, fminf(__fdiv_rn(1.0f, product), __uint_as_float(0x7F7FFFFF))};
}

/// The better of two scales for a group of one or two lanes, whose errors go from the first lane to
/// the second; that of 6 where they are equal. `amax` is a number above 0.
template <int kLanesOfGroup, int kSize>
__device__ __forceinline__ Candidate four_or_six(uint32_t amax, float global_scale,
                                                 float tensor_scale, const uint32_t (&bits)[kSize],
                                                 bool is_squared) {
  const float wanted = __fmul_rn(__fdiv_rn(__uint_as_float(amax), 6.0f), global_scale);
  const Candidate both[2] = {candidate(wanted, tensor_scale),
                             candidate(__fmul_rn(wanted, 1.5f), tensor_scale)};
  float errors[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    errors[i] = add_errors(0, both[i], tensor_scale, bits, is_squared);
    if constexpr (kLanesOfGroup == 2) {
      const float first = __shfl_sync(~0u, errors[i], threadIdx.x % kLanes & ~1u);
      const float all = add_errors(first, both[i], tensor_scale, bits, is_squared);
      errors[i] = __shfl_sync(~0u, all, threadIdx.x % kLanes | 1u);
    }
  }
  return errors[1] < errors[0] ? both[1] : both[0];
}

/// A chunk of a group; all lanes of the warp take part.
template <class Element, bool kIsNv, Format kInput, bool kSearches>
__device__ __forceinline__ void quantize_chunk(const QuantizeArguments& a, uint32_t row,
                                               uint32_t chunk, const uint4 (&x)[2]) {
  constexpr int kSize = kChunkSize<kInput>;
  constexpr int kLanesOfGroup = (kIsNv ? 16 : 32) / kSize;
  constexpr int kBytes = kSize * Element::kBits / 8;
  uint32_t bits[kSize];
  unpack<kInput>(bits, x[0]);
  unpack<kInput>(bits + kSize / 2, x[1]);
  float largest = 0;
#pragma unroll
  for (int i = 0; i < kSize; ++i) largest = larger_magnitude(largest, __uint_as_float(bits[i]));
  uint32_t amax = __float_as_uint(largest);
#pragma unroll
  for (int distance = 1; distance < kLanesOfGroup; distance *= 2) {
    amax = max(amax, __shfl_xor_sync(~0u, amax, distance));
  }
  uint32_t scale;
  float inverse;
  float global_scale = a.global_scale;
  float tensor_scale = a.tensor_scale;
  if constexpr (kIsNv) {
    if (a.global_scale_there != nullptr) {
      global_scale = *a.global_scale_there;
      tensor_scale = __fdiv_rn(1.0f, global_scale);
    }
    scale = blocks::e4m3_scale_of(amax, 6 * tensor_scale);
    inverse = blocks::inverse_e4m3(scale, tensor_scale);
  } else {
    scale = blocks::e8m0_of<Element>(amax, a.threshold);
    inverse = blocks::inverse_e8m0(scale);
  }
  if constexpr (kSearches) {
    const Candidate best =
        four_or_six<kLanesOfGroup>(amax, global_scale, tensor_scale, bits, a.is_squared);
    const bool has_best = amax > 0 && amax < blocks::kInfinity;
    scale = has_best ? best.scale : scale;
    inverse = has_best ? best.inverse : inverse;
  }
  if (row < a.rows && chunk < a.code_chunks) {
    uint8_t* const to = a.codes + (int64_t{row} * a.code_chunks + chunk) * kBytes;
    store_codes<Element>(to, bits, inverse, amax > blocks::kInfinity);
  }
  if (chunk % kLanesOfGroup == 0 && chunk < a.scale_chunks) {
    a.scales[blocks::scale_place(a.layout, row, chunk / kLanesOfGroup, a.scale_cols)] =
        static_cast<uint8_t>(scale);
  }
}

template <class Element, bool kIsNv, Format kInput, bool kSearches = false>
__global__ void __launch_bounds__(kThreads) quantize(QuantizeArguments a) {
  begin_operation();
  const uint32_t row = blockIdx.x / a.ctas_of_row;
  const uint32_t first = (blockIdx.x % a.ctas_of_row) * (kThreads * kChunks) + threadIdx.x;
  uint4 x[kChunks][2];
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const uint32_t chunk = first + i * kThreads;
    const bool is_there = row < a.rows && chunk < a.row_chunks;
    const uint4* const from = a.x + (int64_t{row} * a.row_chunks + chunk) * 2;
    x[i][0] = is_there ? from[0] : uint4{};
    x[i][1] = is_there ? from[1] : uint4{};
  }
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    quantize_chunk<Element, kIsNv, kInput, kSearches>(a, row, first + i * kThreads, x[i]);
  }
}

constexpr int kRoundSize = 16;  // numbers of a lane: two lanes have a group

__device__ __forceinline__ void load_16(Element element, const void* x, int64_t at,
                                        float (&values)[kRoundSize]) {
  load_8(element, x, at, reinterpret_cast<float(&)[8]>(values));
  load_8(element, x, at + 8, reinterpret_cast<float(&)[8]>(values[8]));
}

/// Of the largest magnitude, as its bits.
__device__ __forceinline__ uint32_t mxfp8_scale(uint32_t amax) {
  constexpr int kCeil = static_cast<int>(subbyte::ScaleRule::kCeil);
  return blocks::e8m0_of<blocks::E4M3>(amax, blocks::scale_threshold<blocks::E4M3>(kCeil));
}

__global__ void __launch_bounds__(kThreads)
    round_to_mxfp8(const __grid_constant__ RoundToMxfp8Call a) {
  constexpr int kSize = kRoundSize;
  begin_operation();
  const int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kSize;
  const bool is_there = first < a.count;
  float values[kSize] = {};
  if (is_there) load_16(a.element, a.x, first, values);
  float largest = 0;
#pragma unroll
  for (int i = 0; i < kSize; ++i) largest = larger_magnitude(largest, values[i]);
  uint32_t amax = __float_as_uint(largest);
  amax = max(amax, __shfl_xor_sync(~0u, amax, 1));
  const uint32_t scale = mxfp8_scale(amax);
  const float inverse = blocks::inverse_e8m0(scale);
  const float factor = blocks::e8m0_value(scale);
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    const uint32_t code = encode_x2<blocks::E4M3>(values[i] * inverse, 0) & 0xFF;
    const float magnitude = blocks::e4m3_value(code & 0x7F) * factor;
    values[i] = (code & 0x80) != 0 ? -magnitude : magnitude;
  }
  if (!is_there) return;
  store_8(a.element, a.to, first, reinterpret_cast<const float(&)[8]>(values));
  store_8(a.element, a.to, first + 8, reinterpret_cast<const float(&)[8]>(values[8]));
}

constexpr int kRowThreads = 128;

/// A CTA for a row, which it reads twice.
__global__ void __launch_bounds__(kRowThreads)
    quantize_rows(const __grid_constant__ QuantizeRowsCall a) {
  begin_operation();
  __shared__ uint32_t largest_of_warp[kRowThreads / kLanes];
  const int64_t pieces = a.cols / kRoundSize;
  const int64_t row = blockIdx.x;
  const int64_t from = (a.rows != nullptr ? a.rows[row] : row) * a.cols;
  float values[kRoundSize];
  float largest = 0;
  for (int64_t i = threadIdx.x; i < pieces; i += kRowThreads) {
    load_16(a.element, a.x, from + i * kRoundSize, values);
#pragma unroll
    for (int j = 0; j < kRoundSize; ++j) largest = larger_magnitude(largest, values[j]);
  }
  uint32_t amax = __reduce_max_sync(~0u, __float_as_uint(largest));
  if (threadIdx.x % kLanes == 0) largest_of_warp[threadIdx.x / kLanes] = amax;
  __syncthreads();
  for (const uint32_t of_warp : largest_of_warp) amax = max(amax, of_warp);
  const uint32_t scale = mxfp8_scale(amax);
  const float inverse = blocks::inverse_e8m0(scale);
  if (threadIdx.x == 0) a.scales[row] = blocks::e8m0_value(scale);
  for (int64_t i = threadIdx.x; i < pieces; i += kRowThreads) {
    load_16(a.element, a.x, from + i * kRoundSize, values);
    uint32_t words[4];
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      words[t] = encode_x2<blocks::E4M3>(values[2 * t] * inverse, values[2 * t + 8] * inverse) |
                 encode_x2<blocks::E4M3>(values[2 * t + 1] * inverse, values[2 * t + 9] * inverse)
                     << 16;
    }
    reinterpret_cast<uint4*>(a.codes)[row * pieces + i] = {words[0], words[1], words[2], words[3]};
  }
}

using Kernel = void (*)(QuantizeArguments);

template <class Element, bool kIsNv, bool kSearches = false>
Kernel kernel_of(Format input) {
  if (input == Format::kF32) return &quantize<Element, kIsNv, Format::kF32, kSearches>;
  if (input == Format::kF16) return &quantize<Element, kIsNv, Format::kF16, kSearches>;
  return &quantize<Element, kIsNv, Format::kBF16, kSearches>;
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

void run_round_to_mxfp8(const RoundToMxfp8Call& call, Stream stream) {
  constexpr int64_t kOfCta = kThreads * kRoundSize;
  const auto ctas = static_cast<unsigned>((call.count + kOfCta - 1) / kOfCta);
  if (ctas == 0) return;
  launch(round_to_mxfp8, {dim3(ctas), kThreads}, stream, call);
}

void run_quantize_rows(const QuantizeRowsCall& call, Stream stream) {
  launch(quantize_rows, {dim3(static_cast<unsigned>(call.count)), kRowThreads}, stream, call);
}

Status quantize_blocks(const BlockQuantization& blocks, const void* x, void* codes, void* scales,
                       Stream stream, const Nvfp4Options& options) {
  SUBBYTE_CHECK(check_block_quantization(blocks));
  if (blocks.scale_rows() == 0) return {};
  if ((reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(codes)) % 16 != 0) {
    return Error{"cuda.shape", "quantize: expected x and codes at multiples of 16 bytes"};
  }
  const auto size = static_cast<uint32_t>(32 / (info(blocks.input).bits / 8));
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
  a.global_scale_there = options.global_scale_there;
  a.global_scale = options.global_scale;
  a.is_squared = options.is_squared;
  const int64_t ctas = blocks.scale_rows() * a.ctas_of_row;
  if (ctas > INT32_MAX) {
    return Error{"cuda.shape", "quantize: expected at most 2^31 parts of rows of 16 KiB, found " +
                                   std::to_string(ctas)};
  }
  const Kernel kernel =
      options.four_over_six ? kernel_of<blocks::E2M1, true, true>(blocks.input) : kernel_of(blocks);
  launch(kernel, {dim3(static_cast<unsigned>(ctas)), kThreads}, stream, a);
  return launched("quantize");
}

}  // namespace subbyte::cuda
