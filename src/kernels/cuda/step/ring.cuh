#pragma once
// The weights on their way to the multiplying warps, through all products of a program.
//
// The strips of a CTA are cut into units of four tiles (256 inputs), which its multiplying warps
// share out evenly: warp w of W has units [U w / W, U (w + 1) / W) of U, strip after strip. Each
// has a ring of slots of its own, which a producer warp fills by cp.async, a unit at a time; a
// producer serves several warps in turns and walks through all products without waiting for
// anything but slots:
//
//   slot   full | empty | codes of four tiles | scale blocks | zero points or offsets
//
//   full    counts the lanes of the producer whose copies have arrived
//   empty   counts the warp that has read the slot
//
// A strip whose tiles are no multiple of four ends in a shorter unit. What a slot has beyond is
// left from before; its inputs are zero.

#include "kernels/cuda/common/pair_mma.cuh"
#include "kernels/cuda/step/program.h"

namespace subbyte::cuda {

/// Units [begin, end) of a warp, among those of a CTA.
struct UnitRange {
  int begin;
  int end;

  __device__ UnitRange(int units, int warp)
      : begin(units * warp / kStepWarps), end(units * (warp + 1) / kStepWarps) {}
};

/// n / d by per_of(d).
__device__ __forceinline__ int divide_by(int n, uint32_t per) {
  return per == 0 ? n : static_cast<int>(__umulhi(n, per));
}

/// The warp that has unit `unit` of `units`. The quotient is below 2^5 and a half away from the
/// next integer by numerator, so the approximate division is right.
__device__ __forceinline__ int warp_of_unit(int unit, int units) {
  const float numerator = static_cast<float>((unit + 1) * kStepWarps - 1) + 0.5f;
  return __float2int_rd(__fdividef(numerator, static_cast<float>(units)));
}

/// The place of a warp in its ring.
class RingPlace {
 public:
  __device__ RingPlace(const StepShared& s, uint32_t shared, int warp)
      : slot_bytes_(s.slot_bytes),
        begin_(shared + s.ring + warp * s.slots * s.slot_bytes),
        end_(begin_ + s.slots * s.slot_bytes),
        at_(begin_) {}

  __device__ uint32_t full() const { return at_; }
  __device__ uint32_t empty() const { return at_ + 8; }
  __device__ int phase() const { return phase_; }
  __device__ uint32_t slot() const { return at_; }

  __device__ void advance() {
    at_ += slot_bytes_;
    if (at_ == end_) {
      at_ = begin_;
      phase_ ^= 1;
    }
  }

  /// Before the first use, by all lanes of one warp. `clears`: units may be short, and what they do
  /// not fill must be numbers.
  __device__ void init(int lane, bool clears) const {
    for (uint32_t at = begin_; at < end_; at += slot_bytes_) {
      if (lane == 0) mbarrier_init(at, kLanes);
      if (lane == 0) mbarrier_init(at + 8, 1);
      for (int i = kStepSlotHead + lane * 4; clears && i < slot_bytes_; i += kLanes * 4) {
        st_shared(at + i, 0);
      }
    }
    fence_mbarrier_init();
  }

 private:
  const int slot_bytes_;
  const uint32_t begin_;
  const uint32_t end_;
  uint32_t at_;
  int phase_ = 0;
};

/// A producer warp.
template <class Decoder, int kGroups>
class StepProducer {
 public:
  using Reader = PairReader<Decoder, kGroups>;
  static constexpr int kCodes = kStepSlotHead;  // where they begin in a slot
  static constexpr int kScales = kCodes + kUnitTiles * Reader::kTileBytes;

  /// `weights` of all products, in shared memory.
  __device__ StepProducer(const StepProgram& p, const StepWeights* weights, uint32_t shared,
                          int producer, int lane)
      : p_(p),
        weights_(weights),
        first_warp_(producer * kServed),
        lane_(lane),
        places_{RingPlace(p.shared, shared, first_warp_),
                RingPlace(p.shared, shared, first_warp_ + 1),
                RingPlace(p.shared, shared, first_warp_ + 2)} {}

  __device__ void run() {
    for (int product = 0; product < p_.num_products; ++product) produce(weights_[product]);
  }

 private:
  static constexpr int kServed = kStepWarps / kStepProducers;
  static_assert(kServed == 3);
  static constexpr int kCopyBytes = kLanes * 16;  // of all lanes
  static constexpr int kMostScaleBytes = 4 + (Decoder::kHasZeros ? 2 : 0);
  static constexpr int kScaleCopies =
      (kUnitTiles * Reader::kBlock * kMostScaleBytes + kCopyBytes - 1) / kCopyBytes;

  __device__ void produce(const StepWeights& w) {
    const int units = w.strips.size(blockIdx.x) * w.units;
    const int strip0 = w.strips.begin(blockIdx.x);
    int next[kServed];
    int left[kServed];
    int most = 0;
#pragma unroll
    for (int i = 0; i < kServed; ++i) {
      const UnitRange range(units, first_warp_ + i);
      next[i] = range.begin;
      left[i] = range.end - range.begin;
      most = max(most, left[i]);
    }
#pragma unroll 1
    for (; most > 0; --most) {
#pragma unroll
      for (int i = 0; i < kServed; ++i) {
        if (left[i]-- <= 0) continue;
        copy(w, strip0, next[i]++, places_[i]);
      }
    }
  }

  /// Copies a unit as soon as the slot is empty, 16 bytes for each lane at a time.
  __device__ void copy(const StepWeights& w, int strip0, int unit_of_cta, RingPlace& place) const {
    const int of_cta = divide_by(unit_of_cta, w.per_unit);
    const int unit = unit_of_cta - of_cta * w.units;
    const auto strip = static_cast<uint32_t>(strip0 + of_cta);
    const bool is_short = unit + 1 == w.units;
    const int tiles = is_short ? w.last_tiles : kUnitTiles;
    const int blocks = is_short ? w.last_blocks : w.blocks_of_unit;
    const uint64_t tile = uint64_t{strip} * w.tiles + unit * kUnitTiles;
    const uint64_t block =
        uint64_t{strip} * w.blocks + divide_by(unit, w.per_block) * w.blocks_of_unit;
    const uint8_t* const codes = w.codes + tile * Reader::kTileBytes + lane_ * 16;
    const int code_bytes = tiles * Reader::kTileBytes - lane_ * 16;
    const uint32_t slot = place.slot() + lane_ * 16;
    mbarrier_wait(place.empty(), place.phase() ^ 1);
#pragma unroll
    for (int i = 0; i < Reader::kWords; ++i) {
      cp_async_16_if(i * kCopyBytes < code_bytes, slot + kCodes + i * kCopyBytes,
                     codes + i * kCopyBytes, true);
    }
#pragma unroll
    for (int i = 0; i < kScaleCopies; ++i) {
      const int at = i * kCopyBytes + lane_ * 16;
      const bool is_zeros = at >= p_.shared.slot_scales;
      const int of_area = is_zeros ? at - p_.shared.slot_scales : at;
      const uint32_t block_bytes = is_zeros ? w.block_zeros : w.block_scales;
      const uint8_t* const from = (is_zeros ? w.zeros : w.scales) + block * block_bytes + of_area;
      cp_async_16_if(of_area < blocks * static_cast<int>(block_bytes),
                     slot + kScales + i * kCopyBytes, from, true);
    }
    cp_async_mbarrier_arrive(place.full());
    place.advance();
  }

  const StepProgram& p_;
  const StepWeights* const weights_;
  const int first_warp_;
  const int lane_;
  RingPlace places_[kServed];
};

}  // namespace subbyte::cuda
