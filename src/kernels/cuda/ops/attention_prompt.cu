#include "kernels/cuda/ops/attention_prompt.h"

#include <array>
#include <atomic>

#include "kernels/cuda/ops/attention.cuh"
#include "kernels/cuda/ops/launch.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kKeys = 64;  // of a tile in shared memory, all in one page
constexpr int kTiles = kKeys / 8;
constexpr int kStages = 2;
constexpr int kMostDim = 128;

/// 16-bit numbers from a row to the next in shared memory. Rows are an odd number of 16 bytes, so
/// the eight rows of a matrix of ldmatrix lie in different banks.
__host__ __device__ constexpr int row_stride(int head_dim) {
  return head_dim + 8;
}

__host__ __device__ constexpr int shared_bytes(int head_dim) {
  return (kPromptRows + 2 * kStages * kKeys) * row_stride(head_dim) * 2;
}

/// ldmatrix of the transposed matrices.
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&d)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(address)
               : "memory");
}

/// Begins to copy the queries of a task; rows that do not exist are zero.
__device__ void copy_queries(uint32_t to, const AttentionCall& a, const AttentionTask& task) {
  const int eights = a.head_dim / 8;
  for (int i = threadIdx.x; i < kPromptRows * eights; i += kAttentionThreads) {
    const AttentionRow row(a, task, i / eights);
    const int col = i % eights * 8;
    const int64_t at = row.exists ? row.token * a.qkv_stride + row.head * a.head_dim + col : 0;
    cp_async_zfill<16>(to + (i / eights * row_stride(a.head_dim) + col) * 2,
                       static_cast<const uint16_t*>(a.qkv) + at, row.exists);
  }
}

/// Begins to copy keys, and values after them, from `key` on; those before `first` and outside of
/// the task are zero, whatever the cache holds.
__device__ void copy_keys_and_values(uint32_t to, const AttentionCall& a, const AttentionTask& task,
                                     int first, int key) {
  const int page = a.pages[task.pages_begin + key / kPagePositions];
  const std::byte* const keys = a.cache.pages + page * a.cache.page_bytes + a.cache.layer_begin +
                                2 * static_cast<int>(blockIdx.y) * a.cache.run_bytes +
                                int64_t{key % kPagePositions} * a.head_dim * 2;
  const int eights = a.head_dim / 8;
  const int stride = row_stride(a.head_dim);
  for (int i = threadIdx.x; i < kKeys * eights; i += kAttentionThreads) {
    const int row = key + i / eights;
    const bool there = row >= first && row < task.end;
    const uint32_t at = to + (i / eights * stride + i % eights * 8) * 2;
    cp_async_zfill<16>(at, keys + i * 16, there);
    cp_async_zfill<16>(at + kKeys * stride * 2, keys + a.cache.run_bytes + i * 16, there);
  }
}

/// The address of this lane's row of a 16 x 16 block for ldmatrix_x4: rows l % 16, the second eight
/// columns for lanes 16 to 31. The four matrices are (rows, columns) (low, low), (high, low),
/// (low, high), (high, high).
__device__ uint32_t block_address(uint32_t base, int stride) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  return base + (lane % 16 * stride + lane / 16 * 8) * 2;
}

/// Scores of the 16 rows of a warp and kKeys keys.
template <class Number, int kMaxDim>
__device__ void multiply_keys(float (&scores)[kTiles][4],
                              const uint32_t (&queries)[kMaxDim / 16][4], uint32_t keys,
                              int head_dim) {
  const int stride = row_stride(head_dim);
  const uint32_t address = block_address(keys, stride);
#pragma unroll
  for (int d = 0; d < kMaxDim / 16; ++d) {
    if (16 * d >= head_dim) break;
#pragma unroll
    for (int j = 0; j < kTiles / 2; ++j) {
      uint32_t b[4];
      ldmatrix_x4(b, address + (16 * j * stride + 16 * d) * 2);
      mma<Number>(scores[2 * j], queries[d], b[0], b[2]);
      mma<Number>(scores[2 * j + 1], queries[d], b[1], b[3]);
    }
  }
}

/// Adds weights times values. What a lane has of the weights of 16 keys is what mma takes from it.
template <class Number, int kMaxDim>
__device__ void add_values(SoftmaxPartials<kMaxDim>& partials, const float (&weights)[kTiles][4],
                           uint32_t values, int head_dim) {
  const int stride = row_stride(head_dim);
  const uint32_t address = block_address(values, stride);
#pragma unroll
  for (int j = 0; j < kTiles / 2; ++j) {
    const uint32_t a[4] = {Number::pack_x2(weights[2 * j][0], weights[2 * j][1]),
                           Number::pack_x2(weights[2 * j][2], weights[2 * j][3]),
                           Number::pack_x2(weights[2 * j + 1][0], weights[2 * j + 1][1]),
                           Number::pack_x2(weights[2 * j + 1][2], weights[2 * j + 1][3])};
#pragma unroll
    for (int n = 0; n < kMaxDim / 16; ++n) {
      if (16 * n >= head_dim) break;
      uint32_t b[4];
      ldmatrix_x4_trans(b, address + (16 * j * stride + 16 * n) * 2);
      mma<Number>(partials.values[2 * n], a, b[0], b[1]);
      mma<Number>(partials.values[2 * n + 1], a, b[2], b[3]);
    }
  }
}

template <class Number, int kMaxDim>
__global__ void __launch_bounds__(kAttentionThreads)
    prompt_attention(const __grid_constant__ AttentionCall a) {
  begin_operation();
  extern __shared__ uint4 shared_memory[];
  const AttentionTask task = a.prompt[blockIdx.x];
  const int stride = row_stride(a.head_dim);
  const uint32_t queries = shared_address(shared_memory);
  const uint32_t tiles = queries + kPromptRows * stride * 2;
  const uint32_t tile_bytes = kKeys * stride * 2;
  const int first_row = static_cast<int>(threadIdx.x) / kLanes * 16;
  const int g = static_cast<int>(threadIdx.x) % kLanes / 4;
  const AttentionRow rows[2] = {AttentionRow(a, task, first_row + g),
                                AttentionRow(a, task, first_row + g + 8)};
  const int first_seen = AttentionRow(a, task, 0).first;
  copy_queries(queries, a, task);
  copy_keys_and_values(tiles, a, task, first_seen, task.begin);
  cp_async_commit();
  uint32_t q[kMaxDim / 16][4];
  SoftmaxPartials<kMaxDim> partials;
  int stage = 0;
  for (int key = task.begin; key < task.end; key += kKeys, stage ^= 1) {
    if (key + kKeys < task.end) {
      copy_keys_and_values(tiles + (stage ^ 1) * 2 * tile_bytes, a, task, first_seen, key + kKeys);
    }
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();
    if (key == task.begin) {
      const uint32_t address = block_address(queries + first_row * stride * 2, stride);
#pragma unroll
      for (int d = 0; d < kMaxDim / 16; ++d) {
        if (16 * d < a.head_dim) ldmatrix_x4(q[d], address + 16 * d * 2);
      }
    }
    const uint32_t keys = tiles + stage * 2 * tile_bytes;
    float scores[kTiles][4] = {};
    multiply_keys<Number, kMaxDim>(scores, q, keys, a.head_dim);
    partials.template weigh<kTiles>(scores, rows, key, a.scale * kLog2E);
    add_values<Number, kMaxDim>(partials, scores, keys + tile_bytes, a.head_dim);
    __syncthreads();  // the next copy writes to what was read here
  }
  partials.finish();
  store_rows(a, partials, rows);
}

template <class Number, int kMaxDim>
void launch_prompt(const AttentionCall& call, Stream stream) {
  constexpr int kDevices = 64;
  static std::array<std::atomic<int>, kDevices> allowed;  // bytes of shared memory
  auto* const kernel = prompt_attention<Number, kMaxDim>;
  const int bytes = shared_bytes(call.head_dim);
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return;
  const bool is_known = device < kDevices;
  if (!is_known || allowed[device].load(std::memory_order_relaxed) < bytes) {
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) !=
        cudaSuccess) {
      return;
    }
    if (is_known) allowed[device].store(bytes, std::memory_order_relaxed);
  }
  const dim3 grid(static_cast<unsigned>(call.num_prompt), static_cast<unsigned>(call.kv_heads));
  launch(kernel, {grid, kAttentionThreads, bytes}, stream, call);
}

template <class Number>
void launch_for_dim(const AttentionCall& call, Stream stream) {
  if (call.head_dim <= 64) {
    launch_prompt<Number, 64>(call, stream);
  } else {
    launch_prompt<Number, kMostDim>(call, stream);
  }
}

}  // namespace

bool run_prompt_attention(const AttentionCall& call, Stream stream) {
  if (call.element != call.cache.element || call.element == Element::kF32 ||
      call.head_dim > kMostDim) {
    return false;
  }
  if (call.num_prompt == 0) return true;
  if (call.element == Element::kF16) {
    launch_for_dim<gpu::F16>(call, stream);
  } else {
    launch_for_dim<gpu::BF16>(call, stream);
  }
  return true;
}

}  // namespace subbyte::cuda
