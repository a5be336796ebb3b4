#include "cuda_backend/lowering.h"

#include <gtest/gtest.h>

#include <deque>
#include <utility>

#include "cuda_backend/experts.h"
#include "ops/recorder.h"
#include "support/described_weights.h"

namespace subbyte {
namespace {

using testing::dense;
using testing::kAwq;
using testing::packed;
using testing::weight_of;

constexpr WeightFormat kMxfp4 = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};
constexpr int64_t kHidden = 256;
constexpr int64_t kInner = 512;
constexpr int64_t kVocab = 64;

CudaMatrix packed_gate_up(const WeightFormat& format = kAwq) {
  return packed(2 * kInner, kHidden, format, gpu::RowOrder::kGateAboveUp);
}

/// Gate and up, whose rows lie side by side.
Weight gate_up() {
  return weight_of({packed_gate_up()});
}

Norm norm() {
  return {{kHidden, nullptr}, 1e-6f};
}

/// A dense model of two layers, whose products can be replaced.
struct Layers {
  Weight qkv = weight_of({packed(2 * kHidden, kHidden)});
  Weight o = weight_of({packed(kHidden, kHidden)});
  Weight gate_and_up = gate_up();
  Weight down = weight_of({packed(kHidden, kInner)});

  AttentionShape shape = {4, 2, 64, 0.125f, 0};

  StepPlan plan() const {
    Recorder record;
    ValueId x = record.embed("table", weight_of({dense(kVocab, kHidden)}));
    ValueId delta = kNoValue;
    Recorder::Attention attention;
    attention.shape = shape;
    attention.rope = std::make_shared<const Rope>(shape.head_dim, 1e6);
    for (const char* layer : {"0.", "1."}) {
      record.set_prefix(layer);
      ValueId h = record.add_norm("before", x, delta, norm());
      h = record.attention("attention", record.linear("qkv", h, qkv), attention);
      delta = record.linear("o", h, o);
      h = record.add_norm("after", x, delta, norm());
      delta = record.linear("down", record.gated_linear("gate_up", h, gate_and_up), down);
    }
    record.set_prefix("");
    const ValueId h = record.head_norm("norm", x, delta, norm());
    record.logits("head", h, weight_of({dense(kVocab, kHidden)}));
    return std::move(std::move(record).finish()).value();
  }
};

constexpr ProgramLimits kLimits = {1 << 19, 1 << 20, 32, 8192};

std::string programs(const StepPlan& plan, int64_t tokens = 1, bool attends = true,
                     const ProgramLimits& limits = kLimits, const cuda::Device& device = {}) {
  return to_string(schedule_programs(plan, assign_slots(plan), tokens, attends, device, limits),
                   plan);
}

TEST(Schedule, norms_and_sums_go_into_the_products_of_one_program) {
  EXPECT_EQ(programs(Layers().plan()),
            "launch rotary_emb\n"
            "launch table\n"
            "program\n"
            "  0.qkv, normalises %0\n"
            "  0.attention\n"
            "  0.o, adds to %8\n"
            "  0.gate_up, normalises %8\n"
            "  0.down, adds to %12\n"
            "  1.qkv, normalises %12\n"
            "  1.attention\n"
            "  1.o, adds to %18\n"
            "  1.gate_up, normalises %18\n"
            "  1.down\n"
            "launch norm\n"
            "launch head\n"
            "launch head.logits\n");
}

TEST(Schedule, launches_are_the_operations) {
  const StepPlan plan = Layers().plan();
  std::string apart;
  std::string joined;  // attention with what turns its heads
  std::string turns;
  for (const Op& op : plan.ops) {
    apart += "launch " + op.name + "\n";
    if (std::holds_alternative<RotateOp>(op.what)) {
      turns = ", with " + op.name;
      continue;
    }
    joined += "launch " + op.name + std::exchange(turns, {}) + "\n";
  }
  EXPECT_EQ(to_string(schedule_launches(plan, false), plan), apart);
  EXPECT_EQ(to_string(schedule_launches(plan, true), plan), joined);
  EXPECT_EQ(programs(plan, 9), joined);
  // Where there is no kernel of a step.
  EXPECT_EQ(programs(plan, 1, true, kLimits, {.compute_capability = 80}), joined);
  ProgramLimits few_inputs = kLimits;
  few_inputs.max_inputs = 2 * kInner - 1;
  EXPECT_EQ(programs(plan, 2, true, few_inputs), joined);
  EXPECT_NE(programs(plan, 1, true, few_inputs), joined);
}

TEST(Schedule, what_no_program_has_is_launched_with_the_norms_that_it_reads) {
  Layers layers;
  layers.gate_and_up = weight_of({packed(kInner, kHidden), packed(kInner, kHidden, kMxfp4)});
  EXPECT_EQ(programs(layers.plan()),
            "launch rotary_emb\n"
            "launch table\n"
            "program\n"
            "  0.qkv, normalises %0\n"
            "  0.attention\n"
            "  0.o, adds to %8\n"
            "launch 0.after, of the sum that is there\n"
            "launch 0.gate_up\n"
            "program\n"
            "  0.down, adds to %12\n"
            "  1.qkv, normalises %12\n"
            "  1.attention\n"
            "  1.o, adds to %18\n"
            "launch 1.after, of the sum that is there\n"
            "launch 1.gate_up\n"
            "program\n"
            "  1.down\n"
            "launch norm\n"
            "launch head\n"
            "launch head.logits\n");
}

TEST(Schedule, parts_of_a_product_are_written_side_by_side_and_never_added) {
  Layers layers;
  layers.qkv = weight_of({packed(kHidden, kHidden), packed(kHidden, kHidden)});
  layers.o = weight_of({packed(kHidden / 2, kHidden), packed(kHidden / 2, kHidden)});
  const std::string text = programs(layers.plan());
  EXPECT_NE(text.find("  0.qkv, normalises %0\n  0.qkv from column 256, normalises %0\n"
                      "  0.attention\n  0.o\n  0.o from column 128\n"
                      "launch 0.after\nprogram\n  0.gate_up\n"),
            std::string::npos)
      << text;
}

TEST(Schedule, attention_is_launched_where_the_cache_has_another_type) {
  const std::string text = programs(Layers().plan(), 1, false);
  EXPECT_NE(text.find("program\n  0.qkv, normalises %0\nlaunch 0.attention.rotary_emb\n"
                      "launch 0.attention\nprogram\n  0.o, adds to %8\n"),
            std::string::npos)
      << text;
}

/// Whatever the reason is, who runs the schedule has to know that an attention needs tasks.
TEST(Schedule, says_whether_an_attention_is_launched) {
  const auto launches = [](const Layers& layers, bool attends = true) {
    const StepPlan plan = layers.plan();
    const Schedule schedule = schedule_programs(plan, assign_slots(plan), 1, attends, {}, kLimits);
    EXPECT_TRUE(schedule.has_programs());
    return schedule.launches_attention(plan);
  };
  EXPECT_FALSE(launches({}));
  EXPECT_TRUE(launches({}, false));
  Layers capped;
  capped.shape.cap = 30;
  EXPECT_TRUE(launches(capped));
  Layers of_256;  // the kernel of a step has heads of up to 128
  of_256.shape = {1, 1, 256, 0.0625f, 0};
  of_256.qkv = weight_of({packed(3 * 256, kHidden)});
  of_256.o = weight_of({packed(kHidden, 256)});
  EXPECT_TRUE(launches(of_256));
}

TEST(Schedule, a_table_has_no_more_bytes_than_there_are) {
  ProgramLimits limits = kLimits;
  const StepPlan plan = Layers().plan();
  const ValueSlots slots = assign_slots(plan);
  for (limits.bytes = 0; limits.bytes < 8000; limits.bytes += 500) {
    const Schedule schedule = schedule_programs(plan, slots, 1, true, {}, limits);
    int64_t bytes = 0;
    for (const auto& item : schedule.items) {
      if (const auto* program = std::get_if<ScheduledProgram>(&item)) {
        bytes += program_bytes(*program);
      }
    }
    EXPECT_LE(bytes, limits.bytes);
  }
}

/// x is read by another product after the sum's delta was made, so the sum must wait.
TEST(Schedule, a_sum_waits_for_who_reads_the_stream_before_it) {
  Recorder record;
  ValueId x = record.embed("table", weight_of({dense(kVocab, kHidden)}));
  const Weight square = weight_of({packed(kHidden, kHidden)});
  const ValueId before = x;
  const ValueId a = record.linear("a", record.add_norm("norm a", x, kNoValue, norm()), square);
  ValueId same = before;
  const ValueId h = record.add_norm("norm b", same, kNoValue, norm());
  const ValueId b = record.linear("b", h, square);
  const ValueId c = record.linear("c", record.add_norm("sum", x, a, norm()), square);
  record.add_norm("sum of b", x, b, norm());
  record.logits("head", record.head_norm("norm", x, c, norm()),
                weight_of({dense(kVocab, kHidden)}));
  const StepPlan plan = std::move(std::move(record).finish()).value();
  EXPECT_EQ(programs(plan),
            "launch table\n"
            "program\n"
            "  a, normalises %0\n"
            "  b, normalises %0\n"
            "launch sum\n"
            "program\n"
            "  c\n"
            "launch sum of b\n"
            "launch norm\n"
            "launch head\n"
            "launch head.logits\n");
}

TEST(Schedule, sums_of_experts_are_left_to_the_norm_that_adds_them) {
  Recorder record;
  ValueId x = record.embed("table", weight_of({dense(kVocab, kHidden)}));
  const Experts experts = {8, 2, kHidden, kInner, nullptr};
  const Weight router = weight_of({dense(8, kHidden)});
  const Weight square = weight_of({packed(kHidden, kHidden)});
  ValueId h = record.add_norm("norm", x, kNoValue, norm());
  const ValueId first =
      record.experts("first", h, record.exact_linear("router", h, router), experts);
  h = record.add_norm("sum", x, first, norm());
  // Read by a product, too.
  const ValueId second =
      record.experts("second", h, record.exact_linear("router", h, router), experts);
  const ValueId used = record.linear("used", second, square);
  record.add_norm("sum", x, second, norm());
  record.logits("head", record.head_norm("norm", x, used, norm()),
                weight_of({dense(kVocab, kHidden)}));
  const StepPlan plan = std::move(std::move(record).finish()).value();
  const std::string expected =
      "launch table\n"
      "launch norm\n"
      "launch router\n"
      "launch first, the sum left to a norm\n"
      "launch sum, adds the routes\n"
      "launch router\n"
      "launch second\n"
      "launch used\n"
      "launch sum\n"
      "launch norm\n"
      "launch head\n"
      "launch head.logits\n";
  EXPECT_EQ(to_string(schedule_launches(plan, true), plan), expected);
  EXPECT_EQ(programs(plan, 2), expected) << "programs between experts are short";
  EXPECT_EQ(programs(plan, 1),
            "launch table\n"
            "launch first, normalises norm, multiplies router, the sum left to a norm\n"
            "launch sum, adds the routes\n"
            "launch second, multiplies router\n"
            "launch used\n"
            "launch sum\n"
            "launch norm\n"
            "launch head\n"
            "launch head.logits\n");
  EXPECT_EQ(to_string(schedule_launches(plan, false), plan).find("left"), std::string::npos);
}

/// Experts that are packed as this matrix is, with other scales.
CudaExpertMatrices experts_of(const CudaMatrix& matrix) {
  gpu::PackedFormat format = matrix.format();
  format.largest_scale *= 2;
  return {std::make_shared<const device::PackedExperts>(device::Buffer(), 8, format.bytes, format,
                                                        matrix.number, cuda::Device(), 0),
          {}};
}

/// A mixture of experts and one that every token goes to.
struct MixtureAndShared {
  CudaExperts mixture;
  CudaMatrix gate_up = packed_gate_up();
  CudaMatrix down = packed(kHidden, kInner);
  CudaMatrix router = dense(8, kHidden);

  MixtureAndShared() {
    mixture.gate_up = experts_of(gate_up);
    mixture.down = experts_of(down);
    mixture.top_k = 2;
    mixture.swiglu = {};
    mixture.joins_shared = true;
  }

  StepPlan plan(bool has_gate_first = true) {
    const Experts experts = {8, 2, kHidden, kInner,
                             std::make_shared<const CudaExperts>(std::move(mixture))};
    const Weight of_router = weight_of({std::move(router)});
    const Weight gate_weight = weight_of({dense(1, kHidden)});
    Recorder record;
    ValueId x = record.embed("table", weight_of({dense(kVocab, kHidden)}));
    ValueId h = record.add_norm("norm", x, kNoValue, norm());
    ValueId gate = kNoValue;
    if (has_gate_first) gate = record.exact_linear("gate", h, gate_weight);
    const ValueId sum =
        record.experts("experts", h, record.exact_linear("router", h, of_router), experts);
    if (!has_gate_first) gate = record.exact_linear("gate", h, gate_weight);
    const ValueId inner = record.gated_linear("up", h, weight_of({std::move(gate_up)}));
    const ValueId shared = record.linear("down", inner, weight_of({std::move(down)}));
    const ValueId all = record.sigmoid_gate("shared", shared, gate, sum);
    h = record.add_norm("next", x, all, norm());
    record.logits("head", record.head_norm("last", x, h, norm()),
                  weight_of({dense(kVocab, kHidden)}));
    return std::move(std::move(record).finish()).value();
  }

  /// Without those before and after the layer.
  static std::string of_layer(std::string text) {
    text.erase(text.find("launch last"));
    return text.erase(0, text.find("launch table\n") + 13);
  }

  std::string launches(int64_t tokens, bool has_gate_first = true) {
    return of_layer(programs(plan(has_gate_first), tokens));
  }
};

TEST(Lowering, each_rule_joins_its_own_pattern) {
  const StepPlan plan = MixtureAndShared().plan();
  std::vector<std::string> after;
  for (const LoweringRule& rule : lowering_rules()) {
    after.push_back(MixtureAndShared::of_layer(to_string(lower(plan, 1, {&rule, 1}), plan)));
  }
  const std::string before = "launch norm\nlaunch gate\nlaunch router\n";
  const std::string shared = "launch up\nlaunch down\nlaunch shared\n";
  EXPECT_EQ(after, (std::vector<std::string>{
                       before + "launch experts\n" + shared + "launch next\n",
                       before + "launch experts, with shared\nlaunch next\n",
                       before + "launch experts, the sum left to a norm\nlaunch up\nlaunch down\n"
                                "launch next, adds the routes and shared\n",
                       "launch norm\nlaunch gate\nlaunch experts, multiplies router\n" + shared +
                           "launch next\n",
                       before + "launch experts\n" + shared + "launch next\n",
                       before + "launch experts\n" + shared + "launch next\n",
                       before + "launch experts\n" + shared + "launch next\n"}));
}

constexpr const char* kApart =
    "launch norm\n"
    "launch gate\n"
    "launch router\n"
    "launch experts, the sum left to a norm\n"
    "launch up\n"
    "launch down\n"
    "launch next, adds the routes and shared\n";

TEST(Schedule, the_expert_of_every_token_joins_those_of_a_mixture_for_few_tokens) {
  EXPECT_EQ(MixtureAndShared().launches(2),
            "launch norm\n"
            "launch gate\n"
            "launch router\n"
            "launch experts, with shared, the sum left to a norm\n"
            "launch next, adds the routes\n");
  EXPECT_EQ(MixtureAndShared().launches(kMaxJoinedTokens + 1), kApart);
}

TEST(Schedule, the_way_to_the_experts_of_one_token_is_one_kernel) {
  EXPECT_EQ(MixtureAndShared().launches(1),
            "launch experts, normalises norm, multiplies gate, multiplies router, with shared, the "
            "sum left to a norm\n"
            "launch next, adds the routes\n");
  // Apart, the shared expert has its gate before the experts, a product that reads the norm.
  MixtureAndShared apart;
  apart.mixture.joins_shared = false;
  EXPECT_EQ(apart.launches(1),
            "launch norm\n"
            "launch gate\n"
            "launch experts, multiplies router, the sum left to a norm\n"
            "launch up\n"
            "launch down\n"
            "launch next, adds the routes and shared\n");
  MixtureAndShared packed_router;
  packed_router.router = packed(8, kHidden);
  EXPECT_EQ(packed_router.launches(1),
            "launch norm\n"
            "launch gate\n"
            "launch router\n"
            "launch experts, with shared, the sum left to a norm\n"
            "launch next, adds the routes\n");
}

TEST(Schedule, the_expert_of_every_token_stays_apart_where_it_differs) {
  const auto launches_of = [](const auto& change) {
    MixtureAndShared layer;
    change(layer);
    return layer.launches(2);
  };
  using Layer = MixtureAndShared;
  EXPECT_EQ(launches_of([](Layer& l) { l.mixture.joins_shared = false; }), kApart);
  EXPECT_EQ(launches_of([](Layer& l) { l.mixture.swiglu = kUsualClamp; }), kApart);
  EXPECT_EQ(launches_of([](Layer& l) { l.down = dense(kHidden, kInner); }), kApart);
  EXPECT_EQ(launches_of([](Layer& l) { l.mixture.top_k = cuda::kMaxTopK; }), kApart);
  EXPECT_EQ(launches_of([](Layer& l) { l.gate_up = packed_gate_up(kMxfp4); }), kApart);
  EXPECT_NE(MixtureAndShared().launches(2, false).find("launch experts, the sum left to a norm\n"),
            std::string::npos)
      << "its gate comes after the experts";
}

std::string launches_of_a_delta_net(CudaMatrix gates, int64_t tokens) {
  constexpr DeltaNetShape kShape = {1, 2, 64, 64, 4, 1e-6f, false};
  const auto vector = [](int64_t size) { return Vector{size, nullptr}; };
  const DeltaNetWeights weights = {vector(4 * kShape.channels()), vector(2), vector(2), vector(64)};
  Recorder record;
  ValueId x = record.embed("table", weight_of({dense(kVocab, kHidden)}));
  ValueId h = record.add_norm("norm", x, kNoValue, norm());
  const ValueId qkvz = record.linear("in", h, weight_of({packed(384, kHidden)}));
  const ValueId ba = record.linear("gates", h, weight_of({std::move(gates)}));
  const ValueId y =
      record.add("net", DeltaNetOp{.qkvz = qkvz, .ba = ba, .shape = kShape, .weights = weights});
  const ValueId delta = record.linear("out", y, weight_of({packed(kHidden, 128)}));
  record.logits("head", record.head_norm("last", x, delta, norm()),
                weight_of({dense(kVocab, kHidden)}));
  return programs(std::move(std::move(record).finish()).value(), tokens);
}

TEST(Schedule, gated_delta_nets_are_launches_with_all_that_is_between_them) {
  const std::string expected =
      "launch table\n"
      "launch norm\n"
      "launch in\n"
      "launch gates\n"
      "launch net\n"
      "launch out\n"
      "launch last\n"
      "launch head\n"
      "launch head.logits\n";
  EXPECT_EQ(launches_of_a_delta_net(packed(4, kHidden), 1), expected);
  EXPECT_EQ(launches_of_a_delta_net(dense(4, kHidden), kMaxGateTokens + 1), expected);
}

TEST(Schedule, gated_delta_nets_multiply_their_gates_for_few_tokens) {
  const std::string launches = launches_of_a_delta_net(dense(4, kHidden), kMaxGateTokens);
  EXPECT_NE(launches.find("launch in\nlaunch net, multiplies gates\nlaunch out\n"),
            std::string::npos)
      << launches;
}

TEST(Schedule, sums_over_ranks_go_into_the_norm_that_adds_them) {
  Recorder record;
  ValueId x = record.embed("table", weight_of({dense(kVocab, kHidden)}));
  ValueId h = record.add_norm("before", x, kNoValue, norm());
  const auto sum = [&](ValueId part) {
    const ValueId y = record.next_value();
    record.append("sum", AllReduceOp{y, part});
    return y;
  };
  const ValueId first = sum(record.linear("o", h, weight_of({packed(kHidden, kHidden)})));
  h = record.add_norm("after", x, first, norm());
  const ValueId second = sum(record.linear("down", h, weight_of({packed(kHidden, kHidden)})));
  h = record.head_norm("norm", x, second, norm());  // of other rows than the sum has
  record.logits("head", h, weight_of({dense(kVocab, kHidden)}));
  const StepPlan plan = std::move(std::move(record).finish()).value();
  EXPECT_EQ(to_string(schedule_launches(plan, true), plan),
            "launch table\n"
            "launch before\n"
            "launch o\n"
            "launch after, sums sum\n"
            "launch down\n"
            "launch sum\n"
            "launch norm\n"
            "launch head\n"
            "launch head.logits\n");
}

}  // namespace
}  // namespace subbyte
