#pragma once
// A step cut into stages, each of which has some of its layers (pipeline parallelism). What goes
// from a stage to the next is what operations after the cut read of values before it: mostly the
// residual stream and what the last block adds to it. Angles are computed anew where they are read.
//
//   whole plan                 stage 0                stage 1
//   %0 = embed                 %0 = embed
//   ... layers.0, layers.1     ... layers.0, layers.1
//                              send %7, %8            %7, %8 = receive
//   ... layers.2, layers.3                            ... layers.2, layers.3
//   norm, logits                                      norm, logits
//
// Layers are the operations whose names begin with "layers.N."; what comes after the last of them
// is one more, the head. What a layer keeps of a sequence and another one reads, both have in one
// stage.

#include <string>
#include <vector>

#include "base/status.h"
#include "ops/step_plan.h"

namespace subbyte {

struct Stage {
  std::size_t begin = 0, end = 0;            // operations of the whole plan
  int64_t first_layer = 0, last_layer = -1;  // that it has; the number of all stands for the head
  int64_t num_layers = 0;                    // of the whole plan, without the head

  bool has_head() const { return last_layer == num_layers; }
};

/// "layers 0 to 17", "layers 18 to 35 and the head"
std::string to_string(const Stage& stage);

/// So many stages with a layer each at least, of which the largest has as few bytes of weights as
/// possible, as handles have them; the embedding does not count, as a step reads some rows of it.
/// Code device.stages.
Result<std::vector<Stage>> even_stages(const StepPlan& plan, int stages);

/// Two stages, of which the second one has the last `layers` layers, the head among them; 1 to the
/// number of the layers. Code device.stages.
Result<std::vector<Stage>> stages_with_last(const StepPlan& plan, int64_t layers);

/// Bytes of the matrices of a stage, as handles have them, and its cache.
struct StageParts {
  int64_t weight_bytes = 0;
  CacheLayout cache;
};
StageParts parts_of(const StepPlan& plan, const Stage& stage);

/// The operations of a stage on values of the whole plan, with a cache of its own.
StepPlan plan_of_stage(const StepPlan& plan, const Stage& stage);

}  // namespace subbyte
