// Which attention takes in what turns its heads, where a step is launches.

#include <gtest/gtest.h>

#include "cuda_backend/lowering.h"
#include "ops/recorder.h"
#include "support/described_weights.h"

namespace subbyte {
namespace {

constexpr int64_t kHidden = 128;

Weight dense(int64_t rows, int64_t cols) {
  return testing::weight_of({testing::dense(rows, cols)});
}

std::string launches(const AttentionShape& shape, int64_t tokens, bool turns = true) {
  Recorder record;
  ValueId x = record.embed("table", dense(64, kHidden));
  const Norm norm = {{kHidden, nullptr}, 1e-6f};
  ValueId h = record.add_norm("before", x, kNoValue, norm);
  Recorder::Attention attention;
  attention.shape = shape;
  if (turns) attention.rope = std::make_shared<const Rope>(shape.head_dim, 1e6);
  h = record.linear("qkv", h, dense(shape.qkv_size(), kHidden));
  h = record.attention("attend", h, attention);
  const ValueId delta = record.linear("o", h, dense(kHidden, shape.result_size()));
  record.logits("head", record.head_norm("norm", x, delta, norm), dense(64, kHidden));
  const StepPlan plan = std::move(std::move(record).finish()).value();
  return to_string(schedule_launches(plan, true, tokens), plan);
}

bool joins(const AttentionShape& shape, int64_t tokens, bool turns = true) {
  return launches(shape, tokens, turns).find("launch attend, with attend.rotary_emb\n") !=
         std::string::npos;
}

constexpr AttentionShape kShape = {4, 2, 64, 0.125f, 0};

TEST(TokenAttention, is_one_launch_for_single_tokens) {
  EXPECT_TRUE(joins(kShape, 1));
  EXPECT_TRUE(joins(kShape, 8));
  EXPECT_TRUE(joins(kShape, 9));
  EXPECT_TRUE(joins(kShape, 0)) << "any number, of which a step says whether they are single";
  AttentionShape window = kShape;
  window.window = 128;
  EXPECT_TRUE(joins(window, 1));
}

TEST(TokenAttention, stays_apart_where_the_kernel_of_a_step_has_no_such_attention) {
  EXPECT_FALSE(joins(kShape, 1, false)) << "nothing turns";
  EXPECT_FALSE(joins({2, 1, 256, 0.0625f, 0}, 1));
  EXPECT_FALSE(joins({9, 1, 64, 0.125f, 0}, 1)) << "heads of queries for one of keys";
  AttentionShape other = kShape;
  other.cap = 30;
  EXPECT_FALSE(joins(other, 1));
  other = kShape;
  other.window = 64;
  other.in_chunks = true;
  EXPECT_FALSE(joins(other, 1));
}

}  // namespace
}  // namespace subbyte
