#include "ops/value_memory.h"

#include <gtest/gtest.h>

#include "ops/recorder.h"

namespace subbyte {
namespace {

Weight weight(int64_t rows, int64_t cols) {
  return {rows, cols, 0, nullptr};
}

Norm norm(int64_t size) {
  return {{size, nullptr}, 1e-6f};
}

/// Several layers whose results have as many columns as the stream.
StepPlan plan_of(int layers) {
  Recorder record;
  ValueId x = record.embed("table", weight(100, 16));
  ValueId delta = kNoValue;
  for (int i = 0; i < layers; ++i) {
    const ValueId h = record.add_norm("norm", x, delta, norm(16));
    const ValueId gated = record.gated_linear("gate_up", h, weight(64, 16));
    delta = record.linear("down", gated, weight(16, 32));
  }
  record.logits("head", record.head_norm("norm", x, delta, norm(16)), weight(100, 16));
  return std::move(std::move(record).finish()).value();
}

TEST(ValueMemory, layers_use_the_same_memory) {
  for (const int layers : {1, 2, 9}) {
    // The stream, h and delta, gated; the inputs of the head and the logits.
    EXPECT_EQ(assign_slots(plan_of(layers)).slots.size(), layers == 1 ? 5u : 6u) << layers;
  }
}

/// Replays the plan with a note in each slot of who wrote it last.
TEST(ValueMemory, nobody_writes_over_what_will_be_read) {
  Recorder record;
  ValueId x = record.embed("table", weight(100, 16));
  const ValueId first = record.add_norm("norm", x, kNoValue, norm(16));
  const ValueId a = record.linear("a", first, weight(16, 16));
  const ValueId b = record.linear("b", first, weight(16, 16));
  const ValueId c = record.linear("c", a, weight(16, 16));
  record.add_norm("sum", x, b, norm(16));
  const ValueId d = record.linear("d", first, weight(16, 16));
  record.add_norm("sum", x, c, norm(16));
  record.logits("head", record.head_norm("norm", x, d, norm(16)), weight(100, 16));
  const StepPlan plan = std::move(std::move(record).finish()).value();
  const ValueSlots slots = assign_slots(plan);
  std::vector<ValueId> holds(slots.slots.size(), kNoValue);
  for (const Op& op : plan.ops) {
    for (const ValueId id : op.inputs) {
      EXPECT_EQ(holds[slots.slot_of[id]], id) << op.name;
      for (const ValueId result : op.outputs) {
        if (plan.memory_of(result) == plan.memory_of(id)) continue;
        EXPECT_NE(slots.slot_of[result], slots.slot_of[id]) << op.name;
      }
    }
    for (const ValueId id : op.outputs) {
      const ValueSlot& slot = slots.slots[slots.slot_of[id]];
      EXPECT_EQ(slot.cols, plan.value(id).cols);
      EXPECT_EQ(slot.type, plan.value(id).type);
      EXPECT_EQ(slot.rows, plan.value(id).rows);
      holds[slots.slot_of[id]] = id;
    }
  }
}

}  // namespace
}  // namespace subbyte
