#pragma once
// Which values of a plan share memory: those that are never needed at the same time.

#include <vector>

#include "ops/step_plan.h"

namespace subbyte {

/// A piece of memory for values of one shape, one after the other.
struct ValueSlot {
  int64_t cols = 0;
  ValueType type = ValueType::kActivation;
  ValueRows rows = ValueRows::kTokens;
};

struct ValueSlots {
  std::vector<ValueSlot> slots;
  std::vector<int32_t> slot_of;  // by value
};

/// A value has its slot from the operation that writes it to the last one that reads it or what
/// lies in its place. An operation never writes to a slot that it reads, but in place.
ValueSlots assign_slots(const StepPlan& plan);

}  // namespace subbyte
