// Dequantizing canonical rows: a lane has 8 neighbouring codes.

#include <string>

#include "kernels/cuda/quantize/dequantize.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = kDequantizeThreads;
constexpr int kChunk = kDequantizeChunk;
constexpr int64_t kMaxCols = int64_t{1} << 19;  // whose groups a product of 32 bits finds
constexpr int kChunks = 4;                      // of a lane, loaded before the first is used

struct CanonicalArguments {
  DequantizeCommon common;
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
  uint32_t superblocks;  // of a row whose scales have two levels; 0: one level
  int scale_integer;     // zero points of the integers of two levels
  int offset_integer;
};

/// The integer of a group below the factor of its superblock.
__device__ __forceinline__ uint32_t load_two_levels(const CanonicalArguments& a,
                                                    const uint8_t* numbers, int64_t row,
                                                    uint32_t group, uint32_t chunk) {
  const uint8_t* const integers = numbers + row * (a.groups + int64_t{2} * a.superblocks);
  const uint8_t* const factor = integers + a.groups + chunk / (kSuperblock / kChunk) * 2;
  return integers[group] | factor[0] << 8 | factor[1] << 16;
}

__device__ __forceinline__ float two_levels_of(uint32_t stored, int zero) {
  return gpu::F16::to_float(static_cast<uint16_t>(stored >> 8)) *
         static_cast<float>(static_cast<int>(stored & 0xff) - zero);
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
                                             const Affine& affine, const DequantizeCommon& c,
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
  const DequantizeCommon& c = a.common;
  const int64_t to = row * c.cols;
  if (a.order == nullptr) return store_8(c.number, c.out, to + k, weights);
#pragma unroll
  for (int j = 0; j < kChunk; ++j) {
    store_element(c.number, c.out, to + a.order[k + j], weights[j]);
  }
}

__device__ __forceinline__ StoredAffine stored_affine(const CanonicalArguments& a, int64_t row,
                                                      uint32_t group, uint32_t chunk) {
  if (a.superblocks == 0) {
    return load_affine(a.scales, a.zeros, row * a.groups + group, a.scale.bytes, a.zero_bytes);
  }
  return {load_two_levels(a, a.scales, row, group, chunk),
          a.zero_bytes == 0 ? 0 : load_two_levels(a, a.zeros, row, group, chunk)};
}

__device__ __forceinline__ Affine affine_of(const StoredAffine& stored,
                                            const CanonicalArguments& a) {
  if (a.superblocks == 0) {
    return affine_of(stored, a.scale, a.zero, a.zero_bytes, a.zero_kind);
  }
  return {a.zero, two_levels_of(stored.scale, a.scale_integer),
          a.zero_bytes == 0 ? -0.0f : two_levels_of(stored.zero, a.offset_integer)};
}

template <int kBits>
__global__ void __launch_bounds__(kThreads)
    dequantize_canonical(const __grid_constant__ CanonicalArguments a) {
  __shared__ float values[1 << kBits];
  begin_operation();
  const DequantizeCommon& c = a.common;
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
    stored[i] = stored_affine(a, row, group, chunk);
  }
  fill_values(values, c, kBits);
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const uint32_t chunk = first + i * kThreads;
    if (chunk >= a.row_chunks) return;
    const Affine affine = affine_of(stored[i], a);
    float weights[kChunk];
    decode_chunk<kBits>(weights, codes[i], affine, c, values);
    store_chunk(a, row, int64_t{chunk} * kChunk, weights);
  }
}

using Canonical = void (*)(CanonicalArguments);

Canonical canonical_kernel(int bits) {
  constexpr Canonical kKernels[] = {&dequantize_canonical<2>, &dequantize_canonical<3>,
                                    &dequantize_canonical<4>, &dequantize_canonical<5>,
                                    &dequantize_canonical<6>, &dequantize_canonical<7>,
                                    &dequantize_canonical<8>};
  return kKernels[bits - 2];
}

uint32_t ctas_of_row(uint32_t row_chunks) {
  return (row_chunks + kThreads * kChunks - 1) / (kThreads * kChunks);
}

/// Scales have two levels and what is beside them has one, or the other way round.
bool are_mixed_levels(const WeightFormat& format) {
  const bool are_two = has_two_levels(format.scale);
  return format.zero == Zero::kNone ? false : has_two_levels(format.zero) != are_two;
}

}  // namespace

Status check_dequantize(const MatrixView& matrix, Element number, const void* out) {
  const WeightFormat& format = matrix.format;
  const FormatInfo& element = info(format.element);
  if (!gpu::scale_kind_of(format.scale) || element.bits > 8 || element.vector_size > 1 ||
      format.rotation != 0 || format.zero == Zero::kF32 || are_mixed_levels(format)) {
    return Error{
        "cuda.format",
        "dequantize: expected elements of at most 8 bits with scales, neither vectors nor rotated "
        "nor with offsets of f32, or of other levels than scales, found " +
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
  a.scale = scale_rule(*gpu::scale_kind_of(format.scale));
  if (has_two_levels(format.scale)) {
    a.superblocks = static_cast<uint32_t>(num_superblocks(matrix.cols));
    a.scale_integer = static_cast<int>(-info(format.scale).min);
    if (has_two_levels(format.zero)) {
      a.offset_integer = static_cast<int>(-info(offset_format(format.zero)).min);
    }
  }
  const int64_t ctas = matrix.rows * a.ctas_of_row;
  if (ctas == 0) return {};
  launch(canonical_kernel(info(format.element).bits), {dim3(static_cast<unsigned>(ctas)), kThreads},
         stream, a);
  return launched("dequantize");
}

}  // namespace subbyte::cuda
