#pragma once
// A step of a few single tokens as one kernel: a program, the list of its products and attentions,
// that all CTAs walk together, each with its share of every product. Weights depend on nothing, so
// the ring of a CTA runs across the borders of operations: while it waits for the inputs of one,
// the weights of the next are on their way.
//
//   CTA 0   | product 0 | wait, inputs | attention |  wait  | product 1 | ...
//   ring    |  weights 0, 1 ...      full          |        |  weights 1, 2 ...
//
// A program is plain data, built by the host (build.h) and read by the kernel (kernel.cuh).

#include <cstdint>

#include "kernels/cuda/common/arguments.h"
#include "kernels/cuda/ops/elements.h"

namespace subbyte::cuda {

/// A CTA has three warpgroups that multiply and attend, and one that brings them weights. Nothing
/// may have to leave the registers: memory of the threads would go to the L2 cache, as shared
/// memory takes what the L1 cache has.
inline constexpr int kStepWarps = 12;
inline constexpr int kStepThreads = kStepWarps * kLanes;
inline constexpr int kStepProducers = 4;  // warps
inline constexpr int kStepCtaThreads = kStepThreads + kStepProducers * kLanes;
inline constexpr int kStepTokens = 8;
/// What a warp multiplies at a time, of a strip: a slot of the ring.
inline constexpr int kUnitTiles = 4;
inline constexpr int kUnitCols = kUnitTiles * kTileCols;
inline constexpr int kStepSlotHead = 16;  // bytes before the codes: two mbarriers
inline constexpr int kStepHeads = 8;      // of queries that share a head of keys
inline constexpr int kStepHeadDim = 128;  // at most
inline constexpr int kLeastSplitKeys = 256;
inline constexpr int kMostStepSplits = 32;  // of the keys of a token

/// y = W x: `linear` has weights, y, bias, activation, and x as numbers; or the inputs are the
/// normalised rows of `stream`.
struct StepProduct {
  LinearArguments linear;
  const float* stream;  // [m][cols], or nullptr
  const float* norm;    // [cols], of stream
  float eps;
  float per_col;      // 1 / cols
  int32_t one_group;  // the two tiles of a pair have the same scales
  int32_t sum_cols;   // inputs of a group, which zero points are multiplied by the sum of
  float* residual;    // [m][rows]: what y is added to instead of being stored; or nullptr
};

/// What the ring copies of a product. Scale blocks are of 1, 2 or a multiple of 4 tiles, or of a
/// whole strip: a unit has several, or several units have one.
struct StepWeights {
  const uint8_t* codes;
  const uint8_t* scales;
  const uint8_t* zeros;  // zero points or offsets; nullptr: none are stored
  Parts strips;          // by CTA
  int32_t tiles;         // of a strip
  int32_t units;         // of a strip
  uint32_t per_unit;     // n * per_unit / 2^32, cut, is n / units
  int32_t last_tiles;    // of the last unit of a strip
  int32_t blocks;        // scale blocks of a strip
  int32_t blocks_of_unit;
  int32_t last_blocks;    // of the last unit of a strip
  uint32_t per_block;     // as per_unit, for the units that share a block; 0 where each has its own
  int32_t block_tiles;    // 1, 2, or 4 for all others
  int32_t pair_blocks;    // from the first pair of a unit to the second
  uint32_t block_scales;  // bytes
  uint32_t block_zeros;   // bytes
};

/// Norms, rotary positions and cache as in ops/rotate.h, then attention as in ops/attention.h.
struct StepAttention {
  const void* qkv;  // [m][(heads + 2 kv_heads) * head_dim], not yet turned
  void* y;          // [m][heads * head_dim]
  int32_t heads;
  int32_t kv_heads;
  int32_t head_dim;
  int32_t window;  // 0: none
  float scale;
  float eps;
  const float* q_norm;  // [head_dim] or nullptr
  const float* k_norm;
  const float* sinks;  // [heads] or nullptr
  const float* cos;    // [m][head_dim / 2]
  const float* sin;
  KvLayer cache;  // of the numbers' type
};

struct StepOperation {
  int32_t is_attention;
  StepAttention attention;
  StepProduct product;
};

/// Offsets in the shared memory of a CTA, in bytes. The table of a codebook comes first.
struct StepShared {
  int32_t scale_values;
  int32_t operations;  // [2]: this one and the next
  int32_t weights;     // [products]
  int32_t places;      // [m]
  int32_t sums;        // of the norm, [kStepTokens][kStepWarps] doubles
  int32_t zeros;       // constant zero points of a unit
  int32_t x_sums;      // [groups of a row][kStepTokens]
  int32_t partials;    // [piece][m][kPartialStride]
  int32_t x;           // [m][x_stride]; in attention queries, weights and values
  int32_t x_stride;
  int32_t ring;  // [kStepWarps][slots][slot_bytes]
  int32_t slots;
  int32_t slot_bytes;
  int32_t slot_scales;  // bytes of scales in a slot
  int32_t clears_ring;  // units may be short: what they do not fill must be numbers
  int32_t bytes;
};

struct StepProgram {
  const StepOperation* operations;  // in device memory
  const StepWeights* weights;       // of each product
  int32_t num_operations;
  int32_t num_products;
  int32_t m;
  int32_t most_splits;       // of the keys of a token
  const RowPlace* places;    // [m]
  const int32_t* pages;      // page table of all sequences
  float* partials;           // of attention: [m][kv_heads][most_splits][q_per_kv][head_dim + 2]
  uint32_t* arrived_splits;  // [m][kv_heads], zero
  uint32_t* arrived;         // CTAs at the barrier of the grid, over all launches
  uint32_t arrived_before;
  StepShared shared;
};

/// n / d for n * d < 2^32, where `per` is per_of(d).
constexpr uint32_t per_of(uint32_t d) {
  return d == 1 ? 0 : static_cast<uint32_t>(((uint64_t{1} << 32) + d - 1) / d);
}

/// Floats of what a split of attention leaves for one head of keys.
SUBBYTE_DEVICE constexpr int step_partial_floats(int q_per_kv, int head_dim) {
  return q_per_kv * (head_dim + 2);
}

}  // namespace subbyte::cuda
