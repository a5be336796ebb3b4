#pragma once
// The weights on their way to the multiplying warps, through all products of a program.
//
// The strips of a CTA are cut into units of four tiles (256 inputs), counted strip after strip. The
// warps take them in turns: warp w has units w, w + 12, w + 24, ... So what is multiplied at the
// same time lies side by side in memory, and a stage of the ring is one piece of it:
//
//   stage   codes of twelve units | their scale blocks | their zero points or offsets
//
//   full    counts the bytes that have arrived
//   empty   counts the warps that have read the stage
//
// One thread, the producer, has each stage copied in a few large pieces (cp.async.bulk), so that
// loads by which warps look for inputs do not wait after copies in the queue of the L1 cache. It
// goes on to the next stage as soon as that is empty, through all products. Beside that it waits
// for the choice of experts alone, whose weights a stage can have of several. A strip whose tiles
// are no multiple of four ends in a shorter unit; what follows it in the stage is multiplied by
// inputs that are zero.

#include "kernels/cuda/common/pair_mma.cuh"
#include "kernels/cuda/step/program.h"

namespace subbyte::cuda {

inline constexpr int kStageUnits = kStepWarps;

/// n / d by per_of(d).
__device__ __forceinline__ int divide_by(int n, uint32_t per) {
  return per == 0 ? n : static_cast<int>(__umulhi(n, per));
}

/// A unit among those of a CTA: its strip, counted from the CTA's first, and its number in it.
struct UnitPlace {
  int strip;
  int unit;

  __device__ void advance(int by, int units) {
    unit += by;
    while (unit >= units) {
      unit -= units;
      ++strip;
    }
  }
  /// From the first tile and scale block of the CTA.
  __device__ int tile(const StepWeights& w) const { return strip * w.tiles + unit * kUnitTiles; }
  __device__ int block(const StepWeights& w) const {
    return strip * w.blocks + divide_by(unit, w.per_block) * w.blocks_of_unit;
  }
};

/// Where a warp is in the ring.
class RingPlace {
 public:
  __device__ RingPlace(const StepShared& s, uint32_t shared)
      : stage_bytes_(s.stage_bytes),
        ring_(shared + s.ring),
        end_(ring_ + s.stages * s.stage_bytes),
        barriers_(shared + s.barriers),
        stage_(ring_),
        barrier_(barriers_) {}

  __device__ uint32_t full() const { return barrier_; }
  __device__ uint32_t empty() const { return barrier_ + 8; }
  __device__ int phase() const { return phase_; }
  __device__ uint32_t stage() const { return stage_; }
  /// Where the shared memory begins, without a register for it.
  __device__ uint32_t shared(const StepShared& s) const { return barriers_ - s.barriers; }

  __device__ void advance() {
    stage_ += stage_bytes_;
    barrier_ += 16;
    if (stage_ != end_) return;
    stage_ = ring_;
    barrier_ = barriers_;
    phase_ ^= 1;
  }

  /// Before the first use, by all threads of a CTA, which synchronise then. `choice` is the barrier
  /// of experts.
  __device__ void init(const StepShared& s, uint32_t choice) const {
    for (int i = threadIdx.x; i < s.stages; i += blockDim.x) {
      mbarrier_init(barriers_ + i * 16, 1);
      mbarrier_init(barriers_ + i * 16 + 8, kStepWarps);
    }
    if (threadIdx.x == 0) mbarrier_init(choice, 1);
    fence_mbarrier_init();
    if (s.clears_from == stage_bytes_) return;
    for (uint32_t stage = ring_; stage != end_; stage += stage_bytes_) {
      for (int i = s.clears_from + threadIdx.x * 4; i < stage_bytes_; i += blockDim.x * 4) {
        st_shared(stage + i, 0);
      }
    }
    fence_proxy_async();  // copies come after that
  }

 private:
  int stage_bytes_;
  uint32_t ring_;
  uint32_t end_;
  uint32_t barriers_;
  uint32_t stage_;  // shared addresses
  uint32_t barrier_;
  int phase_ = 0;
};

/// The producer. kTileBytes: of the codes of all products; 0: each product says it.
template <int kTileBytes, bool kIsFull>
class StepProducer {
 public:
  /// `weights` of all products, in shared memory.
  __device__ StepProducer(const StepProgram& p, const StepWeights* weights, uint32_t shared)
      : p_(p), weights_(weights), ring_(p.shared, shared) {}

  __device__ void run() {
#pragma unroll 1
    for (int product = 0; product < p_.num_products; ++product) {
      const StepWeights& w = weights_[product];
      if (w.section_units == 0) {
        produce(w);
      } else {
        produce_experts(w);
      }
    }
  }

 private:
  __device__ void produce(const StepWeights& w) {
    const int strips = w.strips.size(blockIdx.x);
    const int64_t strip0 = w.strips.begin(blockIdx.x);
    const int tile_bytes = kTileBytes > 0 ? kTileBytes : w.tile_bytes;
    const uint8_t* const codes = w.codes + strip0 * w.tiles * tile_bytes;
    const uint8_t* const scales = w.scales + strip0 * w.blocks * w.block_scales;
    const uint8_t* const zeros = w.zeros + strip0 * w.blocks * w.block_zeros;
    const int units = w.units;
    UnitPlace at = {0, 0};
    int left = strips * units;
#pragma unroll 1
    while (left > 0) {
      UnitPlace last = at;
      last.advance(min(left, kStageUnits) - 1, units);
      const bool is_short = last.unit + 1 == units;
      const int tile = at.tile(w);
      const int tile_end = last.tile(w) + (is_short ? w.last_tiles : kUnitTiles);
      const int block = at.block(w);
      const int block_end = last.block(w) + (is_short ? w.last_blocks : w.blocks_of_unit);
      mbarrier_wait(ring_.empty(), ring_.phase() ^ 1);
      const uint32_t to = ring_.stage();
      copy(to, codes + tile * tile_bytes, (tile_end - tile) * tile_bytes);
      copy(to + p_.shared.stage_scales, scales + block * static_cast<int>(w.block_scales),
           (block_end - block) * static_cast<int>(w.block_scales));
      if (w.block_zeros > 0) {
        copy(to + p_.shared.stage_zeros, zeros + block * static_cast<int>(w.block_zeros),
             (block_end - block) * static_cast<int>(w.block_zeros));
      }
      end_stage();
      ring_.advance();
      at = last;
      at.advance(1, units);
      left -= kStageUnits;
    }
  }

  /// Units of chosen experts, section after section: of a CTA's first strip on, whole units, each
  /// with scale blocks of its own.
  __device__ void produce_experts(const StepWeights& w) {
    const bool by_rows = w.chooses != 0;
    if (by_rows) mbarrier_wait(ring_.shared(p_.shared) + p_.shared.choice, w.chooses - 1);
    int unit = w.strips.begin(blockIdx.x) * (by_rows ? w.units : w.section_units);
    int slot = by_rows ? unit / w.section_units : 0;
    if (by_rows) unit -= slot * w.section_units;  // of the expert's matrix
    int left_of_section = by_rows ? w.section_units - unit : w.section_units;
    int left = w.strips.size(blockIdx.x) * w.units;
    int done = 0;  // units of the stage
#pragma unroll 1
    while (left > 0) {
      if (done == 0) mbarrier_wait(ring_.empty(), ring_.phase() ^ 1);
      const int count = min(min(left, left_of_section), kStageUnits - done);
      copy_units(w, slot, unit, count, done);
      left -= count;
      done += count;
      if (done == kStageUnits || left == 0) {
        end_stage();
        ring_.advance();
        done = 0;
      }
      unit += count;
      left_of_section -= count;
      if (left_of_section > 0) continue;
      // The next expert: its first strip, or its units of the same strip, or of the next one.
      left_of_section = w.section_units;
      ++slot;
      if (by_rows) {
        unit = 0;
      } else if (slot * w.section_units == w.units) {
        slot = 0;
      } else {
        unit -= w.section_units;
      }
    }
  }

  /// `count` units of the slot-th chosen expert to the stage, from its unit `to_unit` on.
  __device__ void copy_units(const StepWeights& w, int slot, int unit, int count, int to_unit) {
    uint32_t expert;
    ld_shared<1>(&expert, ring_.shared(p_.shared) + p_.shared.experts + slot * 4);
    const bool is_shared = kIsFull && static_cast<int32_t>(expert) == w.shared_number;
    const int64_t from = is_shared ? w.shared_at : static_cast<int64_t>(expert) * w.expert_bytes;
    const uint32_t to = ring_.stage();
    const int codes = kUnitTiles * (kTileBytes > 0 ? kTileBytes : w.tile_bytes);
    copy(to + to_unit * codes, w.codes + from + int64_t{unit} * codes, count * codes);
    const int scales = w.blocks_of_unit * static_cast<int>(w.block_scales);
    copy(to + p_.shared.stage_scales + to_unit * scales, w.scales + from + int64_t{unit} * scales,
         count * scales);
    if (w.block_zeros == 0) return;
    const int zeros = w.blocks_of_unit * static_cast<int>(w.block_zeros);
    copy(to + p_.shared.stage_zeros + to_unit * zeros, w.zeros + from + int64_t{unit} * zeros,
         count * zeros);
  }

  /// To the stage, a multiple of 16 bytes.
  __device__ void copy(uint32_t to, const uint8_t* from, int bytes) {
    cp_async_bulk(to, from, bytes, ring_.full());
    copied_ += bytes;
  }
  __device__ void end_stage() {
    mbarrier_arrive_expect_tx(ring_.full(), copied_);
    copied_ = 0;
  }

  const StepProgram& p_;
  const StepWeights* const weights_;
  RingPlace ring_;
  int copied_ = 0;  // bytes of the stage
};

}  // namespace subbyte::cuda
