// Two kernels: of canonical rows, where a lane has 8 neighbouring codes, and of packed tiles, where
// a warp has a tile, which goes through shared memory to whole lines of the rows.

#include <optional>
#include <string>

#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/quantize/dequantize.h"
#include "kernels/cuda/quantize/dequantize_vectors.h"
#include "kernels/cuda/weight_arguments.h"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxCols = int64_t{1} << 19;  // whose groups a product of 32 bits finds
constexpr int kChunk = 8;                       // codes
constexpr int kChunks = 4;                      // of a lane, loaded before the first is used

/// What both kernels are told. Integers are code - zero, everything else values[code] - zero.
struct Common {
  void* out;
  int64_t rows;
  int cols;
  Element number;
  bool is_integer;
  bool is_aligned;  // rows of out at multiples of 16 bytes
  float tensor_scale;
  float values[256];
};

struct CanonicalArguments {
  Common common;
  const uint8_t* codes;
  const uint8_t* scales;
  const uint8_t* zeros;
  const uint32_t* order;  // act-order, or nullptr
  int64_t row_bytes;
  uint32_t groups;
  uint32_t groups_of_chunk;  // times a chunk, the high 32 bits: its group; 0: the chunk itself
  uint32_t row_chunks;
  uint32_t ctas_of_row;
  float zero;      // where nothing is stored
  int zero_bytes;  // 0, 1 or 2
  ZeroKind zero_kind;
  ScaleRule scale;
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

__device__ __forceinline__ void fill_values(float* shared, const Common& common, int bits) {
  for (int i = threadIdx.x; i < 1 << bits; i += blockDim.x) shared[i] = common.values[i];
  __syncthreads();
}

/// 8 codes in kBits bytes, which are at multiples of the largest power of two in kBits.
template <int kBits>
__device__ __forceinline__ uint64_t load_codes(const uint8_t* p, bool is_aligned) {
  uint64_t codes = 0;
  if (is_aligned && kBits == 8) {
    codes = *reinterpret_cast<const uint64_t*>(p);
  } else if (is_aligned && kBits == 4) {
    codes = *reinterpret_cast<const uint32_t*>(p);
  } else {
#pragma unroll
    for (int i = 0; i < kBits; ++i) codes |= uint64_t{p[i]} << (8 * i);
  }
  return codes;
}

template <int kBits>
__device__ __forceinline__ void decode_chunk(float (&weights)[kChunk], uint64_t codes,
                                             const Affine& affine, const Common& c,
                                             const float* values) {
  const uint32_t words[2] = {static_cast<uint32_t>(codes), static_cast<uint32_t>(codes >> 32)};
#pragma unroll
  for (int j = 0; j < kChunk; ++j) {
    const int bit = j * kBits;
    const uint32_t shifted = bit % 32 + kBits > 32 ? __funnelshift_r(words[0], words[1], bit)
                                                   : words[bit / 32] >> bit % 32;
    weights[j] =
        weight_of(shifted & ((1u << kBits) - 1), affine, c.is_integer, values, c.tensor_scale);
  }
}

/// To inputs k to k + 7 of a row.
__device__ __forceinline__ void store_chunk(const CanonicalArguments& a, int64_t row, int64_t k,
                                            const float (&weights)[kChunk]) {
  const Common& c = a.common;
  const int64_t to = row * c.cols;
  if (a.order == nullptr) return store_8(c.number, c.out, to + k, weights);
#pragma unroll
  for (int j = 0; j < kChunk; ++j) {
    store_element(c.number, c.out, to + a.order[k + j], weights[j]);
  }
}

template <int kBits>
__global__ void __launch_bounds__(kThreads)
    dequantize_canonical(const __grid_constant__ CanonicalArguments a) {
  __shared__ float values[1 << kBits];
  begin_operation();
  const Common& c = a.common;
  const int64_t row = blockIdx.x / a.ctas_of_row;
  const uint32_t first = blockIdx.x % a.ctas_of_row * (kThreads * kChunks) + threadIdx.x;
  const uint8_t* const codes_of_row = a.codes + row * a.row_bytes;
  const bool is_aligned = a.row_bytes % 8 == 0;
  uint64_t codes[kChunks];
  StoredAffine stored[kChunks];
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const uint32_t chunk = min(first + i * kThreads, a.row_chunks - 1);
    const uint32_t group = a.groups_of_chunk == 0 ? chunk : __umulhi(chunk, a.groups_of_chunk);
    codes[i] = load_codes<kBits>(codes_of_row + int64_t{chunk} * kBits, is_aligned);
    stored[i] = load_affine(a.scales, a.zeros, row * a.groups + group, a.scale.bytes, a.zero_bytes);
  }
  fill_values(values, c, kBits);
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const uint32_t chunk = first + i * kThreads;
    if (chunk >= a.row_chunks) return;
    const Affine affine = affine_of(stored[i], a.scale, a.zero, a.zero_bytes, a.zero_kind);
    float weights[kChunk];
    decode_chunk<kBits>(weights, codes[i], affine, c, values);
    store_chunk(a, row, int64_t{chunk} * kChunk, weights);
  }
}

struct PackedArguments {
  Common common;
  WeightArguments weights;
  int groups_per_tile;
  uint32_t warps;
  uint32_t warps_of_strip;
};

constexpr int kWarps = kThreads / kLanes;
constexpr int kTiles = 2;                    // of a warp, next to each other
constexpr int kStageStride = kTileCols + 8;  // numbers: rows of a store begin in different banks

/// Code (step, reg, high) of a lane.
template <int kBits, CodeOrder kOrder>
__device__ __forceinline__ uint32_t code_of(const uint32_t (&words)[kBits], int lane, int step,
                                            int reg, int high) {
  const Slot slot = {lane, step, reg, high};
  const int together = bits_together(slot, kBits, kOrder);
  const BitPlace first = bit_place(slot, 0, kBits, kOrder);
  uint32_t code = words[first.word] >> first.bit & ((1u << together) - 1);
#pragma unroll
  for (int bit = 1; bit < kBits; ++bit) {
    const BitPlace at = bit_place(slot, bit, kBits, kOrder);
    if (bit >= together) code |= (words[at.word] >> at.bit & 1) << bit;
  }
  return code;
}

/// The 32 weights of a lane, to its places in the tile, as numbers of kBytes.
template <int kBits, CodeOrder kOrder, int kBytes>
__device__ __forceinline__ void decode_tile(uint8_t* stage, const PackedArguments& a,
                                            uint32_t strip, int tile, int lane,
                                            const uint32_t (&words)[kBits], const float* values) {
  const WeightArguments& w = a.weights;
  const int zero_bytes = w.zeros == nullptr ? 0 : w.zero_bytes;
  const int block = a.groups_per_tile > 1 ? tile : tile / w.tiles_per_block;
  const int64_t scales =
      ((int64_t{strip} * w.blocks + block) * 8 + lane / 4) * a.groups_per_tile * 2;
  Affine affine[2];  // of rows g and g + 8
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if (step * a.groups_per_tile % kSteps == 0) {  // a group begins
      const int64_t i = scales + step * a.groups_per_tile / kSteps * 2;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        affine[half] =
            affine_of(load_affine(w.scales, w.zeros, i + half, w.scale.bytes, zero_bytes), w.scale,
                      static_cast<float>(w.zero), zero_bytes, w.zero_kind);
      }
    }
#pragma unroll
    for (int reg = 0; reg < 4; ++reg) {
      float2 weights;
      weights.x = weight_of(code_of<kBits, kOrder>(words, lane, step, reg, 0), affine[reg % 2],
                            a.common.is_integer, values, a.common.tensor_scale);
      weights.y = weight_of(code_of<kBits, kOrder>(words, lane, step, reg, 1), affine[reg % 2],
                            a.common.is_integer, values, a.common.tensor_scale);
      const Slot slot = {lane, step, reg, 0};
      const int at = row_of(slot) * kStageStride + col_of(slot);
      if constexpr (kBytes == 4) {
        *reinterpret_cast<float2*>(stage + at * kBytes) = weights;
      } else {
        *reinterpret_cast<uint32_t*>(stage + at * kBytes) =
            pack_x2(a.common.number, weights.x, weights.y);
      }
    }
  }
}

/// Eight neighbours of numbers of kBytes each.
template <int kBytes>
__device__ __forceinline__ void store_eight(const PackedArguments& a, const uint8_t* from,
                                            int64_t row, int col) {
  const Common& c = a.common;
  auto* const out = static_cast<uint8_t*>(c.out) + row * c.cols * kBytes;
  if (a.weights.gather == nullptr && c.is_aligned && col + kChunk <= c.cols) {
#pragma unroll
    for (int i = 0; i < kBytes / 2; ++i) {
      reinterpret_cast<uint4*>(out + col * kBytes)[i] = reinterpret_cast<const uint4*>(from)[i];
    }
    return;
  }
  for (int j = 0; j < kChunk && col + j < c.cols; ++j) {
    const int64_t k = a.weights.gather == nullptr ? col + j : a.weights.gather[col + j];
    if constexpr (kBytes == 4) {
      reinterpret_cast<uint32_t*>(out)[k] = reinterpret_cast<const uint32_t*>(from)[j];
    } else {
      reinterpret_cast<uint16_t*>(out)[k] = reinterpret_cast<const uint16_t*>(from)[j];
    }
  }
}

template <int kBytes>
__device__ __forceinline__ void store_tile(const uint8_t* stage, const PackedArguments& a,
                                           uint32_t strip, int tile, int lane) {
  const Common& c = a.common;
  constexpr int kPieces = kTileCols / kChunk;
#pragma unroll
  for (int i = lane; i < kStripRows * kPieces; i += kLanes) {
    const int64_t row = source_row(a.weights.row_order, strip, i / kPieces, c.rows);
    const int col = tile * kTileCols + i % kPieces * kChunk;
    if (row >= c.rows || col >= c.cols) continue;
    const int at = i / kPieces * kStageStride + i % kPieces * kChunk;
    store_eight<kBytes>(a, stage + at * kBytes, row, col);
  }
}

template <int kBits, CodeOrder kOrder, int kBytes>
__global__ void __launch_bounds__(kThreads, 5)
    dequantize_packed(const __grid_constant__ PackedArguments a) {
  __shared__ float values[1 << kBits];
  __shared__ __align__(16) uint8_t stage[kWarps][kStripRows * kStageStride * kBytes];
  begin_operation();
  const uint32_t warp = threadIdx.x / kLanes;
  const uint32_t index = min(blockIdx.x * kWarps + warp, a.warps - 1);
  const int lane = threadIdx.x % kLanes;
  const uint32_t strip = index / a.warps_of_strip;
  const int first = static_cast<int>(index % a.warps_of_strip) * kTiles;
  uint32_t words[kTiles][kBits];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    const int tile = min(first + t, a.weights.tiles - 1);
    const auto* const from = reinterpret_cast<const uint32_t*>(a.weights.codes) +
                             (int64_t{strip} * a.weights.tiles + tile) * (tile_bytes(kBits) / 4);
#pragma unroll
    for (int i = 0; i < kBits; ++i) words[t][i] = from[word_in_tile(lane, i, kBits)];
  }
  fill_values(values, a.common, kBits);
  if (blockIdx.x * kWarps + warp >= a.warps) return;
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    if (first + t >= a.weights.tiles) return;
    decode_tile<kBits, kOrder, kBytes>(stage[warp], a, strip, first + t, lane, words[t], values);
    __syncwarp();
    store_tile<kBytes>(stage[warp], a, strip, first + t, lane);
    __syncwarp();
  }
}

using Canonical = void (*)(CanonicalArguments);
using Packed = void (*)(PackedArguments);

Canonical canonical_kernel(int bits) {
  constexpr Canonical kKernels[] = {&dequantize_canonical<2>, &dequantize_canonical<3>,
                                    &dequantize_canonical<4>, &dequantize_canonical<5>,
                                    &dequantize_canonical<6>, &dequantize_canonical<7>,
                                    &dequantize_canonical<8>};
  return kKernels[bits - 2];
}

template <int kBytes>
Packed packed_kernel(const PackedFormat& format) {
  if (code_order(format) == CodeOrder::kPairs) {
    if (format.bits == 2) return &dequantize_packed<2, CodeOrder::kPairs, kBytes>;
    if (format.bits == 3) return &dequantize_packed<3, CodeOrder::kPairs, kBytes>;
    if (format.bits == 5) return &dequantize_packed<5, CodeOrder::kPairs, kBytes>;
    return &dequantize_packed<4, CodeOrder::kPairs, kBytes>;
  }
  if (format.bits == 2) return &dequantize_packed<2, CodeOrder::kHalves, kBytes>;
  if (format.bits == 3) return &dequantize_packed<3, CodeOrder::kHalves, kBytes>;
  if (format.bits == 4) return &dequantize_packed<4, CodeOrder::kHalves, kBytes>;
  if (format.bits == 5) return &dequantize_packed<5, CodeOrder::kHalves, kBytes>;
  if (format.bits == 6) return &dequantize_packed<6, CodeOrder::kHalves, kBytes>;
  return &dequantize_packed<8, CodeOrder::kHalves, kBytes>;
}

bool is_unsigned(Format element) {
  return element >= Format::kU2 && element <= Format::kU8;
}
bool is_signed(Format element) {
  return element >= Format::kI2 && element <= Format::kI8;
}

/// Of everything but the bytes of `matrix`.
Common common_of(const MatrixView& matrix, Element number, void* out) {
  const Format element = matrix.format.element;
  Common c = {};
  c.out = out;
  c.rows = matrix.rows;
  c.cols = static_cast<int>(matrix.cols);
  c.number = number;
  c.is_aligned = matrix.cols % kChunk == 0;
  c.is_integer = is_unsigned(element) || is_signed(element);
  c.tensor_scale = static_cast<float>(matrix.tensor_scale);
  for (uint32_t code = 0; code < 1u << info(element).bits; ++code) {
    c.values[code] = static_cast<float>(matrix.value_of(code));
  }
  return c;
}

uint32_t ctas_of_row(uint32_t row_chunks) {
  return (row_chunks + kThreads * kChunks - 1) / (kThreads * kChunks);
}

std::optional<ScaleKind> scale_kind_of(Format scale) {
  switch (scale) {
    case Format::kF32:
      return ScaleKind::kF32;
    case Format::kF16:
      return ScaleKind::kF16;
    case Format::kBF16:
      return ScaleKind::kBF16;
    case Format::kE8M0:
      return ScaleKind::kE8M0;
    case Format::kE4M3:
      return ScaleKind::kE4M3;
    case Format::kE4M4:
      return ScaleKind::kE4M4;
    default:
      return std::nullopt;
  }
}

Status check_output(int64_t ctas, Element number, const void* out, const void* codes) {
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

}  // namespace

Status check_dequantize(const MatrixView& matrix, Element number, const void* out) {
  const WeightFormat& format = matrix.format;
  const FormatInfo& element = info(format.element);
  if (!scale_kind_of(format.scale) || element.bits > 8 || element.vector_size > 1 ||
      format.rotation != 0 || format.zero == Zero::kF32 || has_two_levels(format)) {
    return Error{
        "cuda.format",
        "dequantize: expected elements of at most 8 bits with scales of one level, neither "
        "vectors nor rotated nor with offsets of f32 or two levels, found " +
            to_string(format)};
  }
  if (matrix.cols % kChunk != 0 || matrix.group_size() % kChunk != 0 || matrix.cols > kMaxCols ||
      matrix.cols < kChunk) {
    return Error{"cuda.shape", "dequantize: expected columns and groups in 8s up to 2^19, found " +
                                   std::to_string(matrix.cols) + " columns and groups of " +
                                   std::to_string(matrix.group_size())};
  }
  const auto row_chunks = static_cast<uint32_t>(matrix.cols / kChunk);
  return check_output(matrix.rows * ctas_of_row(row_chunks), number, out, matrix.codes.data());
}

Status dequantize(const MatrixView& matrix, Element number, void* out, Stream stream) {
  SUBBYTE_CHECK(check_dequantize(matrix, number, out));
  const WeightFormat& format = matrix.format;
  CanonicalArguments a = {};
  a.common = common_of(matrix, number, out);
  a.codes = reinterpret_cast<const uint8_t*>(matrix.codes.data());
  a.scales = reinterpret_cast<const uint8_t*>(matrix.scales.data());
  a.zeros = reinterpret_cast<const uint8_t*>(matrix.zeros.data());
  a.order = matrix.input_order.empty() ? nullptr : matrix.input_order.data();
  a.row_bytes = matrix.row_bytes();
  a.groups = static_cast<uint32_t>(matrix.groups());
  const int64_t group_chunks = matrix.group_size() / kChunk;
  if (group_chunks > 1) {
    a.groups_of_chunk =
        static_cast<uint32_t>(((int64_t{1} << 32) + group_chunks - 1) / group_chunks);
  }
  a.row_chunks = static_cast<uint32_t>(matrix.cols / kChunk);
  a.ctas_of_row = ctas_of_row(a.row_chunks);
  // Codes of signed integers have an offset, which counts beside zero points, too.
  const bool has_offset_codes = is_signed(format.element);
  a.zero = has_offset_codes ? -a.common.values[0] : 0;
  a.zero_bytes = zero_bytes(format.zero);
  a.zero_kind = !is_offset(format.zero)     ? ZeroKind::kInteger
                : format.zero == Zero::kF16 ? ZeroKind::kF16
                                            : ZeroKind::kBF16;
  if (has_offset_codes && a.zero_kind == ZeroKind::kInteger && a.zero_bytes > 0) {
    a.common.is_integer = false;
    a.zero = 0;
  }
  a.scale = scale_rule(*scale_kind_of(format.scale));
  const int64_t ctas = matrix.rows * a.ctas_of_row;
  if (ctas == 0) return {};
  launch(canonical_kernel(info(format.element).bits), {dim3(static_cast<unsigned>(ctas)), kThreads},
         stream, a);
  return launched("dequantize");
}

Status dequantize(const std::byte* packed, const gpu::PackedFormat& format, double tensor_scale,
                  Element number, void* out, Stream stream) {
  if (format.decoder == gpu::DecoderKind::kVectors) {
    return dequantize_vectors(packed, format, tensor_scale, number, out, stream);
  }
  MatrixView matrix;
  matrix.format = format.source;
  matrix.rows = format.rows;
  matrix.cols = format.cols;
  matrix.tensor_scale = tensor_scale;
  if (format.decoder == gpu::DecoderKind::kCodebook) matrix.codebook = format.codebook;
  PackedArguments a = {};
  a.common = common_of(matrix, number, out);
  a.weights = weight_arguments(packed, format, tensor_scale, Number::kBF16);
  a.groups_per_tile = format.groups_per_tile;
  const int64_t warps_of_strip = (format.tiles + kTiles - 1) / kTiles;
  const int64_t warps = format.strips * warps_of_strip;
  const int64_t ctas = (warps + kWarps - 1) / kWarps;
  SUBBYTE_CHECK(check_output(ctas, number, out, packed));
  a.warps = static_cast<uint32_t>(warps);
  a.warps_of_strip = static_cast<uint32_t>(warps_of_strip);
  const auto kernel = number == Element::kF32 ? packed_kernel<4>(format) : packed_kernel<2>(format);
  launch(kernel, {dim3(static_cast<unsigned>(ctas)), kThreads}, stream, a);
  return launched("dequantize");
}

}  // namespace subbyte::cuda
