#pragma once
// The plan of one rank: the operations of a whole plan on its parts, and what the ranks exchange
// (ops/exchange.h) where a value of which each has a part is read as a whole.
//
//   whole plan            plan of rank r of 2
//   %1 = norm %0          %1 = norm %0
//   %2 = linear %1        %2 = linear %1 [half of the outputs]
//   %3 = rotate %2        %3 = rotate %2 [half of the heads]
//   %4 = attend %3        %4 = attend %3 [half of the heads]
//   %5 = linear %4        %5 = linear %4 [half of the inputs]
//                         %6 = sum over the ranks of %5
//   %6 = add, norm %5     %7 = add, norm %6

#include "base/status.h"
#include "parallel/division.h"

namespace subbyte {

/// The cache of rank `rank`: with the heads, and the numbers of states, that it has.
CacheLayout cache_of(const StepPlan& plan, const Division& division, int rank);

/// Code plan.shape where a value that is read as a whole is not there in parts.
Result<StepPlan> plan_of_rank(const StepPlan& plan, const Division& division, int rank,
                              WeightCutter& cutter);

}  // namespace subbyte
