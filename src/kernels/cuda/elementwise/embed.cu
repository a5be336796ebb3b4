#include "kernels/cuda/elementwise/embed.h"

#include <algorithm>

#include "formats/rotation.h"
#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/quantize/packed_vectors.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarpCols = kLanes * kRotatedOfLane;

/// What of a packed format the kernel looks at.
struct PackedTable {
  WeightArguments weights;
  int bits;
  CodeOrder order;
  int groups_per_tile;
  bool in_superblocks;
  bool is_codebook;
  float codebook[32];  // of codes, where they have one
};

/// What EmbedCall has for the rows of y.
struct Tokens {
  const int32_t* tokens;
  const int32_t* chosen;

  __device__ int32_t operator[](unsigned i) const {
    const int32_t token = tokens[i];
    return token >= 0 ? token : max(chosen[-2 - token], 0);
  }
};

__global__ void __launch_bounds__(kThreads)
    embed_dense(float* y, Tokens tokens, const void* table, Element element, int64_t cols,
                float factor) {
  begin_operation();
  const int64_t from = int64_t{tokens[blockIdx.x]} * cols;
  const int64_t to = int64_t{blockIdx.x} * cols;
  for (int64_t i = threadIdx.x; i < cols; i += kThreads) {
    y[to + i] = factor * load_element(element, table, from + i);
  }
}

__device__ uint32_t code_of(const PackedTable& t, int64_t strip, int row, int col) {
  const Slot slot = slot_of(row, col % kTileCols);
  const uint32_t* const tile =
      reinterpret_cast<const uint32_t*>(t.weights.codes) +
      (strip * t.weights.tiles + col / kTileCols) * (tile_bytes(t.bits) / 4);
  uint32_t code = 0;
  for (int bit = 0; bit < t.bits; ++bit) {
    const BitPlace place = bit_place(slot, bit, t.bits, t.order);
    code |= (tile[word_in_tile(slot.lane, place.word, t.bits)] >> place.bit & 1) << bit;
  }
  return code;
}

__device__ uint32_t load_code(const uint8_t* p, int64_t i, int bytes) {
  if (bytes == 1) return p[i];
  if (bytes == 2) return reinterpret_cast<const uint16_t*>(p)[i];
  return reinterpret_cast<const uint32_t*>(p)[i];
}

/// Of a group: (element - zero) * scale + offset.
struct Group {
  float scale;
  float zero;
  float offset;
};

__device__ Group group_of(const PackedTable& t, int64_t strip, int row, int tile, int in_tile) {
  const WeightArguments& w = t.weights;
  Group group = {0, static_cast<float>(w.zero), 0};
  if (t.in_superblocks) {
    const int64_t superblock = strip * w.blocks + tile / kSuperblockTiles;
    const float2 numbers = two_levels_at(w.scales + superblock * w.superblock.bytes(), w.superblock,
                                         row, tile % kSuperblockTiles, in_tile);
    group.scale = numbers.x;
    group.offset = numbers.y;
    return group;
  }
  const int block = t.groups_per_tile > 1 ? tile : tile / w.tiles_per_block;
  const int64_t at =
      (((strip * w.blocks + block) * 8 + row % 8) * t.groups_per_tile + in_tile) * 2 + row / 8;
  group.scale = scale_value(load_code(w.scales, at, w.scale.bytes), w.scale);
  if (w.zeros == nullptr) return group;
  if (w.zero_kind == ZeroKind::kInteger) {
    group.zero = static_cast<float>(load_code(w.zeros, at, w.zero_bytes));
  } else {
    const Element kind = w.zero_kind == ZeroKind::kF16 ? Element::kF16 : Element::kBF16;
    group.offset = load_element(kind, w.zeros, at);
  }
  return group;
}

__global__ void __launch_bounds__(kThreads)
    embed_packed(float* y, Tokens tokens, const __grid_constant__ PackedTable t, float factor) {
  begin_operation();
  const WeightArguments& w = t.weights;
  const int32_t token = tokens[blockIdx.x];
  const int64_t strip = token / kStripRows;
  const int row = token % kStripRows;
  const int64_t to = int64_t{blockIdx.x} * w.cols;
  for (int col = threadIdx.x; col < w.cols; col += kThreads) {
    const int tile = col / kTileCols;
    const int in_tile = col % kTileCols / (kTileCols / t.groups_per_tile);
    const Group group = group_of(t, strip, row, tile, in_tile);
    const uint32_t code = code_of(t, strip, row, col);
    const float element = t.is_codebook ? t.codebook[code] : static_cast<float>(code);
    const int64_t input = w.gather != nullptr ? w.gather[col] : col;
    y[to + input] = factor * (fmaf(element - group.zero, group.scale, group.offset) * w.gain);
  }
}

/// Vectors, by a warp for 256 inputs, the longest rotation.
template <int kBits>
__global__ void __launch_bounds__(kThreads)
    embed_vectors(float* y, Tokens tokens, const __grid_constant__ WeightArguments w, int rotation,
                  float rotation_factor, float factor) {
  begin_operation();
  const int32_t token = tokens[blockIdx.x];
  const int lane = threadIdx.x % kLanes;
  for (int first = threadIdx.x / kLanes * kWarpCols; first < w.cols;
       first += kThreads / kLanes * kWarpCols) {
    const int col = first + lane * kRotatedOfLane;
    float weights[kRotatedOfLane] = {};
    if (col < w.cols) {
      load_vectors<kBits>(w, token / kStripRows, token % kStripRows, col, weights);
    }
    rotate_in_warp(weights, lane, rotation, rotation_factor);
#pragma unroll
    for (int i = 0; i < kRotatedOfLane; ++i) {
      if (col + i >= w.cols) break;
      y[int64_t{blockIdx.x} * w.cols + col + i] = factor * (weights[i] * w.gain);
    }
  }
}

}  // namespace

void run_embed(const EmbedCall& call, const void* table, Element element, Stream stream) {
  embed_dense<<<static_cast<unsigned>(call.num_tokens), kThreads, 0, stream>>>(
      call.y, {call.tokens, call.chosen}, table, element, call.cols, call.factor);
}

void run_embed(const EmbedCall& call, const WeightArguments& table, const PackedFormat& format,
               Stream stream) {
  const auto ctas = static_cast<unsigned>(call.num_tokens);
  const Tokens tokens = {call.tokens, call.chosen};
  if (format.decoder == DecoderKind::kVectors) {
    const auto rotation = static_cast<int>(format.source.rotation);
    const auto of_rotation = rotation == 0 ? 1 : static_cast<float>(rotation_factor(rotation));
    const auto kernel = format.bits == 2 ? embed_vectors<2> : embed_vectors<4>;
    kernel<<<ctas, kThreads, 0, stream>>>(call.y, tokens, table, rotation, of_rotation,
                                          call.factor);
    return;
  }
  PackedTable t = {table,
                   format.bits,
                   code_order(format),
                   format.groups_per_tile,
                   in_superblocks(format),
                   format.decoder == DecoderKind::kCodebook,
                   {}};
  std::copy(format.codebook.begin(), format.codebook.end(), t.codebook);
  embed_packed<<<ctas, kThreads, 0, stream>>>(call.y, tokens, t, call.factor);
}

}  // namespace subbyte::cuda
