#pragma once
// Tensor parallelism as a pass over a plan: where each rank has a part of a sum, an AllReduceOp
// follows. One rank has nothing to do there, and the results are the same bits.

#include "ops/step_plan.h"
#include "subbyte/function_ref.h"

namespace subbyte {

/// A plan in which an AllReduceOp follows each operation whose result is a part of a sum, as
/// `is_partial` says: products whose inputs are divided between ranks, mixtures of experts. Those
/// that read the result read the sum.
StepPlan with_exchanges(const StepPlan& plan, FunctionRef<bool(const Op&)> is_partial);

}  // namespace subbyte
