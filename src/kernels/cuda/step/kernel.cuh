#pragma once
// The kernel of a step (program.h): a CTA on every multiprocessor, which goes through the
// operations by itself and waits for what it reads of others.
//
//   product     inputs to shared memory (inputs.cuh); each warp multiplies its units as their
//               weights arrive and leaves a partial for each strip; the partials of a strip are
//               added in the order of its units, by a warp for each strip and token
//   attention   attention.cuh
//   delta net   delta_net.cuh
//   experts     a router, and products whose weights are those of chosen experts: experts.cuh
//
// Two barriers of the CTA in a product: inputs are there; partials are there. While some warps add
// partials, others may already bring the inputs of the next product, which are in other places.
//
// To read it: run(), ring.cuh, inputs.cuh, integer_dot.cuh, float_dot.cuh, superblock_dot.cuh.

#include <type_traits>

#include "kernels/cuda/common/pair_mma.cuh"
#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/step/attention.cuh"
#include "kernels/cuda/step/clock.cuh"
#include "kernels/cuda/step/delta_net.cuh"
#include "kernels/cuda/step/exchange.cuh"
#include "kernels/cuda/step/experts.cuh"
#include "kernels/cuda/step/float_dot.cuh"
#include "kernels/cuda/step/inputs.cuh"
#include "kernels/cuda/step/integer_dot.cuh"
#include "kernels/cuda/step/next_operation.cuh"
#include "kernels/cuda/step/peers.cuh"
#include "kernels/cuda/step/program.h"
#include "kernels/cuda/step/regular_units.cuh"
#include "kernels/cuda/step/ring.cuh"
#include "kernels/cuda/step/superblock_dot.cuh"

namespace subbyte::cuda {

inline constexpr int kProducerRegisters = 32;
inline constexpr int kStepRegisters = 160;

template <class Number, class Decoder, int kGroups>
using StepDot =
    std::conditional_t<has_integer_dot(Decoder::kHasZeros && !HasSuperblocks<Decoder>, kGroups),
                       IntegerDot<Decoder, kGroups>, FloatDot<Number, Decoder, kGroups>>;

/// A multiplying warp.
template <class Clock>
struct StepWarp {
  const StepProgram& p;
  uint8_t* const shared;
  const int warp;
  const int lane;
  const Table table;
  RingPlace ring;
  Clock clock;
};

/// The products of weights of one kind, by one of the three dots.
template <class Number, class Decoder, int kGroups, class Dot, class Clock>
class StepProducts {
 public:
  using Reader = PairReader<Decoder, kGroups>;
  using Inputs = StepInputs<Number, Dot>;

  __device__ explicit StepProducts(StepWarp<Clock>& warp)
      : p_(warp.p),
        clock_(warp.clock),
        shared_(warp.shared),
        warp_(warp.warp),
        lane_(warp.lane),
        ring_of_warp_(warp.ring),
        ring_(warp.ring),
        table_(warp.table) {}

  __device__ __forceinline__ void multiply(const StepProduct& product, const StepWeights& weights,
                                           int parity, const NextOperation& next) {
    const WeightArguments& w = product.weights;
    Inputs inputs(p_, product, weights, shared_, parity);
    inputs.begin();
    const float before = residual_before(product, weights);
    fill_scale_values(reinterpret_cast<float*>(shared_ + p_.shared.scale_values), w.scale);
    const Reader reader(w, shared_address(shared_) + p_.shared.scale_values, lane_);
    fill_constant_zeros(reader, w);
    // Who writes nothing reads nothing: nobody would know that it has ended (tensors.h).
    if (weights.strips.size(static_cast<int>(blockIdx.x)) > 0) inputs.load(clock_);
    clock_.at(StepPhase::kStaged);
    step_sync();
    clock_.at(StepPhase::kMultiplies);
    next.store();
    inputs.put_squares();
    if (kGroups == 1 && product.one_group != 0) {
      multiply_units<kGroups == 1>(w, reader, weights);
    } else {
      multiply_units<false>(w, reader, weights);
    }
    clock_.at(StepPhase::kMultiplied);
    step_sync();
    clock_.at(StepPhase::kAdds);
    add_partials(product, weights, inputs, before);
    ring_of_warp_ = ring_;
    clock_.at(StepPhase::kEnds);
  }

 private:
  __device__ void fill_constant_zeros(const Reader& reader, const WeightArguments& w) const {
    if constexpr (Reader::kZeroBytes > 0) {
      if (!Reader::has_constant_zeros(w) || warp_ != 0) return;
      const uint32_t zeros = shared_address(shared_) + p_.shared.zeros;
      reader.fill_zeros(zeros, zeros + kUnitTiles * Reader::kBlock * Reader::kZeroBytes);
    }
  }

  /// Where a lane finds what belongs to the pairs of a unit.
  struct Places {
    uint32_t codes;      // from the first tile of a stage on
    uint32_t scales[2];  // of pair 0 and 1, from the first scale block of a stage on
    uint32_t zeros[2];   // the same, or shared addresses if they are constant; of two levels
                         // factors, as scales
    uint32_t offsets[2];
    int scale_bytes;  // of a block
    int zero_bytes;   // of a block; 0 if they are constant
    int offset_bytes;
    int next_block;

    __device__ Places(const StepProgram& p, const WeightArguments& w, const StepWeights& s,
                      uint32_t shared, int lane)
        : codes(lane * Reader::kFirst * 4),
          scale_bytes(static_cast<int>(s.block_scales)),
          zero_bytes(Reader::has_constant_zeros(w) ? 0 : static_cast<int>(s.block_zeros)),
          offset_bytes(static_cast<int>(s.block_zeros)),
          next_block(s.block_tiles == 1 ? 1 : 0) {
      if constexpr (HasSuperblocks<Decoder>) {
        set_superblocks(p.shared.stage_scales, lane);
        return;
      }
      const int rows = lane / 4 * 2 * kGroups;
      const uint32_t stored = p.shared.stage_zeros;
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        const int number = pair * s.pair_blocks * Reader::kBlock + rows;
        scales[pair] = p.shared.stage_scales + number * w.scale.bytes;
        zeros[pair] =
            (zero_bytes > 0 ? stored : shared + p.shared.zeros) + number * Reader::kZeroBytes;
        offsets[pair] = stored + number * 2;
      }
    }

    __device__ void set_superblocks(uint32_t numbers, int lane) {
      constexpr Superblock kForm = SuperblockOf<Decoder, kGroups>::kForm;
      zero_bytes = scale_bytes;
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        scales[pair] = numbers + kForm.factors() + 2 * pair * kForm.tile_integers() +
                       lane / 4 * kForm.lane_integers();
        zeros[pair] = numbers + lane / 4 * kForm.lane_factors();
        offsets[pair] = 0;
      }
      next_block = 1;
    }

    __device__ PairPlace of(uint32_t stage, int tile, int block, int pair) const {
      return {stage + codes + (tile + pair * 2) * Reader::kTileBytes,
              stage + scales[pair] + block * scale_bytes,
              (zero_bytes > 0 ? stage : 0) + zeros[pair] + block * zero_bytes,
              stage + offsets[pair] + block * offset_bytes, next_block};
    }
  };

  /// This warp's units, one of each stage of the ring.
  template <bool kOneGroup>
  __device__ __forceinline__ void multiply_units(const WeightArguments& w, const Reader& reader,
                                                 const StepWeights& s) {
    if constexpr (std::is_same_v<Dot, IntegerDot<Decoder, kGroups>>) {
      using F16Units = RegularUnits<Decoder, kGroups, F16, kOneGroup>;
      using BF16Units = RegularUnits<Decoder, kGroups, BF16, kOneGroup>;
      if (F16Units::supports(s, w, p_.m)) {
        if (w.scale.bytes == 2 && w.scale.shift != 16) return multiply_regular<F16Units>(w, s);
        if (w.scale.bytes == 2) return multiply_regular<BF16Units>(w, s);
      }
    }
    if constexpr (std::is_same_v<Dot, SuperblockDot<Decoder, kGroups>>) {
      if (s.is_regular != 0) {
        const uint32_t shared = shared_address(shared_);
        const Places places(p_, w, s, shared, lane_);
        SuperblockUnits<Decoder, kGroups> units(Dot(p_.shared, shared, p_.m, lane_), reader,
                                                places.of(0, warp_ * kUnitTiles, warp_, 0));
        return multiply_regular_units(units, ring_, s, warp_, lane_, clock_,
                                      [&](int strip) { return partial(strip, warp_); });
      }
    }
    multiply_any<kOneGroup>(w, reader, s);
  }

  template <class Units>
  __device__ __forceinline__ void multiply_regular(const WeightArguments& w, const StepWeights& s) {
    Units units(p_.shared, s, w, shared_address(shared_), p_.m, warp_, lane_);
    multiply_regular_units(units, ring_, s, warp_, lane_, clock_,
                           [&](int strip) { return partial(strip, warp_); });
  }

  template <bool kOneGroup>
  __device__ __forceinline__ void multiply_any(const WeightArguments& w, const Reader& reader,
                                               const StepWeights& s) {
    const int units = s.units;
    const int all = s.strips.size(blockIdx.x) * units;
    const uint32_t shared = shared_address(shared_);
    const Places places(p_, w, s, shared, lane_);
    Dot dot(p_.shared, shared, p_.m, lane_);
    dot.clear();
    UnitPlace first = {0, 0};  // of the stage
    UnitPlace own = {0, 0};
    own.advance(warp_, units);
#pragma unroll 1
    for (int left = all - warp_; left > -warp_; left -= kStageUnits) {
      clock_.waits();
      mbarrier_wait(ring_.full(), ring_.phase());
      clock_.goes_on();
      if (left > 0) {
        const int tile = own.tile(s) - first.tile(s);
        const int block = own.block(s) - first.block(s);
        const uint32_t stage = ring_.stage();
        dot.template add<kOneGroup>(
            reader, {places.of(stage, tile, block, 0), places.of(stage, tile, block, 1)}, own.unit,
            table_);
      }
      __syncwarp();
      if (lane_ == 0) mbarrier_arrive(ring_.empty());
      ring_.advance();
      if (left <= 0) break;
      const int strip = own.strip;
      own.advance(kStageUnits, units);
      first.advance(kStageUnits, units);
      if (own.strip != strip || left <= kStageUnits) {
        dot.store(partial(strip, warp_));
        dot.clear();
      }
    }
  }

  __device__ float* partial(int strip, int warp) const {
    return reinterpret_cast<float*>(shared_ + p_.shared.partials) +
           (strip * kStepWarps + warp) * p_.m * kPartialStride;
  }

  // --- results: a warp for a strip and a token, a lane for a row

  static constexpr int kHalfRows = kStripRows / 2;

  __device__ int row() const {
    return lane_ % kStripRows;
  }

  /// What this warp's first results are added to, on its way while the CTA multiplies.
  __device__ float residual_before(const StepProduct& product, const StepWeights& w) const {
    if (product.residual == nullptr || warp_ >= w.strips.size(blockIdx.x) * p_.m) return 0;
    const int strip = p_.m == 1 ? warp_ : warp_ / p_.m;
    return load_residual(product, w.strips.begin(blockIdx.x) + strip, warp_ - strip * p_.m);
  }

  __device__ float load_residual(const StepProduct& product, int strip, int token) const {
    const int rows = product.weights.rows;
    const int n = strip * kStripRows + row();
    return n < rows ? __ldcg(product.residual + int64_t{token} * rows + n) : 0;
  }

  __device__ void add_partials(const StepProduct& product, const StepWeights& w,
                               const Inputs& inputs, float before) const {
    const int strips = w.strips.size(blockIdx.x);
    const int first_strip = w.strips.begin(blockIdx.x);
    const int units = w.units;
#pragma unroll 1
    for (int i = warp_; i < strips * p_.m; i += kStepWarps) {
      const int strip = p_.m == 1 ? i : i / p_.m;
      const int token = i - strip * p_.m;
      if (i != warp_ && product.residual != nullptr) {
        before = load_residual(product, first_strip + strip, token);
      }
      const float factor = inputs.factor(token);
      const float sum = sum_of_strip(strip, units, token);
      store_result(product, first_strip + strip, token, sum * factor, before);
    }
  }

  /// Of this lane's row. The warps that have units of the strip follow each other; the lanes of the
  /// upper half add every second one. What no warp has left is loaded, too: all loads are on their
  /// way at once, without a branch.
  __device__ float sum_of_strip(int strip, int units, int token) const {
    const int warps = min(units, kStepWarps);
    const int begin = strip * units % kStepWarps;
    const float* const at = partial(strip, 0) + token * kPartialStride + row();
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kStepWarps / 2; ++j) {
      const int i = 2 * j + lane_ / kStripRows;
      const int warp = begin + i - (begin + i >= kStepWarps ? kStepWarps : 0);
      uint32_t word;
      ld_shared<1>(&word, shared_address(at + warp * p_.m * kPartialStride));
      sum += i < warps ? __uint_as_float(word) : 0;
    }
    return sum + __shfl_xor_sync(~0u, sum, kStripRows);
  }

  static __device__ bool has_experts(const StepProduct& product) {
    return product.experts.choice.top_k > 0;
  }
  __device__ ChosenExperts* chosen() const {
    return reinterpret_cast<ChosenExperts*>(shared_ + p_.shared.experts);
  }

  /// Of a row of a strip, with bias, activation or residual.
  __device__ void store_result(const StepProduct& product, int strip, int token, float sum,
                               float before) const {
    const WeightArguments& w = product.weights;
    const int slot = has_experts(product) ? divide_by(strip, product.experts.per_strips) : -1;
    float value = sum * w.gain;
    if (slot >= 0) value = sum * (row() < kHalfRows ? chosen()->gain : chosen()->up_gain)[slot];
    if (product.bias != nullptr) value += bias_of(product, strip, row());
    int outputs = w.rows;
    int at = strip * kStripRows + row();
    if (product.activation != Activation::kNone) {
      const float up = __shfl_down_sync(~0u, value, kHalfRows);
      value = gated(product.activation, product.swiglu, value, up);
      if (slot >= 0) value *= chosen()->factor[slot];
      outputs = row() < kHalfRows ? outputs / 2 : 0;
      at = strip * kHalfRows + row();
    } else if (w.row_order != RowOrder::kNatural) {
      at = static_cast<int>(source_row(w.row_order, strip, row(), w.rows));
    }
    if (lane_ >= kStripRows || at >= outputs) return;
    if (product.exchange != 0) {
      value =
          sum_over_ranks(p_.peers, p_.base_round + product.exchange, token * outputs + at, value);
    }
    if (product.residual != nullptr) value += before;
    store_tagged(product.result, token, at, value);  // which others wait for
    if (product.residual != nullptr) {
      product.residual[int64_t{token} * outputs + at] = value;
    } else if (product.y != nullptr) {
      store_number<Number>(product.y, token * product.y_stride + at, value);
    }
  }

  static __device__ float bias_of(const StepProduct& product, int strip, int row) {
    const int64_t n = source_row(product.weights.row_order, strip, row, product.weights.rows);
    return n < product.weights.rows ? load_number<Number>(product.bias, n) : 0;
  }

  const StepProgram& p_;
  Clock& clock_;
  uint8_t* const shared_;
  const int warp_;
  const int lane_;
  RingPlace& ring_of_warp_;
  RingPlace ring_;  // a copy, so that it stays in registers where several kinds share code
  const Table table_;
};

/// A line of weights.def.
template <class DecoderOf, int kGroupsOf>
struct StepKind {
  using Decoder = DecoderOf;
  static constexpr int kGroups = kGroupsOf;
};

/// A multiplying warp at work. Kinds are told apart by the bits of their codes.
template <class Number, bool kIsFull, class Clock, class... Kinds>
class StepCta {
 public:
  __device__ explicit StepCta(const StepWarp<Clock>& at)
      : at_(at), weights_(reinterpret_cast<const StepWeights*>(at.shared + at.p.shared.weights)) {}

  __device__ __forceinline__ void run() {
    int product = 0;
#pragma unroll 1
    for (int i = 0; i < at_.p.num_operations; ++i) {
      const StepOperation& operation =
          reinterpret_cast<const StepOperation*>(at_.shared + at_.p.shared.operations)[i % 2];
      const NextOperation next(at_.p, i + 1, at_.shared);
      at_.clock.begin(i);
      if (operation.kind == StepOperation::Kind::kRouter) {
        route(operation.router, next);
      } else if (operation.kind == StepOperation::Kind::kAttention) {
        attend(operation.attention, next);
      } else if (kIsFull && operation.kind == StepOperation::Kind::kDeltaNet) {
        mix(operation.delta_net, next);
      } else {
        choose(operation.product.experts);
        (multiply<Kinds>(operation.product, weights_[product], i % 2, next), ...);
        ++product;
      }
    }
  }

 private:
  __device__ __forceinline__ void route(const StepRouter& r, const NextOperation& next) {
    StepRoute<kIsFull>(r, at_.shared + at_.p.shared.x).run(at_.clock, [&] { next.store(); });
  }
  template <bool kIsLong>
  __device__ __forceinline__ void attend_by(const StepAttention& a, const NextOperation& next) {
    StepAttend<Number, kIsLong, Clock>(at_.p, a, at_.shared, at_.clock).run([&] { next.store(); });
  }
  __device__ __forceinline__ void attend(const StepAttention& a, const NextOperation& next) {
    if constexpr (kIsFull) {
      if (a.is_gated != 0) return attend_by<true>(a, next);
    }
    attend_by<false>(a, next);
  }

  __device__ __forceinline__ void mix(const StepDeltaNet& net, const NextOperation& next) {
    StepDelta<Number, Clock>(at_.p, net, at_.shared, at_.clock).run([&] { next.store(); });
  }

  /// The last warp, which has the fewest inputs to bring.
  __device__ __forceinline__ void choose(const StepExperts& experts) const {
    if (experts.choice.top_k == 0 || at_.warp != kStepWarps - 1) return;
    choose_for_cta<kIsFull>(experts,
                            reinterpret_cast<ChosenExperts*>(at_.shared + at_.p.shared.experts),
                            shared_address(at_.shared) + at_.p.shared.choice);
  }

  template <class Kind>
  __device__ __forceinline__ void multiply(const StepProduct& product, const StepWeights& weights,
                                           int parity, const NextOperation& next) {
    if (sizeof...(Kinds) > 1 && product.weights.bits != Kind::Decoder::kBits) return;
    using Decoder = typename Kind::Decoder;
    if constexpr (has_superblock_dot(Decoder::kHasZeros && HasSuperblocks<Decoder>, 1)) {
      if (has_superblock_dot(true, at_.p.m)) {
        return multiply_by<Kind, SuperblockDot<Decoder, Kind::kGroups>>(product, weights, parity,
                                                                        next);
      }
    }
    multiply_by<Kind, StepDot<Number, Decoder, Kind::kGroups>>(product, weights, parity, next);
  }

  template <class Kind, class Dot>
  __device__ __forceinline__ void multiply_by(const StepProduct& product,
                                              const StepWeights& weights, int parity,
                                              const NextOperation& next) {
    StepProducts<Number, typename Kind::Decoder, Kind::kGroups, Dot, Clock>(at_).multiply(
        product, weights, parity, next);
  }

  StepWarp<Clock> at_;
  const StepWeights* const weights_;
};

/// Bytes of the codes of a tile; 0: there are several kinds.
template <class Kind, class... Kinds>
__host__ __device__ constexpr int common_tile_bytes() {
  return sizeof...(Kinds) == 0 ? tile_bytes(Kind::Decoder::kBits) : 0;
}

/// What all warps prepare together: copies of the program, tables, rings.
template <bool kIsFull, class Kind, class... Kinds>
__device__ Table begin_step(const StepProgram& p, uint8_t* shared) {
  copy_words(shared + p.shared.weights, p.weights, p.num_products);
  if (p.places != nullptr) copy_words(shared + p.shared.places, p.places, p.m);
  if (kIsFull && p.state != nullptr) copy_words(shared + p.shared.state, p.state, 1);
  NextOperation(p, 0, shared).store();
  // All products of a program have one codebook, and those of several kinds none.
  static_assert(sizeof...(Kinds) == 0 ||
                (!Kind::Decoder::kHasTable && ... && !Kinds::Decoder::kHasTable));
  const Table table = fill_table<typename Kind::Decoder>(p.operations->product.weights,
                                                         reinterpret_cast<uint32_t*>(shared));
  RingPlace(p.shared, shared_address(shared))
      .init(p.shared, shared_address(shared) + p.shared.choice);
  __syncthreads();
  return table;
}

template <class Number, bool kIsFull, class... Kinds, class Clock>
__device__ __forceinline__ void run_step_cta(const StepProgram& p, uint8_t* shared,
                                             const Clock& clock) {
  const int warp =
      __shfl_sync(~0u, threadIdx.x / kLanes, 0);  // so the compiler knows it is uniform
  const Table table = begin_step<kIsFull, Kinds...>(p, shared);
  if (warp >= kStepWarps) {
    setmaxnreg_dec<kProducerRegisters>();
    const auto* const weights = reinterpret_cast<const StepWeights*>(shared + p.shared.weights);
    if (threadIdx.x != kStepThreads) return;
    StepProducer<common_tile_bytes<Kinds...>(), kIsFull>(p, weights, shared_address(shared)).run();
  } else {
    setmaxnreg_inc<kStepRegisters>();
    const int lane = static_cast<int>(threadIdx.x & (kLanes - 1));
    StepCta<Number, kIsFull, Clock, Kinds...>(
        {p, shared, warp, lane, table, RingPlace(p.shared, shared_address(shared)), clock})
        .run();
  }
}

template <class Number, bool kIsFull, class... Kinds>
__global__ void __launch_bounds__(kStepCtaThreads, 1)
    step_kernel(const __grid_constant__ StepProgram p) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint8_t shared[];
  run_step_cta<Number, kIsFull, Kinds...>(p, shared, NoClock());
#endif
}

}  // namespace subbyte::cuda
