#pragma once
// A step of a few single tokens as one kernel: a program, the list of its products, attentions,
// delta nets and routers, that all CTAs walk together, each with its share of every product. But
// for those of experts, which a choice names, weights depend on nothing, so the ring of a CTA runs
// across the borders of operations: while it waits for the inputs of one, the weights of the next
// are on their way.
//
//   CTA 0   | product 0 | inputs | attention | inputs | product 1 | ...
//   ring    |  weights 0, 1 ...   full       |        |  weights 1, 2 ...
//
// There is no barrier of the grid. A result is a tagged float (exchange.cuh), and whoever needs it
// reads it until it has the tag of this write. A tensor may be written again when all readers of
// the write before have ended, which the writer must know from what it read itself: the host looks
// at that (tensors.h) and begins another program where it does not hold.
//
// A program is plain data, built by the host and read by the kernel (kernel.cuh).

#include <cstdint>

#include "kernels/cuda/common/arguments.h"
#include "kernels/cuda/common/elements.h"
#include "kernels/cuda/delta_net/delta_net.h"
#include "kernels/cuda/exchange/peer_group.h"
#include "kernels/cuda/experts/route.h"

namespace subbyte::cuda {

/// A CTA has three warpgroups that multiply and attend, and one that brings them weights. Nothing
/// may have to leave the registers: memory of the threads would go to the L2 cache, as shared
/// memory takes what the L1 cache has.
inline constexpr int kStepWarps = 12;
inline constexpr int kStepThreads = kStepWarps * kLanes;
inline constexpr int kStepProducers = 4;  // warps
inline constexpr int kStepCtaThreads = kStepThreads + kStepProducers * kLanes;
inline constexpr int kStepTokens = 8;
/// Tiles of a strip that a warp multiplies at a time.
inline constexpr int kUnitTiles = 4;
inline constexpr int kUnitCols = kUnitTiles * kTileCols;
/// Inputs that share a power of two while they are multiplied: four in each lane of a warp.
inline constexpr int kInputGroup = 4 * kLanes;
inline constexpr int kStepHeads = 8;               // of queries that share a head of keys
inline constexpr int kStepHeadDim = 128;           // at most, of a warp
inline constexpr int kStepGatedHeadDim = 256;      // at most, of four warps, where there are gates
inline constexpr int kLongHeadRuns = 3;            // of keys at a time, where four warps have one
inline constexpr int kLeastSplitKeys = 64;         // of one token that has splits,
inline constexpr int kLeastSplitKeysOfMany = 256;  // and of several tokens
inline constexpr int kMaxStepSplits = 32;          // of the keys of a token
inline constexpr int kMaxStepExperts = 1024;
inline constexpr int kRouterPairs = 8;      // of inputs of a router, in a thread
inline constexpr int kMaxRouterRows = 8;    // of a CTA
inline constexpr int kStepDeltaHead = 128;  // numbers of a head of a delta net

/// A tensor as its readers find it: tagged floats of a write in this program, or what was there
/// before it.
struct StepInput {
  enum class Kind : int32_t { kNumbers, kFloats, kTagged };

  const void* data;  // [m][stride]
  int64_t stride;
  Kind kind;
  uint32_t tag;     // of kTagged, from StepProgram::base_tag on
  int32_t in_twos;  // two neighbours can be loaded at once, from an even column on
};

/// Where a result goes besides `y`; nullptr: nowhere.
struct StepResult {
  uint32_t* tagged;  // [m][stride]
  int64_t stride;
  uint32_t tag;
};

/// The logits of a router, or b and a of a delta net: a dense matrix of few rows, of which a CTA
/// has every so many-th.
struct StepRouter {
  StepInput x;
  const float* norm;  // [cols]
  float eps;
  float per_col;        // 1 / cols
  const void* weights;  // [rows][cols], even
  const void* last;     // the last of the rows, where it lies apart; or nullptr
  const float* bias;    // [rows] or nullptr
  Element element;      // of the weights
  int32_t rows;
  int32_t cols;
  int32_t first_cta;  // that has row 0
  StepResult result;
};

/// The product of gate and up of the experts that a router chooses: they have its rows one after
/// the other. Every CTA chooses for itself (experts.cuh).
struct StepExperts {
  ExpertChoice choice;  // of top_k 0: the product is none of experts
  /// One more, after those that are chosen. Its weight is the sigmoid of the last logit.
  SharedExpert shared;
  float shared_down_gain;
  int32_t has_gate;    // else its weight is 1, and experts have all logits
  StepInput logits;    // tagged
  const float* gains;  // [experts], last factors of gate, up and down
  const float* up_gains;
  const float* down_gains;
  uint32_t per_strips;  // n * per_strips / 2^32, cut, is the one that has strip n
};

/// y = W x, of inputs that are normalised (RMS) if there is a norm.
struct StepProduct {
  StepInput x;
  const float* norm;  // [cols] or nullptr
  float eps;
  float per_col;      // 1 / cols
  int32_t one_group;  // the two tiles of a pair have the same scales
  Activation activation;
  SwiGLU swiglu;
  const void* bias;  // [rows], numbers, or nullptr
  float* residual;   // [m][rows]: what y is added to instead of being stored; or nullptr
  void* y;           // [m][y_stride], numbers; nullptr: not stored
  int64_t y_stride;
  StepResult result;  // y, or what the residual is then
  /// Number of the sum over ranks that the result goes through (peers.cuh), before the residual is
  /// added, from 1 on; 0: it is no part of a sum.
  uint32_t exchange;
  WeightArguments weights;
  StepExperts experts;
};

/// Weights of a product as the ring copies them. Scale blocks are of 1, 2 or a multiple of 4 tiles,
/// or of a whole strip: a unit has several, or several units have one.
struct StepWeights {
  const uint8_t* codes;
  const uint8_t* scales;
  const uint8_t* zeros;    // zero points or offsets; nullptr: none are stored
  Parts strips;            // by CTA
  int32_t tile_bytes;      // codes
  int32_t tiles;           // of a strip
  int32_t units;           // of a strip
  int32_t last_tiles;      // of the last unit of a strip
  int32_t units_further;   // from a unit of a warp to its next one,
  int32_t strips_further;  // beside so many strips
  int32_t blocks;          // scale blocks of a strip
  int32_t blocks_of_unit;
  int32_t last_blocks;    // of the last unit of a strip
  uint32_t per_block;     // n * per_block / 2^32, cut, is n / units that share a block; 0: none do
  int32_t block_tiles;    // 1, 2, or 4 for all others
  int32_t pair_blocks;    // from the first pair of a unit to the second
  uint32_t block_scales;  // bytes
  uint32_t block_zeros;   // bytes
  int32_t is_regular;     // all units have four tiles, and scale blocks of their own
  // Of experts that are chosen, all regular: their strips follow each other, or the units of each
  // strip do.
  int64_t expert_bytes;   // from an expert to the next
  int64_t shared_at;      // the expert that every token goes to, from the first one on
  int32_t shared_number;  // of it; -1: there is none
  int32_t section_units;  // that lie side by side, of an expert; 0: there are no experts
  /// 1, or 2 every second time: the product is the first after a choice, and strips follow each
  /// other. 0: units of a strip do.
  int32_t chooses;
};

/// Norms, rotary positions and cache as in ops/rotate.h, then attention as in ops/attention.h.
struct StepAttention {
  StepInput qkv;  // heads of queries, of keys and of values, not yet turned
  void* y;        // [m][heads * head_dim]
  StepResult result;
  int32_t heads;
  int32_t kv_heads;
  int32_t head_dim;
  int32_t
      is_gated;     // each head of queries has a gate next to it, whose sigmoid its result is times
  int32_t turning;  // numbers of a head that turn, even
  int32_t window;   // 0: none
  float scale;
  float eps;
  const float* q_norm;  // [head_dim] or nullptr
  const float* k_norm;
  const float* sinks;  // [heads] or nullptr
  const float* cos;    // [m][turning / 2]
  const float* sin;
  KvLayer cache;  // of the numbers' type
};

/// A gated delta net of one token (delta_net/delta_net.h), of kStepDeltaHead numbers a head.
struct StepDeltaNet {
  StepInput qkvz;  // tagged
  StepInput ba;    // the same
  StepResult result;
  DeltaNetCall net;  // without what it reads, and what the step has of states
};

struct StepOperation {
  enum class Kind : int32_t { kProduct, kAttention, kRouter, kDeltaNet };

  Kind kind;
  StepAttention attention;
  StepRouter router;
  StepDeltaNet delta_net;
  StepProduct product;
};

/// Offsets in the shared memory of a CTA, in bytes. The table of a codebook comes first.
struct StepShared {
  int32_t scale_values;
  int32_t operations;  // [2]: this one and the next
  int32_t weights;     // [products]
  int32_t places;      // [m]
  int32_t state;       // StatePart
  int32_t zeros;       // constant zero points of a unit
  int32_t x_scales;    // of each token and input group, as the product has them
  int32_t x_scales_stride;
  int32_t x_sums;  // of each token and quantization group within a tile
  int32_t x_sums_stride;
  int32_t x_squares;  // [2][m][kStepWarps], of the norm
  int32_t partials;   // [strip][kStepWarps][m][kPartialStride]
  int32_t x;          // [m][x_stride]; in attention queries, weights and values
  int32_t x_stride;
  int32_t experts;   // ChosenExperts, then logits of all
  int32_t choice;    // a barrier: the experts of a layer are chosen
  int32_t barriers;  // [stages][2]
  int32_t ring;      // [stages][stage_bytes]
  int32_t stages;
  int32_t stage_bytes;
  int32_t stage_scales;  // from the begin of a stage
  int32_t stage_zeros;
  /// Units may be short: what no copy fills, from here to the end of a stage, must be numbers, of
  /// scales, and of codes that may be NaN; stage_bytes: none are.
  int32_t clears_from;
  int32_t bytes;
};

struct StepProgram {
  const StepOperation* operations;  // in device memory
  const StepWeights* weights;       // of each product
  int32_t num_operations;
  int32_t num_products;
  int32_t m;
  int32_t max_splits;        // of the keys of a token
  const RowPlace* places;    // [m]; nullptr: no operation is an attention
  const int32_t* pages;      // page table of all sequences
  const StatePart* state;    // of the token; nullptr: no operation is a delta net
  uint32_t base_tag;         // that all tags of the operations are counted from
  float* partials;           // of attention: [m][kv_heads][max_splits][q_per_kv][head_dim + 2]
  uint32_t* arrived_splits;  // [m][kv_heads], zero
  PeerGroup peers;           // of ranks that have this program, too
  uint32_t base_round;       // that exchanges of the operations are counted from
  StepShared shared;
  /// It has delta nets, heads with gates, or experts beside one that every token goes to: their
  /// kernel is another one, as registers and code are shared by all operations of a kernel.
  int32_t is_full;
};

/// n / d is n * per_of(d) / 2^32, cut, for n * d < 2^32; 0 for d = 1.
constexpr uint32_t per_of(uint32_t d) {
  return d == 1 ? 0 : static_cast<uint32_t>(((uint64_t{1} << 32) + d - 1) / d);
}

/// Choice of a layer, as every CTA knows it.
struct ChosenExperts {
  int32_t expert[kMaxTopK];
  float gain[kMaxTopK];
  float up_gain[kMaxTopK];
  float factor[kMaxTopK];  // weight, times the gain of down
};

/// Says whether products go through bytes (integer_dot.cuh); if not, through numbers
/// (float_dot.cuh).
SUBBYTE_DEVICE constexpr bool has_integer_dot(bool has_zeros_beside, int groups_of_tile) {
  return has_zeros_beside && groups_of_tile <= 2;  // an instruction has 32 inputs of a group
}

/// Says whether integers with scales of two levels do, too: their groups lie in the columns of a
/// product that other tokens would have (superblock_dot.cuh).
SUBBYTE_DEVICE constexpr bool has_superblock_dot(bool are_integers_in_superblocks, int tokens) {
  return are_integers_in_superblocks && tokens == 1;
}

/// Bytes of a row of inputs in shared memory, so that rows of several tokens begin in different
/// banks. `cols` is a multiple of kUnitCols.
SUBBYTE_DEVICE constexpr int step_row_bytes(bool integer_dot, int cols) {
  return integer_dot ? 2 * (cols + kTileCols) : 2 * cols + 16;
}

/// Floats of what a split of attention leaves for one head of keys.
SUBBYTE_DEVICE constexpr int step_partial_floats(int q_per_kv, int head_dim) {
  return q_per_kv * (head_dim + 2);
}

}  // namespace subbyte::cuda
