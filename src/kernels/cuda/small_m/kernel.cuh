#pragma once
// Few tokens: the time is that of reading the weights, so everything serves to have many loads
// under way from the first moment to the last, and few instructions for each.
//
//   cluster g of `groups`   has strips [g S / groups, (g + 1) S / groups); where there are more
//                           tokens than a kernel takes, neighbours do the same for others
//   block r of the cluster  has the r-th part of the inputs of those strips
//   warps (16 or 8)         have parts of the same size of all that, strip after strip:
//
//                inputs ->
//     strip 0    [  warp 0   |  warp 1  ]     A run is what a warp has of one strip. If that is the
//     strip 1    [   |  warp 2   | warp ]     whole strip the warp finishes it. Else it is a piece:
//     strip 2    [ 3   |    warp 4      ]     a head, which goes on with what the warp before has
//                                             begun, or a tail.
//
// A warp multiplies pairs of tiles of 16 outputs x 64 inputs by 8 * kTokens8 tokens with m16n8k16
// and adds up in float32; scales are applied to the sums at the end of each group, and zero points
// too: sum (q - z) x = sum q x - z sum x, where the sums of x are made once for a block. At the end
// the pieces of a strip are added in their order, then the sums of the blocks, through distributed
// shared memory, in theirs. So the order depends on the partition alone, and results are the same
// bits each time.
//
// The first weights are asked for before the kernel waits for the one that writes its activations.

#include <cstdint>

#include "kernels/cuda/common/pair_mma.cuh"
#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/small_m/partition.h"
#include "kernels/cuda/small_m/weight_stream.cuh"

namespace subbyte::cuda {

/// What one block has to do. Pairs are of tiles, of a strip.
struct SmallMWork {
  int first_strip;
  int strips;
  int first_pair;
  int pairs;
  int token_block;
};

__device__ __forceinline__ SmallMWork small_m_work(const SmallMPartition& p) {
  const int cluster = blockIdx.x >> p.splits_log2;
  const int rank = blockIdx.x & (p.splits - 1);
  const int group = p.token_tiles == 1 ? cluster : cluster / p.token_tiles;
  return {p.strips.begin(group), p.strips.size(group), p.pairs.begin(rank), p.pairs.size(rank),
          cluster - group * p.token_tiles};
}

/// The pairs of all strips in a chunk of inputs, strip after strip, and the parts of the warps.
template <int kWarps>
struct SmallMChunk {
  int pairs;  // of a strip
  int each;   // of a warp
  int more;   // warps that have one more

  __device__ SmallMChunk(const SmallMWork& work, const SmallMPartition& p, int chunk)
      : pairs(max(0, min(p.chunk_pairs, work.pairs - chunk * p.chunk_pairs))),
        each(work.strips * pairs / kWarps),
        more(work.strips * pairs % kWarps) {}

  __device__ int begin(int warp) const { return warp * each + min(warp, more); }
};

/// The runs of a warp in a chunk one after the other. count 0: there are no more.
struct SmallMRun {
  int strip = 0;
  int pair = 0;
  int count = 0;
  int left = 0;  // of the warp's part, this run and what follows

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

/// Copies tokens [0, tokens) of x in steps of kStep inputs, those beyond K as zeros.
template <class Step, class Load>
__device__ __forceinline__ void stage_rows(uint8_t* shared, int stride, int tokens, int cols,
                                           const Load& load) {
  constexpr int kStep = sizeof(Step) / 2;
  constexpr int kAtOnce = 4;  // tokens: loads that are under way together
  for (int token = 0; token < tokens; token += kAtOnce) {
    for (int i = threadIdx.x * kStep; i < cols; i += blockDim.x * kStep) {
      Step v[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) v[j] = token + j < tokens ? load(token + j, i) : Step{};
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (token + j >= tokens) break;
        *reinterpret_cast<Step*>(shared + (token + j) * stride + i * 2) = v[j];
      }
    }
  }
}

/// Tokens [token0, token0 + tokens) of a chunk of inputs, by all threads.
__device__ inline void stage_activations(const LinearArguments& a, uint8_t* shared, int stride,
                                         int64_t token0, int tokens, int first_col, int cols) {
  const WeightArguments& w = a.weights;
  const uint16_t* x = static_cast<const uint16_t*>(a.x) + token0 * a.x_stride;
  if (a.is_aligned) {
    stage_rows<uint4>(shared, stride, tokens, cols, [&](int token, int i) {
      const uint16_t* from = x + token * a.x_stride + first_col + i;
      return first_col + i < w.cols ? *reinterpret_cast<const uint4*>(from) : uint4{};
    });
  } else {
    stage_rows<uint16_t>(shared, stride, tokens, cols, [&](int token, int i) {
      const int col = first_col + i;
      if (col >= w.cols) return uint16_t{};
      return x[token * a.x_stride + (w.gather != nullptr ? w.gather[col] : col)];
    });
  }
}

/// Adds the partial sums of the blocks of a cluster, in their order; each block does a part.
template <class Number>
__device__ void end_cluster(const LinearArguments& a, const SmallMPartition& p,
                            const SmallMWork& work, const float* partial, int x_rows,
                            int64_t token0, int tokens) {
  const int rank = blockIdx.x & (p.splits - 1);
  const int all = work.strips * tokens * 8;
  for (int i = rank * blockDim.x + threadIdx.x; i < all; i += p.splits * blockDim.x) {
    const int row = i % 8;
    const int token = i / 8 % tokens;
    const int strip = i / 8 / tokens;
    const float* at = partial + (strip * x_rows + token) * kPartialStride + row;
    float low = 0;
    float high = 0;
    for (int r = 0; r < p.splits; ++r) {
      low += p.splits == 1 ? at[0] : load_from_block(shared_address(at), r);
      high += p.splits == 1 ? at[8] : load_from_block(shared_address(at + 8), r);
    }
    finish<Number>(a, work.first_strip + strip, row, token0 + token, low, high);
  }
}

/// A block at work. Every warp has one, with its own way through the weights.
template <class Number, class Decoder, int kGroups, int kTokens8>
class SmallMBlock {
 public:
  static constexpr int kTokens = 8 * kTokens8;
  static constexpr int kWarps = small_m_warps(kTokens);
  using Stream = PairStream<Decoder, kGroups>;
  using Chunk = SmallMChunk<kWarps>;

  __device__ SmallMBlock(const LinearArguments& a, const SmallMPartition& p, uint8_t* shared)
      : a_(a),
        p_(p),
        shared_(shared),
        warp_(__shfl_sync(~0u, threadIdx.x / kLanes, 0)),  // so the compiler knows it is uniform
        work_(small_m_work(p)),
        token0_(int64_t{work_.token_block} * kTokens),
        tokens_(static_cast<int>(min(int64_t{kTokens}, a.m - token0_))),
        x_rows_(min(kTokens, a.m)),
        by_bulk_(kHasCopyEngine && a.is_aligned),
        commits_twice_(in_register(p.depth < kSmallMDepth)),
        chunk_(work_, p, 0),
        stream_(a.weights, p, shared_address(shared) + p.shared.rings + warp_ * p.ring_bytes,
                shared_address(shared) + p.shared.scale_values, lane()) {}

  __device__ void run() {
    if (threadIdx.x == 0) init_barrier(x_barrier(), 1);
    __syncwarp();
    if (!a_.is_dependent) copy_chunk(0);
    begin_stream();
    prepare_shared();
    if (a_.is_dependent) {
      wait_for_previous_kernel();
      copy_chunk(0);
    }
    for (int chunk = 0; chunk < p_.chunks; ++chunk) {
      begin_chunk(chunk);
      if (kGroups == 1 && p_.one_group) {
        multiply_chunk<kGroups == 1>(chunk);
      } else {
        multiply_chunk<false>(chunk);
      }
      __syncthreads();
      add_pieces();
    }
    wait_copies<0>();
    if (is_partial()) end_block();
  }

 private:
  __device__ int warp() const { return warp_; }
  static __device__ int lane() { return threadIdx.x % kLanes; }
  __device__ float* head(int warp) const {
    return reinterpret_cast<float*>(shared_ + p_.shared.warp_partials) +
           warp * x_rows_ * kPartialStride;
  }
  __device__ float* tail(int warp) const { return head(kWarps + warp); }
  /// One pass over a strip does not finish it: the block keeps the sums of all its strips.
  __device__ bool is_partial() const { return p_.splits > 1 || p_.chunks > 1; }
  __device__ float* partial(int strip) const {
    return reinterpret_cast<float*>(shared_ + p_.shared.cta_partials) +
           strip * x_rows_ * kPartialStride;
  }

  /// Asks for the first weights.
  __device__ void begin_stream() {
    ahead_.begin(chunk_, warp());
    ahead_pairs_ = chunk_.pairs;
    find_run_ahead();
    stream_.fill_zeros();
#pragma unroll 1
    for (int i = 0; i < p_.depth; ++i) {
      load_next();
      stream_.next_slot();
    }
  }

  /// If nothing is left in a chunk, the run ahead is the first of the next chunk that has any.
  __device__ void find_run_ahead() {
    while (ahead_.count == 0) {
      if (++ahead_chunk_ >= p_.chunks) return;
      const Chunk next(work_, p_, ahead_chunk_);
      ahead_pairs_ = next.pairs;
      ahead_.begin(next, warp());
    }
    ahead_left_ = ahead_.count;
    stream_.begin(work_.first_strip + ahead_.strip, first_tile(ahead_chunk_, ahead_));
  }
  __device__ int first_tile(int chunk, const SmallMRun& run) const {
    return 2 * (work_.first_pair + chunk * p_.chunk_pairs + run.pair);
  }

  /// Into the slot that is read now.
  __device__ void load_next() {
    if (ahead_left_ > 0) {
      stream_.load();
      if (--ahead_left_ == 0) {
        ahead_.next(ahead_pairs_);
        find_run_ahead();
      }
    }
    commit_copies();
    commit_copies_if(commits_twice_);  // so that kSmallMDepth groups are always `depth` pairs
  }

  /// Tables, and where this lane's activations will be.
  __device__ void prepare_shared() {
    const WeightArguments& w = a_.weights;
    fill_scale_values(reinterpret_cast<float*>(shared_ + p_.shared.scale_values), w.scale);
    table_ = fill_table<Decoder>(w, reinterpret_cast<uint32_t*>(shared_));
#pragma unroll
    for (int n = 0; n < kTokens8; ++n) {
      // Tokens that are not there have results that nobody stores.
      const int token = min(n * 8 + lane() % 8, tokens_ - 1);
      x_row_[n] = x_at() + token * p_.shared.x_stride + lane() / 8 * 16;
    }
  }

  __device__ uint32_t x_barrier() const {
    return shared_address(shared_ + p_.shared.x_barrier);
  }
  __device__ uint32_t x_at() const {
    return shared_address(shared_ + p_.shared.x);
  }
  __device__ int first_col(int chunk) const {
    return (work_.first_pair + chunk * p_.chunk_pairs) * 2 * kTileCols;
  }

  /// Starts the copies of a chunk of activations, if the copy engine can.
  __device__ void copy_chunk(int chunk) {
    if (!by_bulk_ || warp() != 0) return;
    const Chunk of(work_, p_, chunk);
    const int cols = max(0, min(of.pairs * 2 * kTileCols, a_.weights.cols - first_col(chunk)));
    if (lane() == 0) {
      publish_barriers();
      expect_bytes(x_barrier(), tokens_ * cols * 2);
    }
    __syncwarp();
    const uint16_t* from = static_cast<const uint16_t*>(a_.x) + first_col(chunk);
    for (int i = lane(); i < tokens_ && cols > 0; i += kLanes) {
      copy_bulk(x_at() + i * p_.shared.x_stride, from + (token0_ + i) * a_.x_stride, cols * 2,
                x_barrier());
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

  __device__ void begin_chunk(int chunk) {
    chunk_ = Chunk(work_, p_, chunk);
    if (chunk > 0) {
      __syncthreads();  // nobody reads the chunk before
      copy_chunk(chunk);
    }
    if (by_bulk_) {
      fill_beyond(chunk);
    } else {
      stage_activations(a_, shared_ + p_.shared.x, p_.shared.x_stride, token0_, tokens_,
                        first_col(chunk), chunk_.pairs * 2 * kTileCols);
    }
    __syncthreads();
    if (by_bulk_) wait_barrier(x_barrier(), chunk & 1);
    if constexpr (Decoder::kHasZeros) {
      sum_activations();
      __syncthreads();
    }
  }

  /// Sums of the inputs of each group, or of each pair: products with ones.
  __device__ void sum_activations() {
    if (kGroups == 1 && p_.one_group) {
      sum_groups<2 * kSteps>();
    } else {
      sum_groups<kSteps / kGroups>();
    }
  }
  template <int kGroupSteps>
  __device__ void sum_groups() {
    const uint32_t one = Number::pair_of_float(1);
    const uint32_t ones[4] = {one, one, one, one};
    const int groups = chunk_.pairs * (2 * kSteps / kGroupSteps);
    float* to = reinterpret_cast<float*>(shared_ + p_.shared.x_sums) + lane() * 2;
#pragma unroll 1
    for (int i = warp(); i < groups; i += kWarps) {
#pragma unroll
      for (int n = 0; n < kTokens8; ++n) {
        float d[2][4] = {};
#pragma unroll
        for (int step = 0; step < kGroupSteps; step += 2) {
          uint32_t b[4];
          load_matrices(b, x_row_[n] + (i * kGroupSteps + step) * kStepCols * 2);
          mma<Number>(d[0], ones, b[0], b[1]);
          if constexpr (kGroupSteps > 1) mma<Number>(d[1], ones, b[2], b[3]);
        }
        if (lane() < 4) {
          *reinterpret_cast<float2*>(to + i * kTokens + n * 8) = {d[0][0] + d[1][0],
                                                                  d[0][1] + d[1][1]};
        }
      }
    }
  }

  /// This warp's part of a chunk.
  template <bool kOneGroup>
  __device__ void multiply_chunk(int chunk) {
    SmallMRun run;
    run.begin(chunk_, warp());
    const uint32_t x_sums = shared_address(shared_ + p_.shared.x_sums) + lane() % 4 * 8;
    const int sums_bytes = p_.pair_input_sums * kTokens * 4;
    for (; run.count > 0; run.next(chunk_.pairs)) {
      uint32_t x[kTokens8];
#pragma unroll
      for (int n = 0; n < kTokens8; ++n) x[n] = x_row_[n] + run.pair * 4 * kTileCols;
      uint32_t sums = x_sums + run.pair * sums_bytes;
      sum_.clear();
#pragma unroll 1
      for (int i = run.count; i > 0; --i) {
        wait_copies<kSmallMDepth - 1>();
        __syncwarp();  // so have the copies of all lanes
        sum_.template add_pair<kOneGroup>(
            stream_.reader(), stream_.place(), table_, sums,
            [&](int tile, int step, int n, uint32_t(&b)[4]) {
              load_matrices(b, x[n] + (tile * kTileCols + step * kStepCols) * 2);
            });
        __syncwarp();  // all lanes are done with the slot that is filled now
        load_next();
        stream_.next_slot();
        sums += sums_bytes;
#pragma unroll
        for (int n = 0; n < kTokens8; ++n) x[n] += 4 * kTileCols;
      }
      end_run(run, chunk);
    }
  }

  /// A whole strip is finished, or added to the partial sums; what is less waits for add_pieces().
  __device__ void end_run(const SmallMRun& run, int chunk) {
    const bool is_head = run.pair > 0;
    const bool to_partial = !is_head && is_partial();
    float* const sums = is_head ? head(warp()) : to_partial ? partial(run.strip) : tail(warp());
    sum_.store(sums, lane(), tokens_, to_partial && chunk > 0);
    if (is_head || to_partial || run.count < chunk_.pairs) return;
    __syncwarp();
    for (int i = lane(); i < tokens_ * 8; i += kLanes) {
      const float* from = sums + (i >> 3) * kPartialStride + (i & 7);
      finish<Number>(a_, work_.first_strip + run.strip, i & 7, token0_ + (i >> 3), from[0],
                     from[8]);
    }
    __syncwarp();
  }

  /// Adds the pieces of the strips that several warps share, in their order: a strip by a warp.
  __device__ void add_pieces() {
    for (int strip = warp(); strip < work_.strips && chunk_.pairs > 0; strip += kWarps) {
      const int first = owner(strip * chunk_.pairs);
      const int last = owner((strip + 1) * chunk_.pairs - 1);
      if (first == last) continue;  // it is whole
      for (int i = lane(); i < tokens_ * 8; i += kLanes) {
        const int at = (i >> 3) * kPartialStride + (i & 7);
        float* const sums = (is_partial() ? partial(strip) : tail(first)) + at;
        float low = sums[0];
        float high = sums[8];
        for (int warp = first + 1; warp <= last; ++warp) {
          low += head(warp)[at];
          high += head(warp)[at + 8];
        }
        if (is_partial()) {
          sums[0] = low;
          sums[8] = high;
        } else {
          finish<Number>(a_, work_.first_strip + strip, i & 7, token0_ + (i >> 3), low, high);
        }
      }
    }
  }

  /// The warp that has pair `pair` of the chunk: the last that begins at or before it.
  __device__ int owner(int pair) const {
    const bool begins = lane() < kWarps && chunk_.begin(lane()) <= pair;
    return 31 - __clz(__ballot_sync(~0u, begins));
  }

  __device__ void end_block() {
    __syncthreads();
    if (p_.splits > 1) wait_for_cluster();
    end_cluster<Number>(a_, p_, work_, partial(0), x_rows_, token0_, tokens_);
    if (p_.splits > 1) wait_for_cluster();  // nobody leaves while others read its sums
  }

  const LinearArguments& a_;
  const SmallMPartition& p_;
  uint8_t* const shared_;
  const int warp_;
  const SmallMWork work_;
  const int64_t token0_;
  const int tokens_;
  const int x_rows_;
  const bool by_bulk_;  // activations come by the copy engine
  const int commits_twice_;
  Chunk chunk_;
  Stream stream_;
  SmallMRun ahead_;  // whose pairs are copied now
  int ahead_chunk_ = 0;
  int ahead_pairs_ = 0;
  int ahead_left_ = 0;
  Table table_;
  PairAccumulators<Number, Decoder, kGroups, kTokens8> sum_;
  uint32_t x_row_[kTokens8];  // of this lane, for ldmatrix
};

template <class Number, class Decoder, int kGroups, int kTokens8>
__global__ void __launch_bounds__(small_m_warps(kTokens8 * 8) * kLanes, 1)
    small_m_kernel(const __grid_constant__ LinearArguments a,
                   const __grid_constant__ SmallMPartition p) {
  extern __shared__ __align__(128) uint8_t shared[];
  let_next_kernel_start();
  SmallMBlock<Number, Decoder, kGroups, kTokens8>(a, p, shared).run();
}

}  // namespace subbyte::cuda
