// What steps of ranks are on GPUs: programs whose products sum over the ranks.

#include <gtest/gtest.h>

#include <string>

#include "cuda_backend/schedule.h"
#include "ops/recorder.h"
#include "support/described_weights.h"

namespace subbyte {
namespace {

using testing::dense;
using testing::packed;
using testing::weight_of;

constexpr int64_t kHidden = 256;
constexpr int64_t kInner = 512;
constexpr ProgramLimits kLimits = {1 << 19, 1 << 20, 32, 8192, 2 * kHidden};

/// Two layers of one of the ranks, which have a part of each sum.
struct RankLayers {
  Weight down = weight_of({packed(kHidden, kInner)});
  bool gathers = false;  // what attention gives, as ranks do before a norm of all heads

  static Norm norm() { return {{kHidden, nullptr}, 1e-6f}; }

  static ValueId sum(Recorder& record, const char* name, ValueId part) {
    const ValueId y = record.next_value();
    record.append(name, AllReduceOp{y, part});
    return y;
  }
  static ValueId gather(Recorder& record, const char* name, ValueId part, int64_t cols,
                        ValueType type) {
    const ValueId y = record.next_value();
    record.append(name,
                  AllGatherOp{y, part, cols, {{{0, cols / 2}}, {{cols / 2, cols / 2}}}, type});
    return y;
  }

  StepPlan plan() const {
    Recorder record;
    ValueId x = record.embed("table", weight_of({dense(64, kHidden)}));
    ValueId delta = kNoValue;
    Recorder::Attention attention;
    attention.shape = {4, 2, 64, 0.125f, 0};
    attention.rope = std::make_shared<const Rope>(attention.shape.head_dim, 1e6);
    for (const char* layer : {"0.", "1."}) {
      record.set_prefix(layer);
      ValueId h = record.add_norm("before", x, delta, norm());
      const Weight qkv = weight_of({packed(2 * kHidden, kHidden)});
      h = record.attention("attention", record.linear("qkv", h, qkv), attention);
      int64_t inputs = kHidden;
      if (gathers) {
        inputs *= 2;
        h = gather(record, "all", h, inputs, ValueType::kActivation);
      }
      delta = sum(record, "o.sum", record.linear("o", h, weight_of({packed(kHidden, inputs)})));
      h = record.add_norm("after", x, delta, norm());
      const Weight gate_up =
          weight_of({packed(2 * kInner, kHidden, testing::kAwq, gpu::RowOrder::kGateAboveUp)});
      delta = sum(record, "down.sum",
                  record.linear("down", record.gated_linear("gate_up", h, gate_up), down));
    }
    record.set_prefix("");
    const ValueId h = record.head_norm("norm", x, delta, norm());
    record.logits("head", h, weight_of({dense(64, kHidden)}));
    return std::move(std::move(record).finish()).value();
  }

  std::string programs(int64_t tokens = 1, const ProgramLimits& limits = kLimits) const {
    const StepPlan all = plan();
    return to_string(schedule_programs(all, assign_slots(all), tokens, true, {}, limits), all);
  }
  std::string launches() const {
    const StepPlan all = plan();
    return to_string(schedule_launches(all, true, 1), all);
  }
};

TEST(RankPrograms, products_sum_over_the_ranks_what_they_add) {
  EXPECT_EQ(RankLayers().programs(),
            "launch rotary_emb\n"
            "launch table\n"
            "program\n"
            "  0.qkv, normalises %0\n"
            "  0.attention\n"
            "  0.o, sums over the ranks, adds to %9\n"
            "  0.gate_up, normalises %9\n"
            "  0.down, sums over the ranks, adds to %14\n"
            "  1.qkv, normalises %14\n"
            "  1.attention\n"
            "  1.o, sums over the ranks, adds to %21\n"
            "  1.gate_up, normalises %21\n"
            "  1.down\n"
            "launch 1.down.sum\n"
            "launch norm\n"
            "launch head\n"
            "launch head.logits\n");
}

TEST(RankPrograms, sums_are_numbered_in_their_program) {
  const StepPlan plan = RankLayers().plan();
  const Schedule schedule = schedule_programs(plan, assign_slots(plan), 1, true, {}, kLimits);
  EXPECT_EQ(schedule.exchanges(), 3);
  EXPECT_EQ(schedule_launches(plan, true).exchanges(), -1);
  std::vector<uint32_t> exchanges;
  for (const MachineOp& item : schedule.items) {
    const auto* const program = std::get_if<ScheduledProgram>(&item);
    if (program == nullptr) continue;
    EXPECT_EQ(program->exchanges, 3u);
    for (const auto& op : program->ops) {
      const auto* const product = std::get_if<ProgramProduct>(&op);
      if (product != nullptr && product->exchange > 0) exchanges.push_back(product->exchange);
    }
  }
  EXPECT_EQ(exchanges, (std::vector<uint32_t>{1, 2, 3}));
}

TEST(RankPrograms, a_sum_of_more_numbers_than_have_room_makes_all_of_it_launches) {
  EXPECT_NE(RankLayers().programs(2), RankLayers().launches());
  EXPECT_EQ(RankLayers().programs(3), RankLayers().launches());
}

TEST(RankPrograms, what_else_ranks_exchange_makes_all_of_it_launches) {
  RankLayers layers;
  layers.gathers = true;
  EXPECT_EQ(layers.programs(), layers.launches());
}

/// Rows that lie side by side in memory are written by several products, none of which adds.
TEST(RankPrograms, a_sum_that_no_product_adds_makes_all_of_it_launches) {
  RankLayers layers;
  layers.down = weight_of({packed(kHidden / 2, kInner), packed(kHidden / 2, kInner)});
  EXPECT_EQ(layers.programs(), layers.launches());
}

}  // namespace
}  // namespace subbyte
