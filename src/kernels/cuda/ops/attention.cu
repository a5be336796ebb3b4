#include "kernels/cuda/ops/attention.h"

#include "kernels/cuda/ops/attention.cuh"
#include "kernels/cuda/ops/attention_16bit.h"
#include "kernels/cuda/ops/attention_merge.cuh"
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
    const uint32_t a[4] = {
        __float_as_uint(to_tf32(weights[j][0])), __float_as_uint(to_tf32(weights[j][2])),
        __float_as_uint(to_tf32(weights[j][1])), __float_as_uint(to_tf32(weights[j][3]))};
    const float* const v = values + (8 * j + lane % 4 * 2) * stride + lane / 4;
#pragma unroll
    for (int n = 0; n < kMaxDim / 8; ++n) {
      if (8 * n >= head_dim) break;
      mma_tf32(partials.values[n], a, __float_as_uint(v[8 * n]),
               __float_as_uint(v[stride + 8 * n]));
    }
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
  if (task.num_tokens == 0) return;
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
    partials.template weigh<kTiles, true>(scores, rows, key + first_key, a.scale * kLog2E);
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
  if (merge.num_tokens == 0) return;
  AttentionTask task = {};
  task.first_token = merge.first_token;
  task.num_tokens = merge.num_tokens;
  task.first_row = merge.first_row;
  merge_partials(a, task, partial_at(a, merge.partial),
                 int64_t{a.kv_heads} * partial_floats(a.head_dim), merge.num_splits, nullptr);
}

template <bool kIsSplit, int kMaxDim>
void launch_tasks(const AttentionCall& call, int64_t num_tasks, Stream stream) {
  if (num_tasks == 0) return;
  auto* const kernel = attention<kIsSplit, kMaxDim>;
  const int bytes = attention_shared_bytes<kIsSplit>(call.head_dim);
  static SharedMemoryLimit limit;
  if (!limit.allow(kernel, bytes)) return;
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
  const bool is_16bit = serves_16bit_attention(call);
  if (is_16bit) {
    run_prompt_16bit(call, stream);
  } else {
    launch_tasks<false, kMaxDim>(call, call.num_prompt, stream);
  }
  AttentionCall slice = call;
  for (const auto& [num_split, num_merge] : call.slices) {
    if (is_16bit) {
      run_split_16bit(slice, num_split, stream);
    } else {
      launch_tasks<true, kMaxDim>(slice, num_split, stream);
    }
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
