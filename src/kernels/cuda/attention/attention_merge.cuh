#pragma once
// Softmax partials of the same rows and other keys, added in a fixed order: those of the warps of a
// CTA, and those of splits.

#include "kernels/cuda/attention/attention.cuh"

namespace subbyte::cuda {

static_assert(kMaxSplits <= kLanes, "a lane has the factor of a split");

/// A partial in memory: [kSplitRows][values] values, then [kSplitRows] largest scores and sums.
__host__ __device__ constexpr int partial_floats(int values) {
  return kSplitRows * (values + 2);
}

__device__ inline float* partial_at(const AttentionCall& a, int64_t index) {
  const int64_t of_head = (index * a.kv_heads + blockIdx.y) * a.value_parts() + blockIdx.z;
  return a.partials + of_head * partial_floats(ValuePart(a).dim);
}

/// Rows of a task that exist.
__device__ inline int rows_of(const AttentionCall& a, const AttentionTask& task) {
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
__device__ inline void merge_partials(const AttentionCall& a, const AttentionTask& task,
                                      const float* partials, int64_t stride, int count, float* to) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int rows = rows_of(a, task);
  const ValuePart part(a);
  for (int r = static_cast<int>(threadIdx.x) / kLanes; r < rows; r += kAttentionWarps) {
    const MergedRow merged(partials, stride, count, r, part.dim);
    const AttentionRow row(a, task, r);
    const WithSink sink(a, row.head, merged.largest);
    const float shrink = exp2f(merged.largest - sink.largest);
    const float factor = shrink / (merged.sum * shrink + sink.weight);
    const int64_t at = (row.token * a.heads + row.head) * a.value_dim() + part.first;
    for (int d = lane; d - lane < part.dim; d += kLanes) {
      const float value = merged.value(partials, stride, count, r, part.dim, d);
      if (d >= part.dim) continue;
      if (to == nullptr) {
        store_element(a.element, a.y, at + d, value * factor);
      } else {
        to[r * part.dim + d] = value;
      }
    }
    if (to == nullptr || lane != 0) continue;
    to[kSplitRows * part.dim + r] = merged.largest;
    to[kSplitRows * part.dim + kSplitRows + r] = merged.sum;
  }
}

/// Merges the warps of a CTA, each of which has the same rows and other keys. `shared` is as large
/// as the tiles of keys and values.
template <int kMaxDim>
__device__ void merge_warps(const AttentionCall& a, const AttentionTask& task,
                            SoftmaxPartials<kMaxDim>& partials, float* shared) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int dim = ValuePart(a).dim;
  const int size = partial_floats(dim);
  float* const of_warp = shared + static_cast<int>(threadIdx.x) / kLanes * size;
  const int rows = rows_of(a, task);
  __syncthreads();  // the last tile has been read
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = lane / 4 + 8 * h;
    if (row >= rows) continue;
#pragma unroll
    for (int n = 0; n < kMaxDim / 8; ++n) {
      if (8 * n >= dim) break;
      float* const to = of_warp + row * dim + 8 * n + lane % 4 * 2;
      to[0] = partials.values[n][2 * h];
      to[1] = partials.values[n][2 * h + 1];
    }
    of_warp[kSplitRows * dim + row] = partials.largest[h];
    of_warp[kSplitRows * dim + kSplitRows + row] = partials.sums[h];
  }
  __syncthreads();
  merge_partials(a, task, shared, size, kAttentionWarps,
                 task.partial < 0 ? nullptr : partial_at(a, task.partial));
}

}  // namespace subbyte::cuda
