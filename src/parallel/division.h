#pragma once
// What of a step is divided among ranks: by value the columns that each rank makes of it, by
// operation whether it works on a part. The same on all ranks.
//
//   q|k|v = linear h        [columns of heads]    rank 0  q0 q1 k0 v0    rank 1  q2 q3 k1 v1
//   heads = attend q|k|v    [columns of heads]    rank 0  y0 y1          rank 1  y2 y3
//   delta = linear heads    each rank has a part of every sum
//
// Attention, delta nets, blocks of Mamba, short convolutions, dense blocks and experts are divided
// where their heads, channels or inner numbers can be, and what weights read of them can be cut.
// Where they cannot be, every rank does them as a whole, which is always right, between products
// that are divided all the same: of one the outputs, which are put together, of the other the
// inputs.

#include <vector>

#include "ops/step_plan.h"
#include "parallel/mixer_parts.h"
#include "parallel/shares.h"
#include "parallel/weight_cutter.h"

namespace subbyte {

struct Division {
  int ranks = 1;
  std::vector<Parts> made;       // by value; empty: all of it, or a part of each sum
  std::vector<bool> is_divided;  // by operation
  std::vector<Parts> inputs;     // of products that give a part of each sum
  /// By operation that keeps a state: what each rank has of it.
  std::vector<std::vector<MixerPart>> mixers;
  std::vector<bool> divides_cache;  // by group of the cache
};

Division divide(const StepPlan& plan, int ranks, const WeightBorders& borders);

/// The same where one has all of it.
Division undivided(const StepPlan& plan);

}  // namespace subbyte
