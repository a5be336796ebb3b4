#include "kernels/cuda/ops/attention_16bit.h"

#include "kernels/cuda/ops/attention.cuh"
#include "kernels/cuda/ops/attention_merge.cuh"
#include "kernels/cuda/ops/launch.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kKeys = 64;  // of a tile in shared memory, all in one page
constexpr int kMostDim = 128;

/// What a warp has of a tile: its own rows and all keys, or all rows and every fourth 16 keys.
template <bool kIsSplit>
struct Shape {
  static constexpr int kRows = kIsSplit ? kSplitRows : kPromptRows;
  static constexpr int kTiles = (kIsSplit ? kKeys / kAttentionWarps : kKeys) / 8;
  static constexpr int kStages = kIsSplit ? 3 : 2;  // tiles in shared memory
};

/// 16-bit numbers from a row to the next in shared memory. Rows are an odd number of 16 bytes, so
/// the eight rows of a matrix of ldmatrix lie in different banks.
__host__ __device__ constexpr int row_stride(int head_dim) {
  return head_dim + 8;
}

template <bool kIsSplit>
__host__ __device__ constexpr int shared_bytes(int head_dim) {
  using S = Shape<kIsSplit>;
  return (S::kRows + 2 * S::kStages * kKeys) * row_stride(head_dim) * 2;
}

/// ldmatrix of the transposed matrices.
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&d)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(address)
               : "memory");
}

/// Begins to copy the queries of a task; rows that do not exist are zero.
template <int kRows>
__device__ void copy_queries(uint32_t to, const AttentionCall& a, const AttentionTask& task,
                             int head_dim) {
  const int eights = head_dim / 8;
  for (int i = threadIdx.x; i < kRows * eights; i += kAttentionThreads) {
    const AttentionRow row(a, task, i / eights);
    const int col = i % eights * 8;
    const int64_t at = row.exists ? row.token * a.qkv_stride + row.head * head_dim + col : 0;
    cp_async_zfill<16>(to + (i / eights * row_stride(head_dim) + col) * 2,
                       static_cast<const uint16_t*>(a.qkv) + at, row.exists);
  }
}

/// Begins to copy keys, and values after them, from `key` on; those before `first` and outside of
/// the task are zero, whatever the cache holds.
__device__ void copy_keys_and_values(uint32_t to, const AttentionCall& a, const AttentionTask& task,
                                     int head_dim, int first, int key) {
  const int page = a.pages[task.pages_begin + key / kPagePositions];
  const std::byte* const keys = a.cache.pages + page * a.cache.page_bytes + a.cache.layer_begin +
                                2 * static_cast<int>(blockIdx.y) * a.cache.run_bytes +
                                int64_t{key % kPagePositions} * head_dim * 2;
  const int eights = head_dim / 8;
  const int stride = row_stride(head_dim);
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

/// Scores of 16 rows and kTiles times 8 keys.
template <class Number, int kMaxDim, int kTiles>
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
template <class Number, int kMaxDim, int kTiles>
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

/// Keys and values on their way to shared memory, tile after tile.
template <bool kIsSplit>
class KeyTiles {
 public:
  static constexpr int kStages = Shape<kIsSplit>::kStages;

  __device__ KeyTiles(const AttentionCall& a, const AttentionTask& task, int head_dim,
                      uint32_t shared)
      : a_(a),
        task_(task),
        head_dim_(head_dim),
        shared_(shared),
        tile_bytes_(2 * kKeys * row_stride(head_dim) * 2),
        first_(AttentionRow(a, task, 0).first),
        next_(task.begin) {}

  /// A group of copies, empty after the last tile.
  __device__ void copy_next() {
    if (next_ < task_.end) {
      copy_keys_and_values(shared_ + to_ * tile_bytes_, a_, task_, head_dim_, first_, next_);
    }
    cp_async_commit();
    next_ += kKeys;
    to_ = to_ + 1 == kStages ? 0 : to_ + 1;
  }

  /// Where the next tile has its keys, once it has arrived; the values follow them.
  __device__ uint32_t arrived() {
    cp_async_wait<kStages - 1>();
    __syncthreads();
    const uint32_t tile = shared_ + from_ * tile_bytes_;
    from_ = from_ + 1 == kStages ? 0 : from_ + 1;
    return tile;
  }

 private:
  const AttentionCall& a_;
  const AttentionTask& task_;
  int head_dim_;
  uint32_t shared_;
  uint32_t tile_bytes_;
  int first_;  // key that the task sees
  int next_;   // key
  int to_ = 0;
  int from_ = 0;
};

/// kIsExact: heads have kMaxDim elements.
template <class Number, bool kIsSplit, int kMaxDim, bool kIsExact>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_16bit(const __grid_constant__ AttentionCall a) {
  using S = Shape<kIsSplit>;
  begin_operation();
  extern __shared__ uint4 shared_memory[];
  const AttentionTask task = kIsSplit ? a.split[blockIdx.x] : a.prompt[blockIdx.x];
  if (task.num_tokens == 0) return;
  const int head_dim = kIsExact ? kMaxDim : a.head_dim;
  const int stride = row_stride(head_dim);
  const uint32_t queries = shared_address(shared_memory);
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int g = static_cast<int>(threadIdx.x) % kLanes / 4;
  const int first_row = kIsSplit ? 0 : warp * 16;
  const int first_key = kIsSplit ? warp * 8 * S::kTiles : 0;
  const AttentionRow rows[2] = {AttentionRow(a, task, first_row + g),
                                AttentionRow(a, task, first_row + g + 8)};
  const SeenByAll seen(a, task, first_row);
  KeyTiles<kIsSplit> tiles(a, task, head_dim, queries + S::kRows * stride * 2);
  copy_queries<S::kRows>(queries, a, task, head_dim);
#pragma unroll
  for (int i = 0; i < S::kStages - 1; ++i) tiles.copy_next();
  uint32_t q[kMaxDim / 16][4];
  SoftmaxPartials<kMaxDim> partials;
  for (int key = task.begin; key < task.end; key += kKeys) {
    tiles.copy_next();
    const uint32_t keys = tiles.arrived() + first_key * stride * 2;
    if (key == task.begin) {
      const uint32_t address = block_address(queries + first_row * stride * 2, stride);
#pragma unroll
      for (int d = 0; d < kMaxDim / 16; ++d) {
        if (16 * d < head_dim) ldmatrix_x4(q[d], address + 16 * d * 2);
      }
    }
    float scores[S::kTiles][4] = {};
    multiply_keys<Number, kMaxDim>(scores, q, keys, head_dim);
    const int from = key + first_key;
    if (seen.has(from, 8 * S::kTiles)) {
      partials.template weigh<S::kTiles, false>(scores, rows, from, a.scale * kLog2E);
    } else {
      partials.template weigh<S::kTiles, true>(scores, rows, from, a.scale * kLog2E);
    }
    add_values<Number, kMaxDim>(partials, scores, keys + kKeys * stride * 2, head_dim);
    __syncthreads();  // the next copy writes to what was read here
  }
  partials.finish();
  if constexpr (kIsSplit) {
    merge_warps(a, task, partials, reinterpret_cast<float*>(shared_memory));
  } else {
    store_rows(a, partials, rows);
  }
}

template <class Number, bool kIsSplit, int kMaxDim, bool kIsExact>
void launch_tasks(const AttentionCall& call, int64_t num_tasks, Stream stream) {
  static SharedMemoryLimit limit;
  auto* const kernel = attention_16bit<Number, kIsSplit, kMaxDim, kIsExact>;
  const int bytes = shared_bytes<kIsSplit>(call.head_dim);
  if (!limit.allow(kernel, bytes)) return;
  const dim3 grid(static_cast<unsigned>(num_tasks), static_cast<unsigned>(call.kv_heads));
  launch(kernel, {grid, kAttentionThreads, bytes}, stream, call);
}

template <class Number, bool kIsSplit>
void launch_for_dim(const AttentionCall& call, int64_t num_tasks, Stream stream) {
  if (call.head_dim == 64) {
    launch_tasks<Number, kIsSplit, 64, true>(call, num_tasks, stream);
  } else if (call.head_dim == kMostDim) {
    launch_tasks<Number, kIsSplit, kMostDim, true>(call, num_tasks, stream);
  } else {
    launch_tasks<Number, kIsSplit, kMostDim, false>(call, num_tasks, stream);
  }
}

template <bool kIsSplit>
void launch_for_type(const AttentionCall& call, int64_t num_tasks, Stream stream) {
  if (num_tasks == 0) return;
  if (call.element == Element::kF16) {
    launch_for_dim<gpu::F16, kIsSplit>(call, num_tasks, stream);
  } else {
    launch_for_dim<gpu::BF16, kIsSplit>(call, num_tasks, stream);
  }
}

}  // namespace

bool serves_16bit_attention(const AttentionCall& call) {
  return call.element == call.cache.element && call.element != Element::kF32 &&
         call.head_dim <= kMostDim;
}

void run_prompt_16bit(const AttentionCall& call, Stream stream) {
  launch_for_type<false>(call, call.num_prompt, stream);
}

void run_split_16bit(const AttentionCall& call, int64_t num_tasks, Stream stream) {
  launch_for_type<true>(call, num_tasks, stream);
}

}  // namespace subbyte::cuda
