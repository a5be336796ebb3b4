#include "kernels/cuda/ops/attention.h"

#include <array>
#include <atomic>

#include "kernels/cuda/ops/attention.cuh"
#include "kernels/cuda/ops/attention_prompt.h"
#include "kernels/cuda/ops/launch.cuh"

namespace subbyte::cuda {
namespace {

static_assert(kMostSplits <= kLanes, "a lane has the factor of a split");

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

/// A partial in memory: [kSplitRows][head_dim] values, then [kSplitRows] largest scores and sums.
__host__ __device__ constexpr int partial_floats(int head_dim) {
  return kSplitRows * (head_dim + 2);
}

__device__ float* partial_at(const AttentionCall& a, int64_t index) {
  return a.partials + (index * a.kv_heads + blockIdx.y) * partial_floats(a.head_dim);
}

/// Rows of a task that exist.
__device__ int rows_of(const AttentionCall& a, const AttentionTask& task) {
  return min(kSplitRows, task.num_tokens * (a.heads / a.kv_heads) - task.first_row);
}

/// How `count` partials of one row are added, by one warp: lane i has the factor of partial i.
struct MergedRow {
  float largest;
  float sum;
  float factor;

  __device__ MergedRow(const float* partials, int64_t stride, int count, int row, int head_dim) {
    const int lane = static_cast<int>(threadIdx.x) % kLanes;
    const float* const end = partials + lane * stride + kSplitRows * head_dim;
    const float most = lane < count ? end[row] : -INFINITY;
    const float weights = lane < count ? end[kSplitRows + row] : 0;
    largest = most;
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, distance));
    }
    factor = exp2f(most - (largest == -INFINITY ? 0 : largest));
    sum = sum_of_warp(weights * factor);
  }

  /// Element d of the values, partial after partial.
  __device__ float value(const float* partials, int64_t stride, int count, int row, int head_dim,
                         int d) const {
    float sum_of_values = 0;
    for (int i = 0; i < count; ++i) {
      const float of_partial = __shfl_sync(~0u, factor, i);
      const float value = d < head_dim ? partials[i * stride + row * head_dim + d] : 0;
      sum_of_values = fmaf(value, of_partial, sum_of_values);
    }
    return sum_of_values;
  }
};

/// Merges `count` partials of the rows of a task, a warp a row at a time: into the results, or into
/// one more partial.
__device__ void merge_partials(const AttentionCall& a, const AttentionTask& task,
                               const float* partials, int64_t stride, int count, float* to) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int rows = rows_of(a, task);
  for (int r = static_cast<int>(threadIdx.x) / kLanes; r < rows; r += kAttentionWarps) {
    const MergedRow merged(partials, stride, count, r, a.head_dim);
    const AttentionRow row(a, task, r);
    const WithSink sink(a, row.head, merged.largest);
    const float shrink = exp2f(merged.largest - sink.largest);
    const float factor = shrink / (merged.sum * shrink + sink.weight);
    const int64_t at = (row.token * a.heads + row.head) * a.head_dim;
    for (int d = lane; d - lane < a.head_dim; d += kLanes) {
      const float value = merged.value(partials, stride, count, r, a.head_dim, d);
      if (d >= a.head_dim) continue;
      if (to == nullptr) {
        store_element(a.element, a.y, at + d, value * factor);
      } else {
        to[r * a.head_dim + d] = value;
      }
    }
    if (to == nullptr || lane != 0) continue;
    to[kSplitRows * a.head_dim + r] = merged.largest;
    to[kSplitRows * a.head_dim + kSplitRows + r] = merged.sum;
  }
}

/// Merges the warps of a CTA, each of which has the same rows and other keys. `shared` is as large
/// as the tiles of keys and values.
template <int kMaxDim>
__device__ void merge_warps(const AttentionCall& a, const AttentionTask& task,
                            SoftmaxPartials<kMaxDim>& partials, float* shared) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int size = partial_floats(a.head_dim);
  float* const of_warp = shared + static_cast<int>(threadIdx.x) / kLanes * size;
  const int rows = rows_of(a, task);
  __syncthreads();  // the last tile has been read
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = lane / 4 + 8 * h;
    if (row >= rows) continue;
#pragma unroll
    for (int n = 0; n < kMaxDim / 8; ++n) {
      if (8 * n >= a.head_dim) break;
      float* const to = of_warp + row * a.head_dim + 8 * n + lane % 4 * 2;
      to[0] = partials.values[n][2 * h];
      to[1] = partials.values[n][2 * h + 1];
    }
    of_warp[kSplitRows * a.head_dim + row] = partials.largest[h];
    of_warp[kSplitRows * a.head_dim + kSplitRows + row] = partials.sums[h];
  }
  __syncthreads();
  merge_partials(a, task, shared, size, kAttentionWarps,
                 task.partial < 0 ? nullptr : partial_at(a, task.partial));
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
    merge_warps(a, task, partials, keys);
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
  merge_partials(a, task, partial_at(a, merge.partial),
                 int64_t{a.kv_heads} * partial_floats(a.head_dim), merge.num_splits, nullptr);
}

/// Sets the attribute once for each device and size larger than the ones before.
template <bool kIsSplit, int kMaxDim>
bool allow_shared_memory(int bytes) {
  constexpr int kDevices = 64;
  static std::array<std::atomic<int>, kDevices> allowed;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return false;
  const bool is_known = device < kDevices;
  if (is_known && allowed[device].load(std::memory_order_relaxed) >= bytes) return true;
  if (cudaFuncSetAttribute(attention<kIsSplit, kMaxDim>,
                           cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) != cudaSuccess) {
    return false;
  }
  if (is_known) allowed[device].store(bytes, std::memory_order_relaxed);
  return true;
}

template <bool kIsSplit, int kMaxDim>
void launch_tasks(const AttentionCall& call, int64_t num_tasks, Stream stream) {
  if (num_tasks == 0) return;
  auto* const kernel = attention<kIsSplit, kMaxDim>;
  const int bytes = attention_shared_bytes<kIsSplit>(call.head_dim);
  if (!allow_shared_memory<kIsSplit, kMaxDim>(bytes)) return;
  const dim3 grid(static_cast<unsigned>(num_tasks), static_cast<unsigned>(call.kv_heads));
  launch(kernel, {grid, kAttentionThreads, bytes}, stream, call);
}

void launch_merge(const AttentionCall& call, int64_t num_tasks, Stream stream) {
  if (num_tasks == 0) return;
  const dim3 grid(static_cast<unsigned>(num_tasks), static_cast<unsigned>(call.kv_heads));
  launch(merge_splits, {grid, kAttentionThreads}, stream, call);
}

template <int kMaxDim>
void launch_all(const AttentionCall& call, Stream stream) {
  if (!run_prompt_attention(call, stream)) {
    launch_tasks<false, kMaxDim>(call, call.num_prompt, stream);
  }
  AttentionCall slice = call;
  for (const auto& [num_split, num_merge] : call.slices) {
    launch_tasks<true, kMaxDim>(slice, num_split, stream);
    launch_merge(slice, num_merge, stream);
    slice.split += num_split;
    slice.merge += num_merge;
  }
}

}  // namespace

void run_attention(const AttentionCall& call, Stream stream) {
  if (call.head_dim <= 64) {
    launch_all<64>(call, stream);
  } else if (call.head_dim <= 128) {
    launch_all<128>(call, stream);
  } else {
    launch_all<256>(call, stream);
  }
}

}  // namespace subbyte::cuda
