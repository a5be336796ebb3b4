#include "kernels/cuda/ops/attention.h"

#include "kernels/cuda/ops/attention.cuh"
#include "kernels/cuda/ops/launch.cuh"

namespace subbyte::cuda {
namespace {

/// Scores of 16 rows and kTiles times 8 keys.
template <int kTiles>
__device__ void multiply_keys(float (&scores)[kTiles][4], const float* queries, const float* keys,
                              int head_dim) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int stride = attention_stride(head_dim);
  const float* const q = queries + lane / 4 * stride + lane % 4;
  const float* const k = keys + lane / 4 * stride + lane % 4;
  for (int d = 0; d < head_dim; d += 8) {
    const uint32_t a[4] = {__float_as_uint(q[d]), __float_as_uint(q[8 * stride + d]),
                           __float_as_uint(q[d + 4]), __float_as_uint(q[8 * stride + d + 4])};
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const float* const b = k + 8 * j * stride + d;
      mma_tf32(scores[j], a, __float_as_uint(b[0]), __float_as_uint(b[4]));
    }
  }
}

/// Adds weights times values. The weights of keys 2t and 2t + 1 lie where mma takes those of inputs
/// t and t + 4: so that is the order in which the values are read, and no lane sends anything.
template <int kTiles, int kMaxDim>
__device__ void add_values(SoftmaxPartials<kMaxDim>& partials, const float (&weights)[kTiles][4],
                           const float* values, int head_dim) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int stride = attention_stride(head_dim);
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    const uint32_t a[4] = {__float_as_uint(weights[j][0]), __float_as_uint(weights[j][2]),
                           __float_as_uint(weights[j][1]), __float_as_uint(weights[j][3])};
    const float* const v = values + (8 * j + lane % 4 * 2) * stride + lane / 4;
#pragma unroll
    for (int n = 0; n < kMaxDim / 8; ++n) {
      if (8 * n >= head_dim) break;
      mma_tf32(partials.values[n], a, __float_as_uint(v[8 * n]),
               __float_as_uint(v[stride + 8 * n]));
    }
  }
}

/// The results of a warp's rows.
template <int kMaxDim>
__device__ void store_rows(const AttentionCall& a, const SoftmaxPartials<kMaxDim>& partials,
                           const AttentionRow (&rows)[2]) {
  const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (!rows[h].exists) continue;
    const WithSink sink(a, rows[h].head, partials.largest[h]);
    const float shrink = exp2f(partials.largest[h] - sink.largest);
    const float factor = shrink / (partials.sums[h] * shrink + sink.weight);
    const int64_t at = (rows[h].token * a.heads + rows[h].head) * a.head_dim + 2 * t;
#pragma unroll
    for (int n = 0; n < kMaxDim / 8; ++n) {
      if (8 * n >= a.head_dim) break;
      store_element(a.element, a.y, at + 8 * n, partials.values[n][2 * h] * factor);
      store_element(a.element, a.y, at + 8 * n + 1, partials.values[n][2 * h + 1] * factor);
    }
  }
}

/// Adds the partials of several warps or CTAs in order: row by row, an element for a thread.
/// `from(i)` has those of part i: the largest scores [rows], the sums [rows], the values.
struct RowSum {
  float largest = -INFINITY;
  float sum = 0;
  float value = 0;

  __device__ void add(float most, float weights, float values) {
    const float both = fmaxf(largest, most);
    const float base = both == -INFINITY ? 0 : both;
    const float old_shrink = exp2f(largest - base);
    const float new_shrink = exp2f(most - base);
    largest = both;
    sum = sum * old_shrink + weights * new_shrink;
    value = value * old_shrink + values * new_shrink;
  }

  __device__ void store(const AttentionCall& a, const AttentionRow& row, int d) const {
    const WithSink sink(a, row.head, largest);
    const float shrink = exp2f(largest - sink.largest);
    store_element(a.element, a.y, (row.token * a.heads + row.head) * a.head_dim + d,
                  value * shrink / (sum * shrink + sink.weight));
  }
};

/// A partial in memory: [kSplitRows][head_dim] values, then [kSplitRows] largest scores and sums.
__device__ float* partial_at(const AttentionCall& a, int64_t index) {
  const int64_t floats = int64_t{kSplitRows} * (a.head_dim + 2);
  return a.partials + (index * a.kv_heads + blockIdx.y) * floats;
}

/// Adds the warps of a CTA, each of which has the same rows and other keys. `shared` is as large as
/// the tiles of keys and values.
template <int kMaxDim>
__device__ void add_warps(const AttentionCall& a, const AttentionTask& task,
                          SoftmaxPartials<kMaxDim>& partials, float* shared) {
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int size = kSplitRows * (a.head_dim + 2);
  const int numbers = kSplitRows * a.head_dim;
  __syncthreads();  // the last tile has been read
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = lane / 4 + 8 * h;
    float* const to = shared + warp * size;
#pragma unroll
    for (int n = 0; n < kMaxDim / 8; ++n) {
      if (8 * n >= a.head_dim) break;
      to[row * a.head_dim + 8 * n + lane % 4 * 2] = partials.values[n][2 * h];
      to[row * a.head_dim + 8 * n + lane % 4 * 2 + 1] = partials.values[n][2 * h + 1];
    }
    to[numbers + row] = partials.largest[h];
    to[numbers + kSplitRows + row] = partials.sums[h];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < numbers; i += kAttentionThreads) {
    const int r = i / a.head_dim;
    RowSum sum;
    for (int w = 0; w < kAttentionWarps; ++w) {
      const float* const from = shared + w * size;
      sum.add(from[numbers + r], from[numbers + kSplitRows + r], from[i]);
    }
    if (task.partial < 0) {
      const AttentionRow row(a, task, r);
      if (row.exists) sum.store(a, row, i % a.head_dim);
      continue;
    }
    float* const to = partial_at(a, task.partial);
    to[i] = sum.value;
    if (i % a.head_dim != 0) continue;
    to[numbers + r] = sum.largest;
    to[numbers + kSplitRows + r] = sum.sum;
  }
}

template <bool kIsSplit, int kMaxDim>
__global__ void __launch_bounds__(kAttentionThreads)
    attention(const __grid_constant__ AttentionCall a) {
  using Shape = AttentionShapeOf<kIsSplit>;
  constexpr int kTiles = Shape::kKeysOfWarp / 8;
  extern __shared__ float4 shared_memory[];
  begin_operation();
  const AttentionTask task = kIsSplit ? a.split[blockIdx.x] : a.prompt[blockIdx.x];
  const int stride = attention_stride(a.head_dim);
  float* const queries = reinterpret_cast<float*>(shared_memory);
  float* const keys = queries + Shape::kRows * stride;
  float* const values = keys + Shape::kKeys * stride;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int g = static_cast<int>(threadIdx.x) % kLanes / 4;
  const int first_row = kIsSplit ? 0 : warp * 16;
  const int first_key = kIsSplit ? warp * Shape::kKeysOfWarp : 0;
  const AttentionRow rows[2] = {AttentionRow(a, task, first_row + g),
                                AttentionRow(a, task, first_row + g + 8)};
  const int first_seen = AttentionRow(a, task, 0).first;
  load_queries<Shape::kRows>(queries, a, task);
  SoftmaxPartials<kMaxDim> partials;
  for (int key = task.begin; key < task.end; key += Shape::kKeys) {
    __syncthreads();
    load_keys_and_values<Shape::kKeys>(keys, values, a, task, first_seen, key);
    __syncthreads();
    float scores[kTiles][4] = {};
    multiply_keys<kTiles>(scores, queries + first_row * stride, keys + first_key * stride,
                          a.head_dim);
    partials.template weigh<kTiles>(scores, rows, key + first_key, a.scale * kLog2E);
    add_values<kTiles>(partials, scores, values + first_key * stride, a.head_dim);
  }
  partials.finish();
  if constexpr (kIsSplit) {
    add_warps(a, task, partials, keys);
  } else {
    store_rows(a, partials, rows);
  }
}

/// A CTA for the rows of a merge task and a head of keys.
__global__ void __launch_bounds__(kAttentionThreads)
    merge_splits(const __grid_constant__ AttentionCall a) {
  begin_operation();
  const MergeTask merge = a.merge[blockIdx.x];
  AttentionTask task = {};
  task.first_token = merge.first_token;
  task.num_tokens = merge.num_tokens;
  task.first_row = merge.first_row;
  const int numbers = kSplitRows * a.head_dim;
  for (int i = threadIdx.x; i < numbers; i += kAttentionThreads) {
    const int r = i / a.head_dim;
    const AttentionRow row(a, task, r);
    if (!row.exists) continue;
    RowSum sum;
    for (int s = 0; s < merge.num_splits; ++s) {
      const float* const from = partial_at(a, merge.partial + s);
      sum.add(from[numbers + r], from[numbers + kSplitRows + r], from[i]);
    }
    sum.store(a, row, i % a.head_dim);
  }
}

template <bool kIsSplit, int kMaxDim>
void launch_tasks(const AttentionCall& call, int64_t num_tasks, Stream stream) {
  if (num_tasks == 0) return;
  auto* const kernel = attention<kIsSplit, kMaxDim>;
  const int bytes = attention_shared_bytes<kIsSplit>(call.head_dim);
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) !=
      cudaSuccess) {
    return;
  }
  const dim3 grid(static_cast<unsigned>(num_tasks), static_cast<unsigned>(call.kv_heads));
  launch(kernel, {grid, kAttentionThreads, bytes}, stream, call);
}

template <int kMaxDim>
void launch_both(const AttentionCall& call, Stream stream) {
  launch_tasks<false, kMaxDim>(call, call.num_prompt, stream);
  launch_tasks<true, kMaxDim>(call, call.num_split, stream);
}

}  // namespace

void run_attention(const AttentionCall& call, Stream stream) {
  if (call.head_dim <= 64) {
    launch_both<64>(call, stream);
  } else if (call.head_dim <= 128) {
    launch_both<128>(call, stream);
  } else {
    launch_both<256>(call, stream);
  }
  if (call.num_merge == 0) return;
  const dim3 grid(static_cast<unsigned>(call.num_merge), static_cast<unsigned>(call.kv_heads));
  launch(merge_splits, {grid, kAttentionThreads}, stream, call);
}

}  // namespace subbyte::cuda
