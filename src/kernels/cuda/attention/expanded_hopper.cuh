#pragma once
// The kernel of expanded_hopper.h.

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
  // Keys of a stage are those of one page and so of one text, and zeros after it (gather_latents).
  static_assert(kPagePositions % kKeys == 0);
};

struct Maps {
  CUtensorMap queries, keys, turned, values;
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

/// By one thread.
template <class S>
__device__ void produce(const AttentionCall& a, const Maps& maps, const AttentionTask& task,
                        uint32_t shared, const Barriers& barriers) {
  const int head = static_cast<int>(blockIdx.y);
  const int first = task.pages_begin * kPagePositions;
  const int made_chunks = a.expanded.key_dim / kChunk;  // the last ones turn
  mbarrier_arrive_expect_tx(barriers.queries, 2 * S::kQueryBytes);
  for (int w = 0; w < 2; ++w) {
    copy_chunks(shared + w * S::kQueryBytes, maps.queries, S::kKeyChunks, head * a.expanded.q_step,
                task.first_token + task.first_row + w * kRowsOfWarpgroup, kRowsOfWarpgroup,
                barriers.queries);
  }
  Ring ring;
  for (int key = 0; key < task.end; key += S::kKeys, ring.next()) {
    const uint32_t keys = shared + 2 * S::kQueryBytes + ring.stage * S::kStageBytes;
    const uint32_t full_keys = barriers.full_keys(ring.stage);
    mbarrier_wait(barriers.empty_keys(ring.stage), ring.phase ^ 1);
    mbarrier_arrive_expect_tx(full_keys, S::kKeyBytes);
    copy_chunks(keys, maps.keys, made_chunks, head * a.expanded.key_dim, first + key, S::kKeys,
                full_keys);
    copy_chunks(keys + made_chunks * S::kKeys * kRowBytes, maps.turned, S::kKeyChunks - made_chunks,
                0, first + key, S::kKeys, full_keys);
    const uint32_t full_values = barriers.full_values(ring.stage);
    mbarrier_wait(barriers.empty_values(ring.stage), ring.phase ^ 1);
    mbarrier_arrive_expect_tx(full_values, S::kValueBytes);
    copy_chunks(keys + S::kKeyBytes, maps.values, S::kValueChunks, head * a.expanded.value_dim,
                first + key, S::kKeys, full_values);
  }
}

/// A warpgroup that multiplies: 64 rows.
template <class Number, class S>
class Consumer {
 public:
  __device__ Consumer(const AttentionCall& a, const AttentionTask& task, uint32_t shared,
                      const Barriers& barriers, int warpgroup)
      : a_(a),
        barriers_(barriers),
        first_row_(warpgroup * kRowsOfWarpgroup +
                   static_cast<int>(threadIdx.x) % kWarpgroup / kLanes * 16),
        rows_{row(task, 0), row(task, 1)},
        seen_(a, task, first_row_),
        queries_(wgmma_descriptor(shared + warpgroup * S::kQueryBytes)),
        stages_(shared + 2 * S::kQueryBytes) {}

  __device__ void run(int end) {
    Ring now;
    float scores[S::kKeys / 8][4];
    float shrink[2];
    mbarrier_wait(barriers_.queries, 0);
    begin_scores(scores, now);
    wgmma_wait<0>();
    finish_scores(scores, now);
    weigh(scores, 0, shrink);
    pack(scores);
    for (int key = S::kKeys; key < end; key += S::kKeys) {
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
    begin_values(now);
    wgmma_wait<0>();
    finish_values(now);
    partials_.finish();
    const AttentionTask task = a_.prompt[blockIdx.x];  // again: registers
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
  const Barriers& barriers_;
  int first_row_;
  AttentionRow rows_[2];
  SeenByAll seen_;
  uint64_t queries_;
  uint32_t stages_;
  SoftmaxPartials<S::kValueChunks * kChunk> partials_;
  uint32_t weights_[S::kKeys / 16][4];
};

template <class Number, class S>
__global__ void __launch_bounds__(kHopperThreads, 1)
    expanded_attention(const __grid_constant__ AttentionCall a, const __grid_constant__ Maps maps) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other GPUs have no wgmma, and the host does not choose this
  begin_operation();
  extern __shared__ uint8_t unaligned[];
  const uint32_t shared = (shared_address(unaligned) + 1023) / 1024 * 1024;
  const Barriers barriers = {shared + S::kBarriers};
  const AttentionTask task = a.prompt[blockIdx.x];
  if (threadIdx.x == 0) barriers.init();
  __syncthreads();
  if (threadIdx.x < kWarpgroup) {
    setmaxnreg_dec<40>();
    if (threadIdx.x == 0) produce<S>(a, maps, task, shared, barriers);
  } else {
    setmaxnreg_inc<232>();
    Consumer<Number, S> consumer(a, task, shared, barriers,
                                 static_cast<int>(threadIdx.x) / kWarpgroup - 1);
    consumer.run(task.end);
  }
#endif
}

}  // namespace subbyte::cuda::hopper
