#pragma once
// small_m8, small_m16, small_m64: few tokens. The time is that of reading the weights, so
// everything serves to have many copies in flight from the first moment to the last, and few
// instructions for each.
//
//   cluster c of `clusters`  has strips [c S / clusters, (c + 1) S / clusters); where there are
//                            more tokens than a kernel takes, neighbouring clusters do the same for
//                            others
//   CTA r of the cluster     has the r-th part of the inputs of those strips (split-K)
//   warps (16 or 8)          have equal shares of all that, strip after strip (stream-K):
//
//                inputs ->
//     strip 0    [  warp 0   |  warp 1  ]     A run is what a warp has of one strip. If that is the
//     strip 1    [   |  warp 2   | warp ]     whole strip the warp finishes it. Else it leaves a
//     strip 2    [ 3   |    warp 4      ]     partial: a head, where the warp before began it, or a
//                                             tail.
//
// A warp multiplies pairs of tiles of 16 outputs x 64 inputs by 8 * kTokens8 tokens. At the end the
// partials of a strip are added in the order of the warps, then those of the CTAs, through DSMEM,
// in theirs. So the order of additions depends on the partition alone, and results are the same
// bits each time.
//
// To read it: this file from run() to fill_slot(), then common/pair_mma.cuh, whose head has the
// protocol of the ring (fill, wait, publish, release), and weight_stream.cuh, which says what is in
// a slot.

#include <cstdint>

#include "kernels/cuda/common/pair_mma.cuh"
#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/common/rows.cuh"
#include "kernels/cuda/small_m/partition.h"
#include "kernels/cuda/small_m/weight_stream.cuh"

namespace subbyte::cuda {

/// What one CTA has to do. Pairs are of tiles, of a strip.
struct SmallMWork {
  int first_strip;
  int strips;
  int first_pair;
  int pairs;
  int64_t first_token;
};

/// Of a kernel that has `tokens` tokens in a CTA.
__device__ __forceinline__ SmallMWork small_m_work(const SmallMPartition& p, int tokens) {
  const int cluster = blockIdx.x >> p.splits_log2;
  const int rank = blockIdx.x & (p.splits - 1);
  const int of_strips = p.token_tiles == 1 ? cluster : cluster / p.token_tiles;
  return {p.strips.begin(of_strips), p.strips.size(of_strips), p.pairs.begin(rank),
          p.pairs.size(rank), int64_t{cluster - of_strips * p.token_tiles} * tokens};
}

/// The pairs of all strips in a chunk of inputs, strip after strip, and the shares of the warps.
template <int kWarps>
struct SmallMChunk {
  int pairs;      // of a strip
  int base;       // pairs of a warp
  int remainder;  // warps that have one more

  __device__ SmallMChunk(const SmallMWork& work, const SmallMPartition& p, int chunk)
      : pairs(max(0, min(p.chunk_pairs, work.pairs - chunk * p.chunk_pairs))),
        base(work.strips * pairs / kWarps),
        remainder(work.strips * pairs % kWarps) {}

  __device__ int begin(int warp) const { return warp * base + min(warp, remainder); }
};

/// The runs of a warp in a chunk one after the other. count 0: there are no more.
struct SmallMRun {
  int strip = 0;
  int pair = 0;
  int count = 0;
  int left = 0;  // of the warp's share, this run and what follows

  template <int kWarps>
  __device__ void begin(const SmallMChunk<kWarps>& chunk, int warp) {
    const int first = chunk.begin(warp);
    left = chunk.begin(warp + 1) - first;
    strip = left > 0 ? static_cast<unsigned>(first) / static_cast<unsigned>(chunk.pairs) : 0;
    pair = first - strip * chunk.pairs;
    count = min(chunk.pairs - pair, left);
  }
  __device__ void next(int pairs_of_strip) {
    left -= count;
    ++strip;
    pair = 0;
    count = min(pairs_of_strip, left);
  }
};

/// Copies tokens [0, tokens) of x, several inputs (a Piece) at a time, those beyond K as zeros.
template <class Piece, class Load>
__device__ __forceinline__ void stage_rows(uint8_t* shared, int stride, int tokens, int cols,
                                           const Load& load) {
  constexpr int kInputs = sizeof(Piece) / 2;
  constexpr int kAtOnce = 4;  // tokens: loads that are in flight together
  for (int token = 0; token < tokens; token += kAtOnce) {
    for (int i = threadIdx.x * kInputs; i < cols; i += blockDim.x * kInputs) {
      Piece v[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) v[j] = token + j < tokens ? load(token + j, i) : Piece{};
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (token + j >= tokens) break;
        *reinterpret_cast<Piece*>(shared + (token + j) * stride + i * 2) = v[j];
      }
    }
  }
}

/// Tokens [token0, token0 + tokens) of a chunk of inputs, by all threads, without bulk copies.
template <class Rows>
__device__ inline void stage_activations(const LinearArguments& a, const Rows& rows,
                                         uint8_t* shared, int stride, int64_t token0, int tokens,
                                         int first_col, int cols) {
  const WeightArguments& w = a.weights;
  const auto row = [&](int token) {
    return static_cast<const uint16_t*>(a.x) + rows.of_x(token0 + token) * a.x_stride;
  };
  if (a.is_aligned) {
    stage_rows<uint4>(shared, stride, tokens, cols, [&](int token, int i) {
      const uint16_t* from = row(token) + first_col + i;
      return first_col + i < w.cols ? *reinterpret_cast<const uint4*>(from) : uint4{};
    });
  } else {
    stage_rows<uint16_t>(shared, stride, tokens, cols, [&](int token, int i) {
      const int col = first_col + i;
      if (col >= w.cols) return uint16_t{};
      return row(token)[w.gather != nullptr ? w.gather[col] : col];
    });
  }
}

/// A CTA at work. Every warp has one, with its own way through the weights.
template <class Number, class Decoder, int kGroups, int kTokens8, class Rows = OwnRows>
class SmallMCta {
 public:
  static constexpr int kTokens = 8 * kTokens8;
  static constexpr int kWarps = small_m_warps(kTokens);
  using Stream = SmallMWeightStream<Decoder, kGroups>;
  using Chunk = SmallMChunk<kWarps>;

  __device__ SmallMCta(const LinearArguments& a, const SmallMPartition& p, uint8_t* shared,
                       const SmallMWork& work, const Rows& rows = {})
      : a_(a),
        p_(p),
        shared_(shared),
        warp_(__shfl_sync(~0u, threadIdx.x / kLanes, 0)),  // so the compiler knows it is uniform
        work_(work),
        rows_(rows),
        token0_(work.first_token),
        tokens_(static_cast<int>(min(int64_t{kTokens}, a.m - token0_))),
        x_rows_(min(kTokens, a.m)),
        by_bulk_(kHasBulkCopy && a.is_aligned),
        more_commits_(keep_in_register(static_cast<int>(p.depth < kSmallMDepth) +
                                       (Decoder::kBits > 8 && p.depth == 1 ? 2 : 0))),
        chunk_(work_, p, 0),
        stream_(a.weights, p, shared_address(shared) + p.shared.rings + warp_ * p.ring_bytes,
                shared_address(shared) + p.shared.scale_values, lane()) {}

  __device__ void run() {
    // Main loop over chunks of inputs.

    // --- activations of chunk 0, unless the kernel that writes them may still run ---
    if (threadIdx.x == 0) mbarrier_init(x_barrier(), 1);
    __syncwarp();
    if (!a_.is_dependent) copy_chunk(0);

    // --- fill all slots, before the kernel waits for the one that writes its activations ---
    fill_run_.begin(chunk_, warp());
    fill_pairs_ = chunk_.pairs;
    begin_fill_run();
    stream_.fill_constant_zeros();
#pragma unroll 1
    for (int i = 0; i < p_.depth; ++i) {
      fill_slot();
      stream_.next_slot();
    }
    prepare_tables();
    rows_.finish_arguments();
    if (a_.is_dependent) {
      griddepcontrol_wait();
      copy_chunk(0);
    }

    for (int chunk = 0; chunk < p_.chunks; ++chunk) {
      // --- activations of the chunk, when all warps have read those of the one before ---
      chunk_ = Chunk(work_, p_, chunk);
      if (chunk > 0) {
        __syncthreads();
        copy_chunk(chunk);
      }
      if (by_bulk_) {
        fill_beyond(chunk);
      } else {
        stage_activations(a_, rows_, shared_ + p_.shared.x, p_.shared.x_stride, token0_, tokens_,
                          first_col(chunk), chunk_.pairs * 2 * kTileCols);
      }
      __syncthreads();
      if (by_bulk_) mbarrier_wait(x_barrier(), chunk & 1);

      // --- sums of the inputs of each group, or of each pair; every warp reads all of them ---
      if constexpr (Decoder::kHasZeros) {
        if (kGroups == 1 && p_.one_group) {
          sum_chunk<2 * kSteps>();
        } else {
          sum_chunk<kSteps / kGroups>();
        }
        __syncthreads();
      }

      // --- multiply the warp's share; then add the partials of strips that warps share ---
      if (kGroups == 1 && p_.one_group) {
        multiply_chunk<kGroups == 1>(chunk);
      } else {
        multiply_chunk<false>(chunk);
      }
      __syncthreads();
      add_warp_partials();
    }

    // --- no copy outlives the CTA; add the partials of the cluster ---
    cp_async_wait<0>();  // of empty groups
    if (keeps_partials()) {
      __syncthreads();
      if (p_.splits > 1) cluster_sync();
      reduce_cluster();
      if (p_.splits > 1) cluster_sync();  // a CTA must not leave while others read its partials
    }
  }

 private:
  /// This warp's share of a chunk. Each iteration of the inner loop is one slot.
  template <bool kOneGroup>
  __device__ void multiply_chunk(int chunk) {
    SmallMRun run;
    run.begin(chunk_, warp());
    const uint32_t x_sums = shared_address(shared_ + p_.shared.x_sums) + lane() % 4 * 8;
    const int x_sums_bytes = p_.pair_input_sums * kTokens * 4;
    for (; run.count > 0; run.next(chunk_.pairs)) {
      uint32_t x[kTokens8];
#pragma unroll
      for (int n = 0; n < kTokens8; ++n) x[n] = x_row_[n] + run.pair * 4 * kTileCols;
      uint32_t sums = x_sums + run.pair * x_sums_bytes;
      accumulators_.clear();
#pragma unroll 1
      for (int i = run.count; i > 0; --i) {
        // --- wait for the slot; publish it ---
        cp_async_wait<kSmallMDepth - 1>();
        __syncwarp();
        // --- read it and multiply ---
        accumulators_.template add_pairs<kOneGroup>(
            stream_.reader(), {stream_.place()}, table_, sums,
            [&](int tile, int step, int n, uint32_t(&b)[4]) {
              ldmatrix_x4(b, x[n] + (tile * kTileCols + step * kStepCols) * 2);
            });
        // --- release it; fill it with what is `depth` pairs ahead ---
        __syncwarp();
        fill_slot();
        stream_.next_slot();
        sums += x_sums_bytes;
#pragma unroll
        for (int n = 0; n < kTokens8; ++n) x[n] += 4 * kTileCols;
      }
      end_run(run, chunk);
    }
  }

  /// Fills the current slot: the next pair of the run, else the first of the next run that has any,
  /// else nothing. Commits in any case, and once more where the ring has half the slots, or three
  /// times where it has one: so kSmallMDepth groups always are all of its slots.
  __device__ void fill_slot() {
    if (fills_left_ > 0) {
      stream_.load();
      if (--fills_left_ == 0) {
        fill_run_.next(fill_pairs_);
        begin_fill_run();
      }
    }
    cp_async_commit();
    cp_async_commit_if(more_commits_);
    if constexpr (Decoder::kBits > 8) {
      cp_async_commit_if(more_commits_ & 2);
      cp_async_commit_if(more_commits_ & 2);
    }
  }
  /// If nothing is left in a chunk, the next run is the first of the next chunk that has any.
  __device__ void begin_fill_run() {
    while (fill_run_.count == 0) {
      if (++fill_chunk_ >= p_.chunks) return;
      const Chunk next(work_, p_, fill_chunk_);
      fill_pairs_ = next.pairs;
      fill_run_.begin(next, warp());
    }
    fills_left_ = fill_run_.count;
    stream_.begin_loads(work_.first_strip + fill_run_.strip, first_tile(fill_chunk_, fill_run_));
  }

  /// A whole strip is finished, or added to the CTA's partials; less waits for add_warp_partials().
  __device__ void end_run(const SmallMRun& run, int chunk) {
    const bool is_head = run.pair > 0;
    const bool to_cta = !is_head && keeps_partials();
    float* const sums = is_head ? head(warp()) : to_cta ? cta_partial(run.strip) : tail(warp());
    accumulators_.store(sums, lane(), tokens_, to_cta && chunk > 0);
    if (is_head || to_cta || run.count < chunk_.pairs) return;
    __syncwarp();
    for (int i = lane(); i < tokens_ * 8; i += kLanes) {
      const float* from = sums + (i >> 3) * kPartialStride + (i & 7);
      finish<Number>(a_, work_.first_strip + run.strip, i & 7, rows_.of_y(token0_ + (i >> 3)),
                     from[0], from[8]);
    }
    __syncwarp();
  }

  /// Adds the partials of the strips that several warps share, in their order: a strip by a warp.
  __device__ void add_warp_partials() {
    for (int strip = warp(); strip < work_.strips && chunk_.pairs > 0; strip += kWarps) {
      const int first = owner(strip * chunk_.pairs);
      const int last = owner((strip + 1) * chunk_.pairs - 1);
      if (first == last) continue;  // it is whole
      for (int i = lane(); i < tokens_ * 8; i += kLanes) {
        const int at = (i >> 3) * kPartialStride + (i & 7);
        float* const sums = (keeps_partials() ? cta_partial(strip) : tail(first)) + at;
        float low = sums[0];
        float high = sums[8];
        for (int warp = first + 1; warp <= last; ++warp) {
          low += head(warp)[at];
          high += head(warp)[at + 8];
        }
        if (keeps_partials()) {
          sums[0] = low;
          sums[8] = high;
        } else {
          finish<Number>(a_, work_.first_strip + strip, i & 7, rows_.of_y(token0_ + (i >> 3)), low,
                         high);
        }
      }
    }
  }

  /// Adds the partials of the CTAs of a cluster, in their order; each CTA does a part.
  __device__ void reduce_cluster() {
    const int rank = blockIdx.x & (p_.splits - 1);
    const int all = work_.strips * tokens_ * 8;
    const float* const partials = cta_partial(0);
    for (int i = rank * blockDim.x + threadIdx.x; i < all; i += p_.splits * blockDim.x) {
      const int row = i % 8;
      const int token = i / 8 % tokens_;
      const int strip = i / 8 / tokens_;
      const float* at = partials + (strip * x_rows_ + token) * kPartialStride + row;
      float low = 0;
      float high = 0;
      for (int r = 0; r < p_.splits; ++r) {
        low += p_.splits == 1 ? at[0] : ld_dsmem(shared_address(at), r);
        high += p_.splits == 1 ? at[8] : ld_dsmem(shared_address(at + 8), r);
      }
      finish<Number>(a_, work_.first_strip + strip, row, rows_.of_y(token0_ + token), low, high);
    }
  }

  /// Tables, and where this lane's activations will be.
  __device__ void prepare_tables() {
    const WeightArguments& w = a_.weights;
    fill_scale_values(reinterpret_cast<float*>(shared_ + p_.shared.scale_values), w.scale);
    table_ = fill_table<Decoder>(w, reinterpret_cast<uint32_t*>(shared_));
#pragma unroll
    for (int n = 0; n < kTokens8; ++n) {
      // Rows of tokens that are not there repeat the last one; their results are not stored.
      const int token = min(n * 8 + lane() % 8, tokens_ - 1);
      x_row_[n] = x_at() + token * p_.shared.x_stride + lane() / 8 * 16;
    }
  }

  /// Starts the bulk copies of a chunk of activations, if they are aligned.
  __device__ void copy_chunk(int chunk) {
    if (!by_bulk_ || warp() != 0) return;
    const Chunk of(work_, p_, chunk);
    const int cols = max(0, min(of.pairs * 2 * kTileCols, a_.weights.cols - first_col(chunk)));
    if (lane() == 0) {
      fence_mbarrier_init();
      mbarrier_arrive_expect_tx(x_barrier(), tokens_ * cols * 2);
    }
    __syncwarp();
    const uint16_t* from = static_cast<const uint16_t*>(a_.x) + first_col(chunk);
    for (int i = lane(); i < tokens_ && cols > 0; i += kLanes) {
      cp_async_bulk(x_at() + i * p_.shared.x_stride, from + rows_.of_x(token0_ + i) * a_.x_stride,
                    cols * 2, x_barrier());
    }
  }

  /// What is beyond K in the last pair of a chunk reads as zero.
  __device__ void fill_beyond(int chunk) {
    const int begin = max(0, a_.weights.cols - first_col(chunk));
    const int cols = chunk_.pairs * 2 * kTileCols - begin;
    for (int i = threadIdx.x; i < tokens_ * cols; i += blockDim.x) {
      *reinterpret_cast<uint16_t*>(shared_ + p_.shared.x + i / cols * p_.shared.x_stride +
                                   (begin + i % cols) * 2) = 0;
    }
  }

  template <int kGroupSteps>
  __device__ void sum_chunk() {
    const int groups = chunk_.pairs * (2 * kSteps / kGroupSteps);
    float* const to = reinterpret_cast<float*>(shared_ + p_.shared.x_sums) + lane() * 2;
#pragma unroll 1
    for (int i = warp(); i < groups; i += kWarps) {
#pragma unroll
      for (int n = 0; n < kTokens8; ++n) {
        uint32_t two_steps[4];
        sum_inputs<Number, kGroupSteps>(
            to + i * kTokens + n * 8, lane(), [&](int step, uint32_t(&b)[2]) {
              if (step % 2 == 0) {
                ldmatrix_x4(two_steps, x_row_[n] + (i * kGroupSteps + step) * kStepCols * 2);
              }
              b[0] = two_steps[step % 2 * 2];
              b[1] = two_steps[step % 2 * 2 + 1];
            });
      }
    }
  }

  __device__ int warp() const {
    return warp_;
  }
  static __device__ int lane() {
    return threadIdx.x % kLanes;
  }
  __device__ uint32_t x_barrier() const {
    return shared_address(shared_ + p_.shared.x_barrier);
  }
  __device__ uint32_t x_at() const {
    return shared_address(shared_ + p_.shared.x);
  }
  __device__ int first_tile(int chunk, const SmallMRun& run) const {
    return 2 * (work_.first_pair + chunk * p_.chunk_pairs + run.pair);
  }
  __device__ int first_col(int chunk) const {
    return (work_.first_pair + chunk * p_.chunk_pairs) * 2 * kTileCols;
  }
  /// The warp that has pair `pair` of the chunk: the last that begins at or before it.
  __device__ int owner(int pair) const {
    const bool begins = lane() < kWarps && chunk_.begin(lane()) <= pair;
    return 31 - __clz(__ballot_sync(~0u, begins));
  }
  __device__ float* head(int warp) const {
    return reinterpret_cast<float*>(shared_ + p_.shared.warp_partials) +
           warp * x_rows_ * kPartialStride;
  }
  __device__ float* tail(int warp) const {
    return head(kWarps + warp);
  }
  /// The CTA does not finish its strips as it goes: it keeps the partials of all of them.
  __device__ bool keeps_partials() const {
    return p_.splits > 1 || p_.chunks > 1;
  }
  __device__ float* cta_partial(int strip) const {
    return reinterpret_cast<float*>(shared_ + p_.shared.cta_partials) +
           strip * x_rows_ * kPartialStride;
  }

  const LinearArguments& a_;
  const SmallMPartition& p_;
  uint8_t* const shared_;
  const int warp_;
  const SmallMWork work_;
  const Rows rows_;
  const int64_t token0_;
  const int tokens_;
  const int x_rows_;
  const bool by_bulk_;  // activations come by cp.async.bulk
  const int more_commits_;
  Chunk chunk_;
  Stream stream_;
  SmallMRun fill_run_;  // whose pairs are copied now
  int fill_chunk_ = 0;
  int fill_pairs_ = 0;
  int fills_left_ = 0;
  Table table_;
  PairAccumulators<Number, Decoder, kGroups, kTokens8> accumulators_;
  uint32_t x_row_[kTokens8];  // of this lane, for ldmatrix
};

template <class Number, class Decoder, int kGroups, int kTokens8>
__global__ void __launch_bounds__(small_m_warps(kTokens8 * 8) * kLanes, 1)
    small_m_kernel(const __grid_constant__ LinearArguments a,
                   const __grid_constant__ SmallMPartition p) {
  extern __shared__ __align__(128) uint8_t shared[];
  griddepcontrol_launch_dependents();
  SmallMCta<Number, Decoder, kGroups, kTokens8>(a, p, shared, small_m_work(p, 8 * kTokens8)).run();
}

}  // namespace subbyte::cuda
