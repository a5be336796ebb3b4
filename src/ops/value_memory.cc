#include "ops/value_memory.h"

#include <algorithm>

namespace subbyte {
namespace {

/// The last operation that reads what lies in the memory of each value; by value, of the first one
/// that lies there.
std::vector<int64_t> last_readers(const StepPlan& plan) {
  std::vector<int64_t> last(plan.values.size(), -1);
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    for (const ValueId id : plan.ops[i].inputs) last[plan.memory_of(id)] = static_cast<int64_t>(i);
  }
  return last;
}

bool fits(const ValueSlot& slot, const StepValue& value) {
  return slot.cols == value.cols && slot.type == value.type && slot.rows == value.rows;
}

}  // namespace

ValueSlots assign_slots(const StepPlan& plan) {
  ValueSlots result;
  result.slot_of.assign(plan.values.size(), -1);
  const std::vector<int64_t> last = last_readers(plan);
  std::vector<int64_t> free_after;  // by slot: the last operation that needs what lies there
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const auto op = static_cast<int64_t>(i);
    for (const ValueId id : plan.ops[i].outputs) {
      const ValueId memory = plan.memory_of(id);
      const StepValue& value = plan.value(id);
      if (memory != id) {
        result.slot_of[id] = result.slot_of[memory];
        continue;
      }
      std::size_t slot = 0;
      while (slot < free_after.size() &&
             !(free_after[slot] < op && fits(result.slots[slot], value))) {
        ++slot;
      }
      if (slot == free_after.size()) {
        result.slots.push_back({value.cols, value.type, value.rows});
        free_after.push_back(0);
      }
      free_after[slot] = std::max(last[id], op);
      result.slot_of[id] = static_cast<int32_t>(slot);
    }
  }
  return result;
}

}  // namespace subbyte
