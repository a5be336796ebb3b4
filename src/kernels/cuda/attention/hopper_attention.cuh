#pragma once
// Attention of prompts by wgmma: over keys and values that were made of latents
// (expanded_hopper.h), or over those of the cache (paged_hopper.h).
//
// A CTA has 128 tokens of a task for one head of queries: two warpgroups of 64 rows multiply, and
// one thread of a third copies by TMA, in boxes of 64 numbers.
//
//   queries   [2][head_dim / 64][64 rows][64]
//   stages    keys [head_dim / 64][kKeys][64], values [value_dim / 64][kKeys][64]
//
// While a warpgroup turns scores into weights, its product of the weights and values before runs,
// and those of the other warpgroup.

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/wgmma_heads.cuh"

namespace subbyte::cuda::hopper {

inline constexpr int kHopperThreads = 384;
inline constexpr int kWarpgroup = 128;
inline constexpr int kChunk = 64;  // numbers of a box
inline constexpr int kRowBytes = 2 * kChunk;
inline constexpr int kRowsOfWarpgroup = 64;
inline constexpr int kStages = 2;

/// Chunks of keys and of values.
template <int kOfKeys, int kOfValues>
struct Shape {
  static constexpr int kKeyChunks = kOfKeys;
  static constexpr int kValueChunks = kOfValues;
  static constexpr int kKeys = kOfValues > 2 ? 64 : 128;                         // of a stage
  static constexpr int kQueryBytes = kKeyChunks * kRowsOfWarpgroup * kRowBytes;  // of a warpgroup
  static constexpr int kKeyBytes = kKeyChunks * kKeys * kRowBytes;
  static constexpr int kValueBytes = kValueChunks * kKeys * kRowBytes;
  static constexpr int kStageBytes = kKeyBytes + kValueBytes;
  static constexpr int kBarriers = 2 * kQueryBytes + kStages * kStageBytes;
  static constexpr int kBytes = kBarriers + 8 * (1 + 4 * kStages) + 1024;  // for alignment
  // Keys of a stage are those of one page and so of one text.
  static_assert(kPagePositions % kKeys == 0);
};

struct Maps {
  CUtensorMap queries, keys, turned, values;
};

/// Keys and values of every head, made of latents; zeros after those of a text (gather_latents).
struct ExpandedSource {
  static constexpr bool kEndsInZeros = true;
};

/// Those of the cache, of which `maps.keys` is a map: rows of a head. Whatever follows a text.
struct PagedSource {
  static constexpr bool kEndsInZeros = false;
};

/// Barriers, after everything else in shared memory.
struct Barriers {
  uint32_t queries;

  __device__ uint32_t full_keys(int stage) const { return queries + 8 * (1 + stage); }
  __device__ uint32_t full_values(int stage) const { return full_keys(kStages + stage); }
  __device__ uint32_t empty_keys(int stage) const { return full_keys(2 * kStages + stage); }
  __device__ uint32_t empty_values(int stage) const { return full_keys(3 * kStages + stage); }

  __device__ void init() const {
    constexpr int kConsumerWarps = 8;
    mbarrier_init(queries, 1);
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(full_keys(i), 1);
      mbarrier_init(full_values(i), 1);
      mbarrier_init(empty_keys(i), kConsumerWarps);
      mbarrier_init(empty_values(i), kConsumerWarps);
    }
    fence_mbarrier_init();
  }
};

struct Ring {
  int stage = 0;
  int phase = 0;
  __device__ void next() {
    stage ^= 1;
    phase ^= stage == 0;
  }
};
static_assert(kStages == 2);

/// `count` boxes of neighbouring columns.
__device__ inline void copy_chunks(uint32_t to, const CUtensorMap& map, int count, int col, int row,
                                   int rows, uint32_t barrier) {
  for (int c = 0; c < count; ++c) {
    tma_load_2d(to + c * rows * kRowBytes, map, col + c * kChunk, row, barrier, 0, false);
  }
}

/// Copies the keys of a stage, or its values, of [key, key + kKeys).
template <class S>
struct KeyCopies {
  const AttentionCall& a;
  const Maps& maps;
  const AttentionTask& task;
  int head;      // of queries
  int q_per_kv;  // of the cache

  __device__ void keys(ExpandedSource, uint32_t to, int key, uint32_t barrier) const {
    const int made_chunks = a.expanded.key_dim / kChunk;  // the last ones turn
    const int row = task.pages_begin * kPagePositions + key;
    copy_chunks(to, maps.keys, made_chunks, head * a.expanded.key_dim, row, S::kKeys, barrier);
    copy_chunks(to + made_chunks * S::kKeys * kRowBytes, maps.turned, S::kKeyChunks - made_chunks,
                0, row, S::kKeys, barrier);
  }
  __device__ void values(ExpandedSource, uint32_t to, int key, uint32_t barrier) const {
    copy_chunks(to, maps.values, S::kValueChunks, head * a.expanded.value_dim,
                task.pages_begin * kPagePositions + key, S::kKeys, barrier);
  }

  __device__ void keys(PagedSource, uint32_t to, int key, uint32_t barrier) const {
    copy_chunks(to, maps.keys, S::kKeyChunks, 0, row_of(key, 0), S::kKeys, barrier);
  }
  __device__ void values(PagedSource, uint32_t to, int key, uint32_t barrier) const {
    copy_chunks(to, maps.keys, S::kValueChunks, 0, row_of(key, 1), S::kKeys, barrier);
  }
  __device__ int row_of(int key, int is_value) const {
    const int64_t page = a.pages[task.pages_begin + key / kPagePositions];
    const int64_t run = 2 * (head / q_per_kv) + is_value;
    const int64_t at = page * a.cache.page_bytes + a.cache.layer_begin + run * a.cache.run_bytes;
    return static_cast<int>(at / (S::kKeyChunks * kRowBytes)) + key % kPagePositions;
  }
};

/// By one thread.
template <class Source, class S>
__device__ void produce(const KeyCopies<S>& copies, uint32_t shared, const Barriers& barriers) {
  const AttentionTask& task = copies.task;
  mbarrier_arrive_expect_tx(barriers.queries, 2 * S::kQueryBytes);
  for (int w = 0; w < 2; ++w) {
    copy_chunks(shared + w * S::kQueryBytes, copies.maps.queries, S::kKeyChunks,
                copies.head * copies.a.q_step(),
                task.first_token + task.first_row + w * kRowsOfWarpgroup, kRowsOfWarpgroup,
                barriers.queries);
  }
  Ring ring;
  for (int key = task.begin; key < task.end; key += S::kKeys, ring.next()) {
    const uint32_t keys = shared + 2 * S::kQueryBytes + ring.stage * S::kStageBytes;
    const uint32_t full_keys = barriers.full_keys(ring.stage);
    mbarrier_wait(barriers.empty_keys(ring.stage), ring.phase ^ 1);
    mbarrier_arrive_expect_tx(full_keys, S::kKeyBytes);
    copies.keys(Source(), keys, key, full_keys);
    const uint32_t full_values = barriers.full_values(ring.stage);
    mbarrier_wait(barriers.empty_values(ring.stage), ring.phase ^ 1);
    mbarrier_arrive_expect_tx(full_values, S::kValueBytes);
    copies.values(Source(), keys + S::kKeyBytes, key, full_values);
  }
}

/// The task of this CTA, whose rows are tokens.
__device__ inline AttentionTask own_task(const AttentionCall& a, int q_per_kv) {
  AttentionTask task = a.prompt[blockIdx.x];
  task.first_row /= q_per_kv;
  return task;
}

/// A warpgroup that multiplies: 64 rows.
template <class Number, class Source, class S>
class Consumer {
 public:
  __device__ Consumer(const AttentionCall& a, const AttentionTask& task, int q_per_kv,
                      uint32_t shared, const Barriers& barriers, int warpgroup)
      : a_(a),
        q_per_kv_(q_per_kv),
        barriers_(barriers),
        first_row_(warpgroup * kRowsOfWarpgroup +
                   static_cast<int>(threadIdx.x) % kWarpgroup / kLanes * 16),
        rows_{row(task, 0), row(task, 1)},
        seen_(a, task, first_row_),
        queries_(wgmma_descriptor(shared + warpgroup * S::kQueryBytes)),
        stages_(shared + 2 * S::kQueryBytes) {}

  __device__ void run(int begin, int end) {
    Ring now;
    float scores[S::kKeys / 8][4];
    float shrink[2];
    mbarrier_wait(barriers_.queries, 0);
    begin_scores(scores, now);
    wgmma_wait<0>();
    finish_scores(scores, now);
    weigh(scores, begin, shrink);
    pack(scores);
    for (int key = begin + S::kKeys; key < end; key += S::kKeys) {
      const Ring before = now;
      now.next();
      begin_scores(scores, now);
      begin_values(before);
      wgmma_wait<1>();
      finish_scores(scores, now);
      weigh(scores, key, shrink);
      wgmma_wait<0>();
      finish_values(before);
      partials_.scale_values(shrink);
      pack(scores);
    }
    const AttentionTask task = own_task(a_, q_per_kv_);  // again: registers
    if constexpr (!Source::kEndsInZeros) {
      const int there = task.position + task.num_tokens;
      clear_values(now, there - (task.end - 1) / S::kKeys * S::kKeys);
    }
    begin_values(now);
    wgmma_wait<0>();
    finish_values(now);
    partials_.finish();
    const AttentionRow rows[2] = {row(task, 0), row(task, 1)};
    store_rows(a_, partials_, rows);
  }

 private:
  static constexpr int kSteps = kChunk / 16;

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kLanes; }
  __device__ static void release(uint32_t barrier) {
    if (lane() == 0) mbarrier_arrive(barrier);
  }

  __device__ void begin_scores(float (&scores)[S::kKeys / 8][4], const Ring& ring) {
    const uint64_t keys = wgmma_descriptor(stages_ + ring.stage * S::kStageBytes);
    mbarrier_wait(barriers_.full_keys(ring.stage), ring.phase);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < S::kKeyChunks * kSteps; ++i) {
      const int chunk = i / kSteps;
      const int step = i % kSteps * 2;
      wgmma_scores<Number>(scores, queries_ + chunk * (kRowsOfWarpgroup * kRowBytes >> 4) + step,
                           keys + chunk * (S::kKeys * kRowBytes >> 4) + step, i > 0);
    }
    wgmma_commit();
  }

  /// Values after the first `there` of a stage become zero: their weights are, and they may be no
  /// numbers. Each warpgroup does it, so that none waits for the other.
  __device__ void clear_values(const Ring& ring, int there) {
    if (there >= S::kKeys) return;
    const uint32_t values = stages_ + ring.stage * S::kStageBytes + S::kKeyBytes;
    mbarrier_wait(barriers_.full_values(ring.stage), ring.phase);
    constexpr int kUnits = kRowBytes / 16;  // of a row of a chunk
    for (int i = there * kUnits + static_cast<int>(threadIdx.x) % kWarpgroup; i < S::kKeys * kUnits;
         i += kWarpgroup) {
#pragma unroll
      for (int chunk = 0; chunk < S::kValueChunks; ++chunk) {
        st_shared_x4(values + chunk * S::kKeys * kRowBytes + i * 16, {0, 0, 0, 0});
      }
    }
    fence_proxy_async();
    asm volatile("bar.sync %0, %1;" ::"r"(static_cast<int>(threadIdx.x) / kWarpgroup),
                 "n"(kWarpgroup)
                 : "memory");
  }

  __device__ void begin_values(const Ring& ring) {
    const uint64_t values = wgmma_descriptor_of_values(
        stages_ + ring.stage * S::kStageBytes + S::kKeyBytes, S::kKeys * kRowBytes);
    mbarrier_wait(barriers_.full_values(ring.stage), ring.phase);
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < S::kKeys / 16; ++j) {
      wgmma_values<Number>(partials_.values, weights_[j], values + j * (16 * kRowBytes >> 4));
    }
    wgmma_commit();
  }

  __device__ void finish_scores(float (&scores)[S::kKeys / 8][4], const Ring& ring) {
    wgmma_arrived(scores);
    release(barriers_.empty_keys(ring.stage));
  }

  __device__ void finish_values(const Ring& ring) {
    wgmma_arrived(partials_.values);
    release(barriers_.empty_values(ring.stage));
  }

  __device__ void weigh(float (&scores)[S::kKeys / 8][4], int key, float (&shrink)[2]) {
    if (a_.cap > 0) cap_scores(scores, a_.scale, a_.cap);
    const float scale = (a_.cap > 0 ? 1 : a_.scale) * kLog2E;
    if (seen_.has(key, S::kKeys)) {
      partials_.template weigh<S::kKeys / 8, false>(scores, rows_, key, scale, shrink);
    } else {
      partials_.template weigh<S::kKeys / 8, true>(scores, rows_, key, scale, shrink);
    }
  }

  __device__ void pack(const float (&scores)[S::kKeys / 8][4]) {
#pragma unroll
    for (int j = 0; j < S::kKeys / 16; ++j) pack_weights<Number>(weights_[j], scores, j);
  }

  /// Rows g and g + 8 of the warp.
  __device__ AttentionRow row(const AttentionTask& task, int half) const {
    return {a_, task, first_row_ + lane() / 4 + 8 * half};
  }

  const AttentionCall& a_;
  int q_per_kv_;
  const Barriers& barriers_;
  int first_row_;
  AttentionRow rows_[2];
  SeenByAll seen_;
  uint64_t queries_;
  uint32_t stages_;
  SoftmaxPartials<S::kValueChunks * kChunk> partials_;
  uint32_t weights_[S::kKeys / 16][4];
};

/// `a` has as many heads of keys as of queries, of which `q_per_kv` are one in the cache.
template <class Number, class Source, class S>
__global__ void __launch_bounds__(kHopperThreads, 1)
    hopper_attention(const __grid_constant__ AttentionCall a, const __grid_constant__ Maps maps,
                     int q_per_kv) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other GPUs have no wgmma, and the host does not choose this
  begin_operation();
  extern __shared__ uint8_t unaligned[];
  const uint32_t shared = (shared_address(unaligned) + 1023) / 1024 * 1024;
  const Barriers barriers = {shared + S::kBarriers};
  const AttentionTask task = own_task(a, q_per_kv);
  if (threadIdx.x == 0) barriers.init();
  __syncthreads();
  if (threadIdx.x < kWarpgroup) {
    setmaxnreg_dec<40>();
    const KeyCopies<S> copies = {a, maps, task, static_cast<int>(blockIdx.y), q_per_kv};
    if (threadIdx.x == 0) produce<Source>(copies, shared, barriers);
  } else {
    setmaxnreg_inc<232>();
    Consumer<Number, Source, S> consumer(a, task, q_per_kv, shared, barriers,
                                         static_cast<int>(threadIdx.x) / kWarpgroup - 1);
    consumer.run(task.begin, task.end);
  }
#endif
}

/// `call` and `q_per_kv` as the kernel has them. False: it has not been launched.
template <class Number, class Source, class S>
bool launch_hopper(const AttentionCall& call, const Maps& maps, int q_per_kv, Stream stream) {
  const dim3 grid(static_cast<unsigned>(call.num_prompt), static_cast<unsigned>(call.kv_heads));
  return launch_large<hopper_attention<Number, Source, S>>({grid, kHopperThreads, S::kBytes},
                                                           stream, call, maps, q_per_kv);
}

}  // namespace subbyte::cuda::hopper
