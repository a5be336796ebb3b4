#include "kernels/cuda/ops/embed.h"

#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/ops/elements.cuh"
#include "kernels/cuda/ops/launch.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;

/// What of a packed format the kernel looks at.
struct PackedTable {
  WeightArguments weights;
  int bits;
  CodeOrder order;
  int groups_per_tile;
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
    const int block = t.groups_per_tile > 1 ? tile : tile / w.tiles_per_block;
    const int in_tile = col % kTileCols / (kTileCols / t.groups_per_tile);
    const int64_t at =
        (((strip * w.blocks + block) * 8 + row % 8) * t.groups_per_tile + in_tile) * 2 + row / 8;
    const float scale = scale_value(load_code(w.scales, at, w.scale.bytes), w.scale);
    const float element = static_cast<float>(code_of(t, strip, row, col));
    float zero = static_cast<float>(w.zero);
    float offset = 0;
    if (w.zeros != nullptr && w.zero_kind == ZeroKind::kInteger) {
      zero = static_cast<float>(load_code(w.zeros, at, w.zero_bytes));
    } else if (w.zeros != nullptr) {
      const Element kind = w.zero_kind == ZeroKind::kF16 ? Element::kF16 : Element::kBF16;
      offset = load_element(kind, w.zeros, at);
    }
    const int64_t input = w.gather != nullptr ? w.gather[col] : col;
    y[to + input] = factor * (fmaf(element - zero, scale, offset) * w.gain);
  }
}

}  // namespace

void run_embed(const EmbedCall& call, const void* table, Element element, Stream stream) {
  embed_dense<<<static_cast<unsigned>(call.num_tokens), kThreads, 0, stream>>>(
      call.y, {call.tokens, call.chosen}, table, element, call.cols, call.factor);
}

void run_embed(const EmbedCall& call, const WeightArguments& table, const PackedFormat& format,
               Stream stream) {
  const PackedTable t = {table, format.bits, code_order(format), format.groups_per_tile};
  embed_packed<<<static_cast<unsigned>(call.num_tokens), kThreads, 0, stream>>>(
      call.y, {call.tokens, call.chosen}, t, call.factor);
}

}  // namespace subbyte::cuda
