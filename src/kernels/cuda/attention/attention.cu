#include "kernels/cuda/attention/attention.h"

#include "kernels/cuda/attention/attention_merge.cuh"
#include "kernels/cuda/attention/attention_tiles.cuh"
#include "kernels/cuda/attention/latent.h"
#include "kernels/cuda/common/launch.cuh"

namespace subbyte::cuda {
namespace {

/// The queries of 16 rows: in registers, where these hold those of a head beside its values.
template <int kMaxDim>
class Queries {
 public:
  static constexpr bool kAreKept = kMaxDim <= 128;

  /// Once they are in shared memory.
  __device__ void load(uint32_t rows, int head_dim) {
    address_ = block_address(rows, row_stride(head_dim));
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
template <class Number, int kMaxDim, int kTiles>
__device__ void multiply_keys(float (&scores)[kTiles][4], const Queries<kMaxDim>& queries,
                              uint32_t keys, int head_dim) {
  const int stride = row_stride(head_dim);
  const uint32_t address = block_address(keys, stride);
#pragma unroll
  for (int d = 0; d < kMaxDim / 16; ++d) {
    if (16 * d >= head_dim) break;
    uint32_t a[4];
    queries.get(d, a);
#pragma unroll
    for (int j = 0; j < kTiles / 2; ++j) {
      uint32_t b[4];
      ldmatrix_x4(b, address + (16 * j * stride + 16 * d) * 2);
      mma<Number>(scores[2 * j], a, b[0], b[2]);
      mma<Number>(scores[2 * j + 1], a, b[1], b[3]);
    }
  }
}

/// Adds weights times values, `dim` of a row. What a lane has of the weights of 16 keys is what mma
/// takes from it.
template <class Number, int kMaxDim, int kTiles>
__device__ void add_values(SoftmaxPartials<kMaxDim>& partials, const float (&weights)[kTiles][4],
                           uint32_t values, int dim) {
  const int stride = row_stride(dim);
  const uint32_t address = block_address(values, stride);
#pragma unroll
  for (int j = 0; j < kTiles / 2; ++j) {
    const uint32_t a[4] = {Number::pack_x2(weights[2 * j][0], weights[2 * j][1]),
                           Number::pack_x2(weights[2 * j][2], weights[2 * j][3]),
                           Number::pack_x2(weights[2 * j + 1][0], weights[2 * j + 1][1]),
                           Number::pack_x2(weights[2 * j + 1][2], weights[2 * j + 1][3])};
#pragma unroll
    for (int n = 0; n < kMaxDim / 16; ++n) {
      if (16 * n >= dim) break;
      uint32_t b[4];
      ldmatrix_x4_trans(b, address + (16 * j * stride + 16 * n) * 2);
      mma<Number>(partials.values[2 * n], a, b[0], b[1]);
      mma<Number>(partials.values[2 * n + 1], a, b[2], b[3]);
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

/// Scores s, times `scale`, as cap * tanh(s / cap).
template <int kTiles>
__device__ void cap_scores(float (&scores)[kTiles][4], float scale, float cap) {
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) scores[j][e] = cap * tanhf(scores[j][e] * scale / cap);
  }
}

/// kIsExact: heads have kMaxDim elements.
template <class Cache, bool kIsSplit, int kMaxDim, bool kIsExact>
__global__ void __launch_bounds__(kAttentionThreads)
    attention(const __grid_constant__ AttentionCall a) {
  using Number = typename Cache::Number;
  using Tile = AttentionTile<kIsSplit, kMaxDim>;
  constexpr int kTiles = Tile::kKeysOfWarp / 8;
  begin_operation();
  extern __shared__ uint4 shared_memory[];
  const AttentionTask task = kIsSplit ? a.split[blockIdx.x] : a.prompt[blockIdx.x];
  if (task.num_tokens == 0) return;
  const int head_dim = kIsExact ? kMaxDim : a.head_dim;
  const int stride = row_stride(head_dim);
  const int values = head_dim / Tile::kParts;
  const uint32_t queries_at = shared_address(shared_memory);
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int g = static_cast<int>(threadIdx.x) % kLanes / 4;
  const int first_row = kIsSplit ? 0 : warp * 16;
  const int first_key = kIsSplit ? warp * Tile::kKeysOfWarp : 0;
  const AttentionRow rows[2] = {AttentionRow(a, task, first_row + g),
                                AttentionRow(a, task, first_row + g + 8)};
  const SeenByAll seen(a, task, first_row);
  KeyTiles<Cache, kIsSplit, kMaxDim> tiles(a, task, head_dim,
                                           queries_at + Tile::kRows * stride * 2);
  copy_queries<Number, Tile::kRows>(queries_at, a, task, head_dim);
#pragma unroll
  for (int i = 0; i < Tile::kStages - 1; ++i) tiles.copy_next();
  Queries<kMaxDim> queries;
  SoftmaxPartials<kMaxDim / Tile::kParts> partials;
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
                       tile + tiles.value_offset() + first_key * row_stride(values) * 2, values);
    __syncthreads();  // the next copy writes to what was read here
  }
  partials.finish();
  if constexpr (kIsSplit) {
    merge_warps(a, task, partials, reinterpret_cast<float*>(shared_memory));
  } else {
    store_rows(a, partials, rows);
  }
}

/// A CTA for the rows of a merge task and a head of keys.
__global__ void __launch_bounds__(kAttentionThreads)
    merge_splits(const __grid_constant__ AttentionCall a) {
  begin_operation();
  const MergeTask merge = a.merge[blockIdx.x];
  if (merge.num_tokens == 0) return;
  AttentionTask task = {};
  task.first_token = merge.first_token;
  task.num_tokens = merge.num_tokens;
  task.first_row = merge.first_row;
  merge_partials(a, task, partial_at(a, merge.partial),
                 int64_t{a.kv_heads} * a.value_parts() * partial_floats(ValuePart(a).dim),
                 merge.num_splits, nullptr);
}

template <class Cache, bool kIsSplit, int kMaxDim, bool kIsExact>
void launch_tasks(const AttentionCall& call, int64_t num_tasks, Stream stream) {
  static SharedMemoryLimit limit;
  auto* const kernel = attention<Cache, kIsSplit, kMaxDim, kIsExact>;
  const int bytes = attention_shared_bytes<Cache, kIsSplit, kMaxDim>(call.head_dim);
  if (!limit.allow(kernel, bytes)) return;
  const dim3 grid(static_cast<unsigned>(num_tasks), static_cast<unsigned>(call.kv_heads),
                  static_cast<unsigned>(call.value_parts()));
  launch(kernel, {grid, kAttentionThreads, bytes}, stream, call);
}

template <class Cache, bool kIsSplit>
void launch_for_dim(const AttentionCall& call, int64_t num_tasks, Stream stream) {
  if (num_tasks == 0) return;
  if (call.values_in_keys > 0) return run_latent_tasks(call, kIsSplit, num_tasks, stream);
  if (call.head_dim == 64) {
    launch_tasks<Cache, kIsSplit, 64, true>(call, num_tasks, stream);
  } else if (call.head_dim == 128) {
    launch_tasks<Cache, kIsSplit, 128, true>(call, num_tasks, stream);
  } else if (call.head_dim < 128) {
    launch_tasks<Cache, kIsSplit, 128, false>(call, num_tasks, stream);
  } else if (call.head_dim <= kMaxValues) {
    launch_tasks<Cache, kIsSplit, 256, false>(call, num_tasks, stream);
  } else {
    launch_tasks<Cache, kIsSplit, 512, false>(call, num_tasks, stream);
  }
}

void launch_merge(const AttentionCall& call, int64_t num_tasks, Stream stream) {
  if (num_tasks == 0) return;
  const dim3 grid(static_cast<unsigned>(num_tasks), static_cast<unsigned>(call.kv_heads),
                  static_cast<unsigned>(call.value_parts()));
  launch(merge_splits, {grid, kAttentionThreads}, stream, call);
}

template <class Cache>
void launch_all(const AttentionCall& call, Stream stream) {
  launch_for_dim<Cache, false>(call, call.num_prompt, stream);
  AttentionCall slice = call;
  for (const auto& [num_split, num_merge] : call.slices) {
    launch_for_dim<Cache, true>(slice, num_split, stream);
    launch_merge(slice, num_merge, stream);
    slice.split += num_split;
    slice.merge += num_merge;
  }
}

template <class Cache, int kMaxDim>
int cta_bytes(int head_dim) {
  return std::max(attention_shared_bytes<Cache, false, kMaxDim>(head_dim),
                  attention_shared_bytes<Cache, true, kMaxDim>(head_dim));
}

template <class Cache>
int cta_bytes(int head_dim) {
  if (head_dim == 64) return cta_bytes<Cache, 64>(head_dim);
  if (head_dim <= 128) return cta_bytes<Cache, 128>(head_dim);
  return head_dim <= kMaxValues ? cta_bytes<Cache, 256>(head_dim) : cta_bytes<Cache, 512>(head_dim);
}

}  // namespace

int attention_cta_bytes(Element cache, int head_dim) {
  return cache == Element::kE4M3 ? cta_bytes<E4m3Cache<gpu::F16>>(head_dim)
                                 : cta_bytes<NumberCache<gpu::F16>>(head_dim);
}

void run_attention(const AttentionCall& call, Stream stream) {
  if (call.cache.element == Element::kF16) {
    launch_all<NumberCache<gpu::F16>>(call, stream);
  } else if (call.cache.element == Element::kBF16) {
    launch_all<NumberCache<gpu::BF16>>(call, stream);
  } else if (call.element == Element::kF16) {
    launch_all<E4m3Cache<gpu::F16>>(call, stream);
  } else {
    launch_all<E4m3Cache<gpu::BF16>>(call, stream);
  }
}

}  // namespace subbyte::cuda
