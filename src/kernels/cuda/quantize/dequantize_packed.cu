// Dequantizing packed tiles: a warp has a tile, which goes through shared memory to whole lines of
// the rows.

#include "kernels/cuda/quantize/dequantize.cuh"
#include "kernels/cuda/quantize/dequantize_vectors.h"
#include "kernels/cuda/weight_arguments.h"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = kDequantizeThreads;
constexpr int kChunk = kDequantizeChunk;

struct PackedArguments {
  DequantizeCommon common;
  WeightArguments weights;
  int groups_per_tile;
  bool in_superblocks;
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

__device__ __noinline__ Affine two_level_affine(const WeightArguments& w, uint32_t strip, int row,
                                                int tile, int group) {
  const int64_t superblock = int64_t{strip} * w.blocks + tile / kSuperblockTiles;
  const float2 numbers = two_levels_at(w.scales + superblock * w.superblock.bytes(), w.superblock,
                                       row, tile % kSuperblockTiles, group);
  return {static_cast<float>(w.zero), numbers.x, numbers.y};
}

/// Of row `row` of a strip and a group of a tile.
__device__ __forceinline__ Affine affine_at(const PackedArguments& a, uint32_t strip, int row,
                                            int tile, int group) {
  const WeightArguments& w = a.weights;
  if (a.in_superblocks) return two_level_affine(w, strip, row, tile, group);
  const int zero_bytes = w.zeros == nullptr ? 0 : w.zero_bytes;
  const int block = a.groups_per_tile > 1 ? tile : tile / w.tiles_per_block;
  const int64_t pair =
      ((int64_t{strip} * w.blocks + block) * 8 + row % 8) * a.groups_per_tile + group;
  return affine_of(load_affine(w.scales, w.zeros, 2 * pair + row / 8, w.scale.bytes, zero_bytes),
                   w.scale, static_cast<float>(w.zero), zero_bytes, w.zero_kind);
}

/// The 32 weights of a lane, to its places in the tile, as numbers of kBytes.
template <int kBits, CodeOrder kOrder, int kBytes>
__device__ __forceinline__ void decode_tile(uint8_t* stage, const PackedArguments& a,
                                            uint32_t strip, int tile, int lane,
                                            const uint32_t (&words)[kBits], const float* values) {
  Affine affine[2];  // of rows g and g + 8
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if (step * a.groups_per_tile % kSteps == 0) {  // a group begins
      const int group = step * a.groups_per_tile / kSteps;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        affine[half] = affine_at(a, strip, lane / 4 + 8 * half, tile, group);
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
  const DequantizeCommon& c = a.common;
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
  const DequantizeCommon& c = a.common;
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

using Packed = void (*)(PackedArguments);

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

}  // namespace

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
  a.in_superblocks = in_superblocks(format);
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
