#pragma once
// The kernel of a step (program.h): a CTA on every multiprocessor, which goes through the
// operations with the others, a barrier of the grid after each.
//
//   product     inputs to shared memory; each warp multiplies its units as their weights arrive and
//               leaves a partial wherever its share of a strip ends; the partials of a strip are
//               added in the order of the warps
//   attention   attention.cuh
//
// To read it: run(), then ring.cuh, inputs.cuh, and common/pair_mma.cuh for what happens to a pair
// of tiles.

#include "kernels/cuda/common/pair_mma.cuh"
#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/step/attention.cuh"
#include "kernels/cuda/step/grid_barrier.cuh"
#include "kernels/cuda/step/inputs.cuh"
#include "kernels/cuda/step/program.h"
#include "kernels/cuda/step/ring.cuh"

namespace subbyte::cuda {

inline constexpr int kProducerRegisters = 32;
inline constexpr int kStepRegisters = 160;

/// Copies structures by all threads of a CTA, a word each.
template <class T>
__device__ __forceinline__ void copy_words(void* to, const T* from, int count) {
  static_assert(sizeof(T) % 4 == 0);
  const int words = count * static_cast<int>(sizeof(T) / 4);
  for (int i = threadIdx.x; i < words; i += blockDim.x) {
    static_cast<uint32_t*>(to)[i] = reinterpret_cast<const uint32_t*>(from)[i];
  }
}

template <class Number, class Decoder, int kGroups>
class StepCta {
 public:
  using Producer = StepProducer<Decoder, kGroups>;
  using Reader = PairReader<Decoder, kGroups>;

  /// For a multiplying warp.
  __device__ StepCta(const StepProgram& p, uint8_t* shared, const Table& table, int warp, int lane)
      : p_(p),
        shared_(shared),
        warp_(warp),
        lane_(lane),
        weights_(reinterpret_cast<const StepWeights*>(shared + p.shared.weights)),
        ring_(p.shared, shared_address(shared), warp),
        barrier_(p.arrived, p.arrived_before),
        table_(table) {}

  __device__ void run() {
    int product = 0;
    for (index_ = 0; index_ < p_.num_operations; ++index_) {
      const StepOperation& operation =
          reinterpret_cast<const StepOperation*>(shared_ + p_.shared.operations)[index_ % 2];
      if (operation.is_attention != 0) {
        attend(operation.attention);
      } else {
        multiply(operation.product, weights_[product++]);
      }
      if (index_ + 1 < p_.num_operations) barrier_.arrive();
    }
  }

 private:
  /// An operation on its way to shared memory, while the CTA waits for the one before it.
  class NextOperation {
   public:
    __device__ NextOperation(const StepProgram& p, int index)
        : there_(index < p.num_operations && static_cast<int>(threadIdx.x) < kWords) {
      if (there_) word_ = reinterpret_cast<const uint32_t*>(p.operations + index)[threadIdx.x];
    }
    /// The one before the last lay there, which all threads have left.
    __device__ void store(uint8_t* to) const {
      if (there_) reinterpret_cast<uint32_t*>(to)[threadIdx.x] = word_;
    }

   private:
    static constexpr int kWords = sizeof(StepOperation) / 4;
    static_assert(kWords <= kStepThreads);
    const bool there_;
    uint32_t word_ = 0;
  };

  /// Waits for the operation before this one.
  __device__ void wait() {
    const NextOperation next(p_, index_ + 1);
    if (index_ > 0) barrier_.wait();
    next.store(shared_ + p_.shared.operations + (index_ + 1) % 2 * sizeof(StepOperation));
  }

  __device__ void attend(const StepAttention& attention) {
    StepAttend<Number> attend(p_, attention, shared_);
    attend.begin();
    wait();
    attend.run();
  }

  // --- a product

  __device__ void multiply(const StepProduct& product, const StepWeights& weights) {
    const WeightArguments& w = product.linear.weights;
    StepInputs<Number, Decoder::kHasZeros> inputs(p_, product, weights, shared_);
    inputs.begin();
    wait();
    const float2 before = residual_before(product, weights);
    inputs.load();
    fill_scale_values(reinterpret_cast<float*>(shared_ + p_.shared.scale_values), w.scale);
    const Reader reader(w, shared_address(shared_) + p_.shared.scale_values, lane_);
    fill_constant_zeros(reader, w);
    step_sync();
    if (kGroups == 1 && product.one_group != 0) {
      multiply_units<kGroups == 1>(w, reader, weights);
    } else {
      multiply_units<false>(w, reader, weights);
    }
    step_sync();
    add_partials(product, weights, before);
  }

  __device__ void fill_constant_zeros(const Reader& reader, const WeightArguments& w) const {
    if constexpr (Decoder::kHasZeros) {
      if (!Reader::has_constant_zeros(w) || warp_ != 0) return;
      const uint32_t zeros = shared_address(shared_) + p_.shared.zeros;
      reader.fill_zeros(zeros, zeros + kUnitTiles * Reader::kBlock * Reader::kZeroBytes);
    }
  }

  /// Where a lane finds what belongs to the pairs of a unit, from the begin of a slot.
  struct Places {
    uint32_t codes;
    uint32_t scales[2];  // of pair 0 and 1
    uint32_t zeros[2];
    uint32_t offsets[2];
    bool has_zeros;  // in the slot; if not, `zeros` are shared addresses
    int next_block;

    __device__ Places(const StepProgram& p, const WeightArguments& w, const StepWeights& s,
                      uint32_t constant_zeros, int lane)
        : codes(Producer::kCodes + lane * Reader::kFirst * 4),
          has_zeros(!Reader::has_constant_zeros(w)),
          next_block(s.block_tiles == 1 ? 1 : 0) {
      const int rows = lane / 4 * 2 * kGroups;
      const uint32_t stored = Producer::kScales + p.shared.slot_scales;
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        const int number = pair * s.pair_blocks * Reader::kBlock + rows;
        scales[pair] = Producer::kScales + number * w.scale.bytes;
        zeros[pair] = (has_zeros ? stored : constant_zeros) + number * Reader::kZeroBytes;
        offsets[pair] = stored + number * 2;
      }
    }

    __device__ PairPlace of(uint32_t slot, int pair) const {
      return {slot + codes + pair * 2 * Reader::kTileBytes, slot + scales[pair],
              has_zeros ? slot + zeros[pair] : zeros[pair], slot + offsets[pair], next_block};
    }
  };

  /// This warp's units. Each iteration is one slot of the ring.
  template <bool kOneGroup>
  __device__ void multiply_units(const WeightArguments& w, const Reader& reader,
                                 const StepWeights& s) {
    constexpr int kSumBytes = (kOneGroup ? 1 : 2 * kGroups) * kStepTokens * 4;  // of a pair
    const UnitRange range(s.strips.size(blockIdx.x) * s.units, warp_);
    const int units = s.units;
    int strip = divide_by(range.begin, s.per_unit);
    int unit = range.begin - strip * units;
    const Places places(p_, w, s, shared_address(shared_) + p_.shared.zeros, lane_);
    const uint32_t x = shared_address(shared_) + p_.shared.x +
                       min(lane_ % 8, p_.m - 1) * p_.shared.x_stride + lane_ / 8 * 16;
    const uint32_t x_sums = shared_address(shared_) + p_.shared.x_sums + lane_ % 4 * 8;
    PairAccumulators<Number, Decoder, kGroups, 1> accumulators;
    accumulators.clear();
#pragma unroll 1
    for (int left = range.end - range.begin; left > 0; --left) {
      mbarrier_wait(ring_.full(), ring_.phase());
      const uint32_t slot = ring_.slot();
      const bool ends_strip = unit + 1 == units;
      const uint32_t inputs = x + unit * kUnitCols * 2;
      accumulators.template add_pairs<kOneGroup, 2>(
          reader, {places.of(slot, 0), places.of(slot, 1)}, table_, x_sums + unit * 2 * kSumBytes,
          [&](int tile, int step, int, uint32_t(&b)[4]) {
            ldmatrix_x4(b, inputs + (tile * kTileCols + step * kStepCols) * 2);
          });
      __syncwarp();
      if (lane_ == 0) mbarrier_arrive(ring_.empty());
      ring_.advance();
      ++unit;
      if (ends_strip || left == 1) {
        accumulators.store(partial(strip + warp_), lane_, p_.m, false);
        accumulators.clear();
        unit = 0;
        ++strip;
      }
    }
  }

  /// Partials follow each other in the order of units: a strip has one for each warp that has units
  /// of it, and the next warp or the next strip is one further.
  __device__ float* partial(int index) const {
    return reinterpret_cast<float*>(shared_ + p_.shared.partials) + index * p_.m * kPartialStride;
  }

  // --- results: a thread for two rows of a strip and a token

  static constexpr int kThreadsOfStrip = kStripRows / 2;

  /// What this thread's first results are added to, on its way while the CTA multiplies.
  __device__ float2 residual_before(const StepProduct& product, const StepWeights& w) const {
    const int i = static_cast<int>(threadIdx.x) / kThreadsOfStrip;
    if (product.residual == nullptr || i >= w.strips.size(blockIdx.x) * p_.m) return {};
    return load_residual(product, w.strips.begin(blockIdx.x) + i / p_.m, i % p_.m);
  }

  __device__ float2 load_residual(const StepProduct& product, int strip, int token) const {
    const int64_t rows = product.linear.weights.rows;
    const int64_t n = int64_t{strip} * kStripRows + lane_ % kThreadsOfStrip;
    const float* const from = product.residual + token * rows;
    return {n < rows ? __ldcg(from + n) : 0, n + 8 < rows ? __ldcg(from + n + 8) : 0};
  }

  __device__ void add_partials(const StepProduct& product, const StepWeights& w,
                               float2 before) const {
    const int strips = w.strips.size(blockIdx.x);
    const int units = strips * w.units;
    const int row = lane_ % kThreadsOfStrip;
    const int first = static_cast<int>(threadIdx.x) / kThreadsOfStrip;
    for (int i = first; i < strips * p_.m; i += kStepThreads / kThreadsOfStrip) {
      const int strip = p_.m == 1 ? i : i / p_.m;
      const int token = i - strip * p_.m;
      const int last = warp_of_unit((strip + 1) * w.units - 1, units);
      float low = 0;
      float high = 0;
      for (int warp = warp_of_unit(strip * w.units, units); warp <= last; ++warp) {
        const UnitRange range(units, warp);
        if (range.begin == range.end) continue;
        const float* const at = partial(strip + warp) + token * kPartialStride + row;
        low += at[0];
        high += at[8];
      }
      const int of_all = w.strips.begin(blockIdx.x) + strip;
      if (product.residual == nullptr) {
        finish<Number>(product.linear, of_all, row, token, low, high);
      } else {
        if (i != first) before = load_residual(product, of_all, token);
        add_to_residual(product, of_all, token, before, low, high);
      }
    }
  }

  __device__ void add_to_residual(const StepProduct& product, int strip, int token, float2 before,
                                  float low, float high) const {
    const LinearArguments& a = product.linear;
    const int64_t rows = a.weights.rows;
    const int64_t n = int64_t{strip} * kStripRows + lane_ % kThreadsOfStrip;
    const auto bias = [&](int64_t i) {
      return a.bias != nullptr ? load_number<Number>(a.bias, i) : 0.0f;
    };
    float* const to = product.residual + token * rows;
    if (n < rows) to[n] = before.x + (low * a.weights.gain + bias(n));
    if (n + 8 < rows) to[n + 8] = before.y + (high * a.weights.gain + bias(n + 8));
  }

  const StepProgram& p_;
  uint8_t* const shared_;
  const int warp_;
  const int lane_;
  const StepWeights* const weights_;
  RingPlace ring_;
  GridBarrier barrier_;
  int index_ = 0;  // of the operation
  const Table table_;
};

/// What all warps prepare together: copies of the program, tables, rings.
template <class Decoder>
__device__ Table begin_step(const StepProgram& p, uint8_t* shared, int warp, int lane) {
  copy_words(shared + p.shared.weights, p.weights, p.num_products);
  copy_words(shared + p.shared.places, p.places, p.m);
  copy_words(shared + p.shared.operations, p.operations, 1);
  // All products of a program have one codebook.
  const Table table = fill_table<Decoder>(p.operations->product.linear.weights,
                                          reinterpret_cast<uint32_t*>(shared));
  if (warp < kStepWarps) {
    RingPlace(p.shared, shared_address(shared), warp).init(lane, p.shared.clears_ring != 0);
  }
  __syncthreads();
  return table;
}

template <class Number, class Decoder, int kGroups>
__global__ void __launch_bounds__(kStepCtaThreads, 1)
    step_kernel(const __grid_constant__ StepProgram p) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint8_t shared[];
  const int warp =
      __shfl_sync(~0u, threadIdx.x / kLanes, 0);  // so the compiler knows it is uniform
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const Table table = begin_step<Decoder>(p, shared, warp, lane);
  if (warp >= kStepWarps) {
    setmaxnreg_dec<kProducerRegisters>();
    const auto* const weights = reinterpret_cast<const StepWeights*>(shared + p.shared.weights);
    StepProducer<Decoder, kGroups>(p, weights, shared_address(shared), warp - kStepWarps, lane)
        .run();
  } else {
    setmaxnreg_inc<kStepRegisters>();
    StepCta<Number, Decoder, kGroups>(p, shared, table, warp, lane).run();
  }
#endif
}

}  // namespace subbyte::cuda
