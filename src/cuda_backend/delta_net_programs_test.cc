// Programs of models whose layers are gated delta nets, three of four, and attention of long heads.

#include <gtest/gtest.h>

#include <string>
#include <variant>

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

struct DeltaNets {
  DeltaNetShape shape = {1, 2, 128, 128, 4, 1e-6f, false};
  bool are_gates_dense = true;
  int64_t layers = 3;
  bool is_gated = true;  // attention

  static Norm norm() { return {{kHidden, nullptr}, 1e-6f}; }

  ValueId net(Recorder& record, ValueId h) const {
    const auto vector = [](int64_t size) { return Vector{size, nullptr}; };
    const int64_t rows = shape.channels() + shape.value_width();
    const int64_t heads = 2 * shape.value_heads;
    const ValueId qkvz = record.linear("qkvz", h, weight_of({packed(rows, kHidden)}));
    const CudaMatrix gates = are_gates_dense ? dense(heads, kHidden) : packed(heads, kHidden);
    const ValueId ba = record.linear("ba", h, weight_of({gates}));
    const DeltaNetWeights weights = {vector(shape.taps * shape.channels()),
                                     vector(shape.value_heads), vector(shape.value_heads),
                                     vector(shape.value_size)};
    return record.add("net",
                      DeltaNetOp{.qkvz = qkvz, .ba = ba, .shape = shape, .weights = weights});
  }

  ValueId attention(Recorder& record, ValueId h) const {
    Recorder::Attention attention;
    attention.shape = {2, 1, 256, 0.0625f, 0};
    attention.rope = std::make_shared<const Rope>(64, 1e7);
    ValueId qkv = record.linear("qkv", h, weight_of({packed(is_gated ? 1536 : 1024, kHidden)}));
    ValueId gate = kNoValue;
    if (is_gated) {
      gate = record.columns("gate", qkv, {{256, 256}, {768, 256}});
      qkv = record.columns("heads", qkv, {{0, 256}, {512, 256}, {1024, 512}});
    }
    const ValueId y = record.attention("attention", qkv, attention);
    return is_gated ? record.sigmoid_gate("gated", y, gate) : y;
  }

  StepPlan plan() const {
    Recorder record;
    ValueId x = record.embed("table", weight_of({dense(64, kHidden)}));
    ValueId delta = kNoValue;
    for (int64_t layer = 0; layer < layers; ++layer) {
      record.set_prefix(std::to_string(layer) + ".");
      ValueId h = record.add_norm("before", x, delta, norm());
      const bool is_net = layer % 2 == 0;
      h = is_net ? net(record, h) : attention(record, h);
      const int64_t inputs = is_net ? shape.value_width() : 512;
      delta = record.linear("o", h, weight_of({packed(kHidden, inputs)}));
      h = record.add_norm("after", x, delta, norm());
      const Weight gate_up =
          weight_of({packed(2 * kInner, kHidden, testing::kAwq, gpu::RowOrder::kGateAboveUp)});
      delta = record.linear("down", record.gated_linear("gate_up", h, gate_up),
                            weight_of({packed(kHidden, kInner)}));
    }
    record.set_prefix("");
    const ValueId h = record.head_norm("norm", x, delta, norm());
    record.logits("head", h, weight_of({dense(64, kHidden)}));
    return std::move(std::move(record).finish()).value();
  }

  Schedule schedule(int64_t tokens = 1, bool attends = true) const {
    const StepPlan all = plan();
    return schedule_programs(all, assign_slots(all), tokens, attends, {},
                             {1 << 19, 1 << 20, 32, 8192, kHidden});
  }
  std::string text() const { return to_string(schedule(), plan()); }
};

TEST(DeltaNetPrograms, have_all_layers_with_attention_whose_heads_have_gates) {
  const std::string text = DeltaNets().text();
  EXPECT_EQ(text.substr(text.find("program\n")),
            "program\n"
            "  0.qkvz, normalises %0\n"
            "  0.ba, normalises %0\n"
            "  0.net\n"
            "  0.o, adds to %6\n"
            "  0.gate_up, normalises %6\n"
            "  0.down, adds to %10\n"
            "  1.qkv, normalises %10\n"
            "  1.attention, gated\n"
            "  1.o, adds to %21\n"
            "  1.gate_up, normalises %21\n"
            "  1.down, adds to %25\n"
            "  2.qkvz, normalises %25\n"
            "  2.ba, normalises %25\n"
            "  2.net\n"
            "  2.o, adds to %31\n"
            "  2.gate_up, normalises %31\n"
            "  2.down\n"
            "launch norm\n"
            "launch head\n"
            "launch head.logits\n");
}

TEST(DeltaNetPrograms, know_their_groups_of_the_cache) {
  for (const MachineOp& item : DeltaNets().schedule().items) {
    const auto* const program = std::get_if<ScheduledProgram>(&item);
    if (program == nullptr) continue;
    EXPECT_NE(program->key_group, program->state_group);
    EXPECT_GE(program->key_group, 0);
    EXPECT_GE(program->state_group, 0);
  }
}

TEST(DeltaNetPrograms, find_what_they_read_in_the_program) {
  DeltaNets model;
  model.layers = 1;
  const Schedule schedule = model.schedule();
  int num_nets = 0;
  for (const MachineOp& item : schedule.items) {
    const auto* const program = std::get_if<ScheduledProgram>(&item);
    if (program == nullptr) continue;
    for (const auto& op : program->ops) {
      const auto* const net = std::get_if<ProgramDeltaNet>(&op);
      if (net == nullptr) continue;
      ++num_nets;
      EXPECT_TRUE(net->qkvz.tagged && net->ba.tagged && net->result);
    }
  }
  EXPECT_EQ(num_nets, 1);
}

/// The first CTAs have value heads, those after them rows of b and a.
TEST(DeltaNetPrograms, rows_of_gates_are_on_other_multiprocessors_than_heads) {
  for (const MachineOp& item : DeltaNets().schedule().items) {
    const auto* const program = std::get_if<ScheduledProgram>(&item);
    if (program == nullptr) continue;
    const auto& gates = std::get<ProgramRouter>(program->ops[1]);
    EXPECT_EQ(gates.first_cta, 2);
    EXPECT_EQ(gates.gate, nullptr);
  }
}

TEST(DeltaNetPrograms, all_layers_are_launches_where_one_has_no_form) {
  EXPECT_TRUE(DeltaNets().schedule().has_programs());
  EXPECT_FALSE(DeltaNets().schedule(2).has_programs());
  EXPECT_FALSE(DeltaNets().schedule(1, false).has_programs()) << "a cache of another type";
  EXPECT_FALSE(DeltaNets{.is_gated = false}.schedule().has_programs()) << "long heads";
  DeltaNets model;
  model.are_gates_dense = false;
  EXPECT_FALSE(model.schedule().has_programs());
  for (const DeltaNetShape& shape : {DeltaNetShape{1, 2, 64, 128, 4, 1e-6f, false},
                                     {1, 2, 128, 64, 4, 1e-6f, false},
                                     {1, 2, 128, 128, 3, 1e-6f, false},
                                     {1, 133, 128, 128, 4, 1e-6f, false}}) {
    model = {.shape = shape};
    EXPECT_FALSE(model.schedule().has_programs());
  }
}

}  // namespace
}  // namespace subbyte
