#pragma once
// The kernel of attention.h: of prompts and of split keys, over the cache or over keys and values
// that were made of latents.

#include "kernels/cuda/attention/attention_merge.cuh"
#include "kernels/cuda/attention/attention_tiles.cuh"
#include "kernels/cuda/common/launch.cuh"

namespace subbyte::cuda {

/// The queries of 16 rows: in registers, where these hold those of a head beside its values.
template <int kMaxDim, int kMaxValue>
class Queries {
 public:
  static constexpr bool kAreKept = kMaxDim + kMaxValue <= 320;

  /// Once they are in shared memory.
  __device__ void load(uint32_t rows, int head_dim) {
    address_ = tile_16x16(rows, tile_stride(head_dim), 0, 0);
    if constexpr (kAreKept) {
#pragma unroll
      for (int d = 0; d < kMaxDim / 16; ++d) {
        if (16 * d < head_dim) ldmatrix_x4(kept_[d], address_ + 16 * d * 2);
      }
    }
  }

  /// Elements [16 d, 16 d + 16).
  __device__ void get(int d, uint32_t (&a)[4]) const {
    if constexpr (kAreKept) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = kept_[d][i];
    } else {
      ldmatrix_x4(a, address_ + 16 * d * 2);
    }
  }

 private:
  uint32_t address_ = 0;
  uint32_t kept_[kAreKept ? kMaxDim / 16 : 1][4];
};

/// Scores of 16 rows and kTiles times 8 keys.
template <class Number, int kMaxDim, int kMaxValue, int kTiles>
__device__ void multiply_keys(float (&scores)[kTiles][4],
                              const Queries<kMaxDim, kMaxValue>& queries, uint32_t keys,
                              int head_dim) {
  const int stride = tile_stride(head_dim);
  const uint32_t address = tile_16x16(keys, stride, 0, 0);
#pragma unroll
  for (int d = 0; d < kMaxDim / 16; ++d) {
    if (16 * d >= head_dim) break;
    uint32_t a[4];
    queries.get(d, a);
#pragma unroll
    for (int j = 0; j < kTiles / 2; ++j) {
      uint32_t b[4];
      ldmatrix_x4(b, address + (16 * j * stride + 16 * d) * 2);
      mma_16x16<Number>(scores[2 * j], scores[2 * j + 1], a, b);
    }
  }
}

/// Adds weights times values, `dim` of a row.
template <class Number, int kMaxDim, int kTiles>
__device__ void add_values(SoftmaxPartials<kMaxDim>& partials, const float (&weights)[kTiles][4],
                           uint32_t values, int dim) {
  const int stride = tile_stride(dim);
  const uint32_t address = tile_16x16(values, stride, 0, 0);
#pragma unroll
  for (int j = 0; j < kTiles / 2; ++j) {
    uint32_t a[4];
    pack_weights<Number>(a, weights, j);
#pragma unroll
    for (int n = 0; n < kMaxDim / 16; ++n) {
      if (16 * n >= dim) break;
      uint32_t b[4];
      ldmatrix_x4_trans(b, address + (16 * j * stride + 16 * n) * 2);
      mma_16x16_trans<Number>(partials.values[2 * n], partials.values[2 * n + 1], a, b);
    }
  }
}

/// Scores of the numbers of keys into those of their elements.
template <int kTiles, class Tiles>
__device__ void scale_keys(float (&scores)[kTiles][4], const Tiles& tiles, int first_key) {
  const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float factor = tiles.key_factor(first_key + 8 * j + 2 * t + e);
      scores[j][e] *= factor;
      scores[j][2 + e] *= factor;
    }
  }
}

/// Of expanded keys a CTA has half a task.
template <class Cache, bool kIsSplit>
__device__ AttentionTask own_task(const AttentionCall& a) {
  if constexpr (kIsSplit) return a.split[blockIdx.x];
  if constexpr (!Cache::kIsExpanded) return a.prompt[blockIdx.x];
  AttentionTask task = a.prompt[blockIdx.x / 2];
  task.first_row += static_cast<int>(blockIdx.x) % 2 * kPromptRows;
  task.end = min(task.end, task.position + task.first_row + kPromptRows);
  return task;
}
static_assert(kExpandedRows == 2 * kPromptRows);

/// kIsExact: keys have kMaxDim elements, and values kMaxValue of them for a CTA.
template <class Cache, bool kIsSplit, int kMaxDim, int kMaxValue, bool kIsExact>
__global__ void __launch_bounds__(kAttentionThreads)
    attention(const __grid_constant__ AttentionCall a) {
  using Number = typename Cache::Number;
  using Tile = AttentionTile<kIsSplit, kMaxDim, kMaxValue>;
  constexpr int kTiles = Tile::kKeysOfWarp / 8;
  begin_operation();
  extern __shared__ uint4 shared_memory[];
  const AttentionTask task = own_task<Cache, kIsSplit>(a);
  if (task.num_tokens == 0) return;
  const int head_dim = kIsExact ? kMaxDim : a.head_dim;
  const int stride = tile_stride(head_dim);
  const int values = kIsExact ? kMaxValue : a.value_dim() / a.value_parts();
  const uint32_t queries_at = shared_address(shared_memory);
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int g = static_cast<int>(threadIdx.x) % kLanes / 4;
  const int first_row = kIsSplit ? 0 : warp * 16;
  const int first_key = kIsSplit ? warp * Tile::kKeysOfWarp : 0;
  const AttentionRow rows[2] = {AttentionRow(a, task, first_row + g),
                                AttentionRow(a, task, first_row + g + 8)};
  const SeenByAll seen(a, task, first_row);
  KeyTiles<Cache, kIsSplit, kMaxDim, kMaxValue> tiles(a, task, head_dim, values,
                                                      queries_at + Tile::kRows * stride * 2);
  copy_queries<Number, Tile::kRows>(queries_at, a, task, head_dim);
#pragma unroll
  for (int i = 0; i < Tile::kStages - 1; ++i) tiles.copy_next();
  Queries<kMaxDim, kMaxValue> queries;
  SoftmaxPartials<kMaxValue> partials;
  for (int key = task.begin; key < task.end; key += Tile::kKeys) {
    tiles.copy_next();
    const uint32_t tile = tiles.arrived();
    const uint32_t keys = tile + first_key * stride * 2;
    if (key == task.begin) queries.load(queries_at + first_row * stride * 2, head_dim);
    float scores[kTiles][4] = {};
    multiply_keys<Number, kMaxDim>(scores, queries, keys, head_dim);
    if constexpr (Cache::kHasScales) scale_keys(scores, tiles, first_key);
    if (a.cap > 0) cap_scores(scores, a.scale, a.cap);
    const float scale = (a.cap > 0 ? 1 : a.scale) * kLog2E;
    const int from = key + first_key;
    if (seen.has(from, 8 * kTiles)) {
      partials.template update_softmax<kTiles, false>(scores, rows, from, scale);
    } else {
      partials.template update_softmax<kTiles, true>(scores, rows, from, scale);
    }
    add_values<Number>(partials, scores,
                       tile + tiles.value_offset() + first_key * tile_stride(values) * 2, values);
    __syncthreads();  // the next copy writes to what was read here
  }
  partials.finish();
  if constexpr (kIsSplit) {
    merge_warps(a, task, partials, reinterpret_cast<float*>(shared_memory));
  } else {
    store_rows(a, partials, rows);
  }
}

template <class Cache, bool kIsSplit, int kMaxDim, int kMaxValue, bool kIsExact>
void launch_tasks(const AttentionCall& call, int64_t num_tasks, Stream stream) {
  const int values = call.value_dim() / call.value_parts();
  const int bytes =
      attention_shared_bytes<Cache, kIsSplit, kMaxDim, kMaxValue>(call.head_dim, values);
  const dim3 grid(static_cast<unsigned>(num_tasks), static_cast<unsigned>(call.kv_heads),
                  static_cast<unsigned>(call.value_parts()));
  launch_large<attention<Cache, kIsSplit, kMaxDim, kMaxValue, kIsExact>>(
      {grid, kAttentionThreads, bytes}, stream, call);
}

}  // namespace subbyte::cuda
