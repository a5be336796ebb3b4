#include "kernels/cuda/attention/attention.h"

#include "kernels/cuda/attention/attend_batch.h"
#include "kernels/cuda/attention/attention_kernel.cuh"
#include "kernels/cuda/attention/latent.h"

namespace subbyte::cuda {
namespace {

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

/// Keys and values of the cache, which have as many numbers.
template <class Cache, bool kIsSplit, int kMaxDim, bool kIsExact>
void launch_cached(const AttentionCall& call, int64_t num_tasks, Stream stream) {
  launch_tasks<Cache, kIsSplit, kMaxDim, values_beside(kMaxDim), kIsExact>(call, num_tasks, stream);
}

template <class Cache, bool kIsSplit>
void launch_for_dim(const AttentionCall& call, int64_t num_tasks, Stream stream) {
  if (num_tasks == 0) return;
  if (call.values_in_keys > 0) return run_latent_tasks(call, kIsSplit, num_tasks, stream);
  if (call.head_dim == 64) {
    launch_cached<Cache, kIsSplit, 64, true>(call, num_tasks, stream);
  } else if (call.head_dim == 128) {
    launch_cached<Cache, kIsSplit, 128, true>(call, num_tasks, stream);
  } else if (call.head_dim < 128) {
    launch_cached<Cache, kIsSplit, 128, false>(call, num_tasks, stream);
  } else if (call.head_dim <= kMaxValues) {
    launch_cached<Cache, kIsSplit, 256, false>(call, num_tasks, stream);
  } else {
    launch_cached<Cache, kIsSplit, 512, false>(call, num_tasks, stream);
  }
}

void launch_merge(const AttentionCall& call, int64_t num_tasks, Stream stream) {
  if (num_tasks == 0) return;
  const dim3 grid(static_cast<unsigned>(num_tasks), static_cast<unsigned>(call.kv_heads),
                  static_cast<unsigned>(call.value_parts()));
  launch(merge_splits, {grid, kAttentionThreads}, stream, call);
}

/// Split and merge tasks, slice after slice; launch(call, num_tasks) launches split tasks.
template <class Launch>
void launch_slices(const AttentionCall& call, Stream stream, const Launch& launch) {
  AttentionCall slice = call;
  for (const auto& [num_split, num_merge] : call.slices) {
    launch(slice, num_split);
    launch_merge(slice, num_merge, stream);
    slice.split += num_split;
    slice.merge += num_merge;
  }
}

template <class Cache>
void launch_all(const AttentionCall& call, Stream stream) {
  launch_for_dim<Cache, false>(call, call.num_prompt, stream);
  launch_slices(call, stream, [stream](const AttentionCall& slice, int64_t num_tasks) {
    launch_for_dim<Cache, true>(slice, num_tasks, stream);
  });
}

template <class Cache, int kMaxDim>
int cta_bytes(int head_dim) {
  const int values = values_beside(head_dim);
  return std::max(attention_shared_bytes<Cache, false, kMaxDim>(head_dim, values),
                  attention_shared_bytes<Cache, true, kMaxDim>(head_dim, values));
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

void run_batch_attention(const RotateCall& rotate, const AttentionCall& call, int multiprocessors,
                         Stream stream) {
  launch_slices(call, stream, [&](const AttentionCall& slice, int64_t num_tasks) {
    run_batch_tasks(rotate, slice, num_tasks, multiprocessors, stream);
  });
}

}  // namespace subbyte::cuda
