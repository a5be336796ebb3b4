#include <gtest/gtest.h>

#include "cuda_backend/lowering.h"
#include "ops/recorder.h"
#include "support/described_weights.h"

namespace subbyte {
namespace {

constexpr int64_t kHidden = 256;

Weight dense(int64_t rows, int64_t cols) {
  return testing::weight_of({testing::dense(rows, cols)});
}

Norm norm() {
  return {{kHidden, nullptr}, 1e-6f};
}

/// A layer as Gemma 4 has it with experts, and the next one's first norm.
StepPlan layer(bool has_dense_norm_last = true) {
  Recorder record;
  ValueId x = record.embed("table", dense(64, kHidden));
  ValueId h = record.add_norm("first", x, kNoValue, norm());
  ValueId delta =
      record.norm("after attention", record.linear("o", h, dense(kHidden, kHidden)), norm());
  h = record.add_norm("before block", x, delta, norm());
  const ValueId scaled = record.add_norm("of router", x, kNoValue, norm());
  const ValueId of_experts = record.add_norm("of experts", x, kNoValue, norm());
  ValueId block = record.linear("block", h, dense(kHidden, kHidden));
  if (!has_dense_norm_last) block = record.norm("after block", block, norm());
  const ValueId mixed = record.experts("experts", of_experts,
                                       record.exact_linear("router", scaled, dense(8, kHidden)),
                                       {8, 2, kHidden, kHidden, nullptr});
  if (has_dense_norm_last) block = record.norm("after block", block, norm());
  const ValueId after = record.norm("after experts", mixed, norm());
  delta = record.norm("after both", record.sigmoid_gate("added", block, kNoValue, after), norm());
  h = record.add_norm("next", x, delta, norm());
  delta = record.linear("q", h, dense(kHidden, kHidden));
  record.logits("head", record.head_norm("norm", x, delta, norm()), dense(64, kHidden));
  return std::move(std::move(record).finish()).value();
}

std::string launches(const StepPlan& plan, int64_t tokens) {
  return to_string(schedule_launches(plan, true, tokens), plan);
}

TEST(JoinedNorms, neighbours_are_one_launch) {
  EXPECT_EQ(launches(layer(), 1),
            "launch table\n"
            "launch first\n"
            "launch o\n"
            "launch before block, with after attention, with of router, with of experts\n"
            "launch block\n"
            "launch router\n"
            "launch experts, the sum left to a norm\n"
            "launch next, with after block, with after experts, with added, with after both, adds "
            "the routes of experts\n"
            "launch q\n"
            "launch norm\n"
            "launch head\n"
            "launch head.logits\n");
}

TEST(JoinedNorms, what_is_no_neighbour_stays_apart) {
  const std::string text = launches(layer(false), 1);
  EXPECT_NE(text.find("launch block\nlaunch after block\nlaunch router\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("launch next, with after experts, with added, with after both, adds the "
                      "routes of experts\n"),
            std::string::npos)
      << text;
}

TEST(JoinedNorms, are_of_one_token) {
  EXPECT_EQ(launches(layer(), 2).find("with"), std::string::npos);
  EXPECT_EQ(launches(layer(), 0).find("with"), std::string::npos);
}

}  // namespace
}  // namespace subbyte
