#include "cuda_backend/program_experts.h"

#include <gtest/gtest.h>

#include <optional>

#include "cuda_backend/experts.h"
#include "ops/recorder.h"
#include "support/described_weights.h"

namespace subbyte {
namespace {

using testing::kAwq;

constexpr WeightFormat kQ4K = {Format::kU4, Format::kU6, Zero::kOffsetU6, 32};
constexpr WeightFormat kQ6K = {Format::kI6, Format::kI8, Zero::kNone, 16};
constexpr WeightFormat kNf4 = {Format::kNF4, Format::kF16, Zero::kNone, 64};
constexpr int64_t kExperts = 8;
constexpr int64_t kVocab = 64;

/// A model of two layers of mixtures, as the backend describes its weights without a GPU.
struct Mixtures {
  int64_t hidden = 256;
  int64_t inner = 512;
  int64_t top_k = 3;
  Format router = Format::kBF16;
  WeightFormat format = kAwq;
  std::optional<WeightFormat> down = {};  // the same
  AttentionShape shape = {4, 2, 64, 0.125f, 0};
  bool has_shared = false;  // an expert that every token goes to, of the format of the others,
  bool has_gate = false;    // with a gate
  Format gate = Format::kBF16;
  bool joins_shared = true;  // what the kernels of this GPU say
  bool is_of_rank = false;   // one of those that have a part of each expert

  Weight packed(int64_t rows, int64_t cols) const {
    return testing::weight_of({testing::packed(rows, cols, format)});
  }

  static Weight dense(int64_t rows, int64_t cols, Format element) {
    return testing::weight_of({testing::dense(rows, cols, element)});
  }

  static CudaExpertMatrices matrices(const CudaMatrix& one) {
    return {std::make_shared<const device::PackedExperts>(device::Buffer(), kExperts,
                                                          one.format().bytes, one.format(),
                                                          one.number, cuda::Device(), 0),
            {}};
  }

  Experts experts() const {
    CudaExperts mixture;
    mixture.gate_up =
        matrices(testing::packed(2 * inner, hidden, format, gpu::RowOrder::kGateAboveUp));
    mixture.down = matrices(testing::packed(hidden, inner, down.value_or(format)));
    mixture.top_k = top_k;
    mixture.joins_shared = joins_shared;
    if (has_shared) mixture.swiglu = {};
    return {kExperts, top_k, hidden, inner,
            std::make_shared<const CudaExperts>(std::move(mixture))};
  }

  StepPlan plan() const {
    const Norm norm = {{hidden, nullptr}, 1e-6f};
    const int64_t cols = shape.heads * shape.head_dim;
    const int64_t kv = shape.kv_heads * shape.head_dim;
    Recorder record;
    ValueId x = record.embed("table", dense(kVocab, hidden, Format::kF16));
    ValueId delta = kNoValue;
    Recorder::Attention attention;
    attention.shape = shape;
    attention.rope = std::make_shared<const Rope>(shape.head_dim, 1e6);
    for (const char* layer : {"0.", "1."}) {
      record.set_prefix(layer);
      ValueId h = record.add_norm("before", x, delta, norm);
      h = record.attention("attention", record.linear("qkv", h, packed(cols + 2 * kv, hidden)),
                           attention);
      delta = record.linear("o", h, packed(hidden, cols));
      h = record.add_norm("after", x, delta, norm);
      ValueId of_shared = kNoValue;
      if (has_gate) of_shared = record.exact_linear("gate", h, dense(1, hidden, gate));
      const ValueId logits = record.exact_linear("router", h, dense(kExperts, hidden, router));
      delta = record.experts("experts", h, logits, experts());
      if (has_shared) delta = beside(record, h, of_shared, delta);
      if (is_of_rank) {
        const ValueId part = delta;
        delta = record.next_value();
        record.append("experts.sum", AllReduceOp{delta, part});
      }
    }
    record.set_prefix("");
    record.logits("head", record.head_norm("norm", x, delta, norm),
                  dense(kVocab, hidden, Format::kF16));
    return std::move(std::move(record).finish()).value();
  }

  ValueId beside(Recorder& record, ValueId h, ValueId of_shared, ValueId sum) const {
    const Weight gate_up = testing::weight_of(
        {testing::packed(2 * inner, hidden, format, gpu::RowOrder::kGateAboveUp)});
    const ValueId both = record.gated_linear("shared gate_up", h, gate_up);
    const ValueId y = record.linear("shared down", both, packed(hidden, inner));
    return record.sigmoid_gate("sum", y, of_shared, sum);
  }

  Schedule schedule(int64_t tokens = 1, bool attends = true, int64_t words = 1 << 19) const {
    return schedule(plan(), tokens, attends, words);
  }
  /// Of a plan whose weights are looked at later.
  Schedule schedule(const StepPlan& of, int64_t tokens = 1, bool attends = true,
                    int64_t words = 1 << 19) const {
    const ProgramLimits limits = {words, 1 << 20, 32, 8192, hidden};
    static const cuda::Device device;  // layouts of programs look at it later, too
    return schedule_programs(of, assign_slots(of), tokens, attends, device, limits);
  }
  bool has_programs() const { return schedule().has_programs(); }
};

TEST(ProgramExperts, layers_with_experts_are_one_program) {
  const Mixtures model;
  const std::string text = to_string(model.schedule(), model.plan());
  EXPECT_EQ(text.substr(text.find("program\n")),
            "program\n"
            "  0.qkv, normalises %0\n"
            "  0.attention\n"
            "  0.o, adds to %8\n"
            "  0.router, normalises %8\n"
            "  0.experts, gate and up, normalises %8\n"
            "  0.experts, down, adds to %12\n"
            "  1.qkv, normalises %12\n"
            "  1.attention\n"
            "  1.o, adds to %18\n"
            "  1.router, normalises %18\n"
            "  1.experts, gate and up, normalises %18\n"
            "  1.experts, down\n"
            "launch norm\n"
            "launch head\n"
            "launch head.logits\n");
}

TEST(ProgramExperts, of_a_rank_sum_over_the_ranks_what_they_add) {
  const Mixtures model{.is_of_rank = true};
  const Schedule schedule = model.schedule();
  const std::string text = to_string(schedule, model.plan());
  EXPECT_NE(text.find("  0.experts, down, sums over the ranks, adds to "), std::string::npos)
      << text;
  EXPECT_NE(text.find("  1.experts, down\nlaunch 1.experts.sum\nlaunch norm\n"), std::string::npos)
      << text;
  EXPECT_EQ(schedule.exchanges(), 1);
}

TEST(ProgramExperts, all_layers_are_launches_where_one_has_no_form) {
  EXPECT_TRUE(Mixtures().has_programs());
  EXPECT_FALSE(Mixtures{.inner = 384}.has_programs()) << "a row ends within a unit";
  EXPECT_FALSE(Mixtures{.top_k = 2}.has_programs()) << "128 strips for 132 multiprocessors";
  EXPECT_FALSE((Mixtures{.down = kQ6K}.has_programs())) << "two kinds of one level and of two";
  EXPECT_FALSE(Mixtures{.format = kNf4}.has_programs()) << "a codebook";
  EXPECT_FALSE((Mixtures{.has_shared = true, .joins_shared = false}.has_programs()))
      << "the sum goes to no norm";
  EXPECT_FALSE(
      (Mixtures{.has_shared = true, .has_gate = true, .gate = Format::kF32}.has_programs()))
      << "a gate of another type than the router";
  EXPECT_FALSE((Mixtures{.shape = {2, 1, 256, 0.125f, 0}}.has_programs())) << "long heads";
  EXPECT_FALSE(Mixtures().schedule(2).has_programs());
  EXPECT_FALSE(Mixtures().schedule(1, false).has_programs());
}

/// It is the last of those that are chosen, and its gate the last row of the router.
TEST(ProgramExperts, an_expert_that_every_token_goes_to_is_one_of_them) {
  for (const bool has_gate : {true, false}) {
    const Mixtures model{.has_shared = true, .has_gate = has_gate};
    const StepPlan plan = model.plan();
    const Schedule schedule = model.schedule(plan);
    const std::string text = to_string(schedule, plan);
    EXPECT_EQ(text.find("shared"), text.find("shared one")) << text;
    EXPECT_EQ(text.find("launch 1"), std::string::npos) << text;
    int num_products = 0;
    for (const MachineOp& item : schedule.items) {
      const auto* const program = std::get_if<ScheduledProgram>(&item);
      if (program == nullptr) continue;
      for (const auto& op : program->ops) {
        if (const auto* const router = std::get_if<ProgramRouter>(&op)) {
          EXPECT_EQ(router->gate != nullptr, has_gate);
        }
        const auto* const product = std::get_if<ProgramProduct>(&op);
        if (product == nullptr || !product->experts) continue;
        ++num_products;
        EXPECT_EQ(product->experts->stacked.chosen, model.top_k + 1);
        const auto weights = program->layout.weights(product->format(), product->arguments(),
                                                     product->experts->stacked);
        EXPECT_EQ(weights.shared_number, kExperts);
      }
    }
    EXPECT_EQ(num_products, 4);
  }
}

TEST(ProgramExperts, of_a_rank_and_one_that_every_token_goes_to_are_one_sum) {
  const Mixtures model{.has_shared = true, .has_gate = true, .is_of_rank = true};
  const Schedule schedule = model.schedule();
  EXPECT_EQ(schedule.exchanges(), 1) << to_string(schedule, model.plan());
}

/// As files of GGUF have them: routers in f32, scales of two levels, and some matrices with more
/// bits than others.
TEST(ProgramExperts, may_have_scales_of_two_levels) {
  EXPECT_TRUE(Mixtures{.router = Format::kF32}.has_programs());
  EXPECT_TRUE((Mixtures{.router = Format::kF32, .format = kQ4K}.has_programs()));
  EXPECT_TRUE((Mixtures{.format = kQ4K, .down = kQ6K}.has_programs()));
}

/// What the experts read of the router, and down of gate and up, has places in the program.
bool has_places(const decltype(ScheduledProgram::ops)& ops, std::size_t router) {
  const auto& gate_up = std::get<ProgramProduct>(ops[router + 1]);
  return std::get<ProgramRouter>(ops[router]).result && gate_up.experts->logits && gate_up.result &&
         std::get<ProgramProduct>(ops[router + 2]).x.tagged;
}

TEST(ProgramExperts, all_layers_are_launches_where_a_choice_has_no_place) {
  int num_choices = 0;
  for (int64_t words = 0; words <= 1 << 15; words += 512) {
    for (const MachineOp& item : Mixtures().schedule(1, true, words).items) {
      const auto* const program = std::get_if<ScheduledProgram>(&item);
      if (program == nullptr) continue;
      for (std::size_t i = 0; i < program->ops.size(); ++i) {
        if (!std::holds_alternative<ProgramRouter>(program->ops[i])) continue;
        ++num_choices;
        ASSERT_LT(i + 2, program->ops.size()) << words;
        EXPECT_TRUE(has_places(program->ops, i)) << words;
      }
    }
  }
  EXPECT_GT(num_choices, 0);
}

/// Each result goes to a place whose readers of before have ended.
TEST(ProgramExperts, a_layer_writes_where_the_one_before_has_been_read) {
  const Schedule schedule = Mixtures().schedule();
  const auto program = std::ranges::find_if(schedule.items, [](const MachineOp& item) {
    return std::holds_alternative<ScheduledProgram>(item);
  });
  ASSERT_NE(program, schedule.items.end());
  const auto& ops = std::get<ScheduledProgram>(*program).ops;
  ASSERT_EQ(ops.size(), 12u);
  for (const std::size_t layer : {0, 6}) {
    const auto& router = std::get<ProgramRouter>(ops[layer + 3]);
    const auto& gate_up = std::get<ProgramProduct>(ops[layer + 4]);
    const auto& down = std::get<ProgramProduct>(ops[layer + 5]);
    ASSERT_TRUE(router.result && gate_up.experts->logits && gate_up.result && down.x.tagged);
    EXPECT_EQ(router.result->begin, gate_up.experts->logits->begin);
    EXPECT_EQ(gate_up.result->begin, down.x.tagged->begin);
    EXPECT_EQ(router.result->tag, layer == 0 ? 1u : 2u);
    EXPECT_EQ(down.x.tagged->tag, layer == 0 ? 1u : 2u);
    EXPECT_EQ(std::get<ScheduledProgram>(*program).layout.shared().experts % 16, 0);
  }
}

}  // namespace
}  // namespace subbyte
