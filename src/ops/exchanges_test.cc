#include "ops/exchanges.h"

#include <gtest/gtest.h>

#include "ops/recorder.h"

namespace subbyte {
namespace {

Weight weight(int64_t rows, int64_t cols) {
  return {rows, cols, 0, nullptr};
}

TEST(Exchanges, follow_parts_of_sums_and_are_read_instead) {
  Recorder record;
  const Norm norm = {{16, nullptr}, 1e-6f};
  ValueId x = record.embed("table", weight(100, 16));
  ValueId delta = kNoValue;
  for (int i = 0; i < 2; ++i) {
    const ValueId h = record.add_norm("norm", x, delta, norm);
    delta =
        record.linear("down", record.gated_linear("gate_up", h, weight(64, 16)), weight(16, 32));
  }
  record.logits("head", record.head_norm("last", x, delta, norm), weight(100, 16));
  const StepPlan plan = std::move(std::move(record).finish()).value();
  const StepPlan parallel =
      with_exchanges(plan, [](const Op& op) { return op.name == "down" || op.name == "head"; });

  ASSERT_EQ(parallel.ops.size(), plan.ops.size() + 3);
  const auto readers = readers_of(parallel);
  int exchanges = 0;
  for (std::size_t i = 0; i < parallel.ops.size(); ++i) {
    const auto* const exchange = std::get_if<AllReduceOp>(&parallel.ops[i].what);
    if (exchange == nullptr) continue;
    ++exchanges;
    EXPECT_EQ(parallel.ops[i].name, parallel.ops[i - 1].name + ".all_reduce");
    EXPECT_EQ(parallel.ops[i - 1].results().front(), exchange->x);
    EXPECT_EQ(readers[exchange->x], std::vector<int64_t>{static_cast<int64_t>(i)});
    EXPECT_EQ(readers[exchange->sum].size(), 1u);
    EXPECT_EQ(parallel.memory_of(exchange->sum), exchange->x);
  }
  EXPECT_EQ(exchanges, 3);
}

}  // namespace
}  // namespace subbyte
