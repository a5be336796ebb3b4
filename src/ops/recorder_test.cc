#include "ops/recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <type_traits>

namespace subbyte {
namespace {

Weight weight(int64_t rows, int64_t cols) {
  return {rows, cols, 0, nullptr};
}

Norm norm(int64_t size) {
  return {{size, nullptr}, 1e-6f};
}

Recorder::Attention attention() {
  Recorder::Attention attention;
  attention.shape = {2, 1, 4, 0.5f, 0};
  attention.rope = std::make_shared<const Rope>(4, 1e4);
  return attention;
}

TEST(Recorder, writes_the_operations_in_their_order_with_the_angles_first) {
  Recorder record;
  ValueId x = record.embed("table", weight(100, 8));
  record.set_prefix("layers.0.");
  const ValueId h = record.add_norm("norm", x, kNoValue, norm(8));
  const ValueId qkv = record.linear("qkv", h, weight(16, 8));
  const ValueId heads = record.attention("attention", qkv, attention());
  const ValueId delta = record.linear("o", heads, weight(8, 8));
  record.set_prefix("");
  record.logits("head", record.head_norm("norm", x, delta, norm(8)), weight(100, 8));
  const auto plan = std::move(record).finish();
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(to_string(*plan),
            "%3, %4 = angles  (rotary_emb)\n"
            "%0 = embed [100][8]  (table)\n"
            "%1 = norm of %0  (layers.0.norm)\n"
            "%2 = linear [16][8] of %1  (layers.0.qkv)\n"
            "%5 = rotate, store of %2, %3, %4  (layers.0.attention.rotary_emb)\n"
            "%6 = attend of %5  (layers.0.attention)\n"
            "%7 = linear [8][8] of %6  (layers.0.o)\n"
            "%8 = add, norm of %0, %7  (norm)\n"
            "%9 = linear [100][8] of %8  (head)\n"
            "logits, choices of %9  (head.logits)\n");
  EXPECT_EQ(plan->vocab_size(), 100);
  EXPECT_EQ(plan->memory_of(5), 2);
  EXPECT_EQ(readers_of(*plan)[0], (std::vector<int64_t>{2, 7}));
}

/// As of a model that has norms after blocks alone, and of all heads together.
TEST(Recorder, writes_blocks_that_read_the_stream_itself) {
  Recorder record;
  ValueId x = record.embed("table", weight(100, 8));
  const ValueId h = record.activations("first", x, kNoValue);
  ValueId qkv = record.linear("qkv", h, weight(16, 8));
  qkv = record.norm_columns("q_norm", qkv, 0, norm(8));
  qkv = record.norm_columns("k_norm", qkv, 8, norm(4));
  const ValueId heads = record.attention("attention", qkv, attention());
  const ValueId delta = record.norm("after", record.linear("o", heads, weight(8, 8)), norm(8));
  record.linear("up", record.activations("second", x, delta), weight(8, 8));
  record.logits("head", record.head_norm("norm", x, kNoValue, norm(8)), weight(100, 8));
  const auto plan = std::move(record).finish();
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(to_string(*plan),
            "%5, %6 = angles  (rotary_emb)\n"
            "%0 = embed [100][8]  (table)\n"
            "%1 = activations of %0  (first)\n"
            "%2 = linear [16][8] of %1  (qkv)\n"
            "%3 = norm of 8 from 0 of %2  (q_norm)\n"
            "%4 = norm of 4 from 8 of %3  (k_norm)\n"
            "%7 = rotate, store of %4, %5, %6  (attention.rotary_emb)\n"
            "%8 = attend of %7  (attention)\n"
            "%9 = linear [8][8] of %8  (o)\n"
            "%10 = norm of %9  (after)\n"
            "%11, %12 = add, activations of %0, %10  (second)\n"
            "%13 = linear [8][8] of %12  (up)\n"
            "%14 = norm of %11  (norm)\n"
            "%15 = linear [100][8] of %14  (head)\n"
            "logits, choices of %15  (head.logits)\n");
  EXPECT_EQ(plan->memory_of(7), 2);
  EXPECT_EQ(plan->memory_of(11), 0);
}

TEST(Recorder, layers_of_one_rope_share_their_angles) {
  Recorder record;
  ValueId x = record.embed("table", weight(100, 16));
  const ValueId h = record.add_norm("norm", x, kNoValue, norm(16));
  const auto qkv = [&] { return record.linear("qkv", h, weight(16, 16)); };
  const Recorder::Attention one = attention();
  record.attention("a", qkv(), one);
  record.attention("b", qkv(), one);
  record.attention("c", qkv(), attention());
  record.logits("head", record.head_norm("norm", x, kNoValue, norm(16)), weight(100, 16));
  const auto plan = std::move(record).finish();
  ASSERT_TRUE(plan.ok());
  const auto angles = std::ranges::count_if(
      plan->ops, [](const Op& op) { return std::holds_alternative<AnglesOp>(op.what); });
  EXPECT_EQ(angles, 2);
}

/// The error of a plan that `write` adds operations to, of the stream of floats and its norm.
template <class Write>
std::string error_of(Write write) {
  Recorder record;
  ValueId x = record.embed("table", weight(100, 8));
  const ValueId h = record.add_norm("h", x, kNoValue, norm(8));
  record.set_prefix("layers.3.");
  write(record, x, h);
  record.logits("head", record.head_norm("norm", x, kNoValue, norm(8)), weight(100, 8));
  const auto plan = std::move(record).finish();
  return plan.ok() ? std::string() : plan.error().message;
}

TEST(Recorder, names_the_operation_whose_shapes_do_not_fit) {
  using R = Recorder;
  EXPECT_EQ(error_of([](R&, ValueId&, ValueId) {}), "");
  EXPECT_EQ(error_of([](R& r, ValueId&, ValueId h) { r.logits("all", h, weight(100, 8)); }),
            "layers.3.all: rows of tokens whose logits nobody asks for: expected 0, found 1");
  EXPECT_EQ(error_of([](R& r, ValueId&, ValueId h) { r.linear("up", h, weight(4, 9)); }),
            "layers.3.up: inputs: expected 9, found 8");
  EXPECT_EQ(error_of([](R& r, ValueId& x, ValueId) { r.add_norm("norm", x, kNoValue, norm(7)); }),
            "layers.3.norm: inputs: expected 7, found 8");
  EXPECT_EQ(error_of([](R& r, ValueId& x, ValueId h) {
              r.add_norm("norm", x, r.linear("up", h, weight(4, 8)), norm(8));
            }),
            "layers.3.norm: columns of what is added: expected 8, found 4");
  EXPECT_EQ(error_of([](R& r, ValueId&, ValueId h) { r.gated_linear("gate", h, weight(5, 8)); }),
            "layers.3.gate: rows of gate and up together, by 2 a rest of: expected 0, found 1");
  EXPECT_EQ(error_of([](R& r, ValueId&, ValueId h) { r.norm_columns("k", h, 6, norm(4)); }),
            "layers.3.k: columns of the norm beyond the last: expected 0, found 2");
  EXPECT_EQ(
      error_of([](R& r, ValueId&, ValueId h) { r.attention("attention", h, attention()); }),
      "layers.3.attention.rotary_emb: columns of queries, keys and values: expected 16, found "
      "8");
  EXPECT_EQ(
      error_of([](R& r, ValueId&, ValueId h) {
        r.experts("experts", h, r.exact_linear("router", h, weight(8, 8)), {9, 2, 8, 4, nullptr});
      }),
      "layers.3.experts: experts: expected 9, found 8");
}

/// On a CPU both types are the same; on a GPU rows of floats would be read as numbers of 16 bits.
TEST(Recorder, refuses_a_value_of_another_type_than_the_operation_reads) {
  using R = Recorder;
  EXPECT_EQ(error_of([](R& r, ValueId& x, ValueId) { r.linear("up", x, weight(4, 8)); }),
            "layers.3.up: inputs: expected activations, found floats %0");
  EXPECT_EQ(error_of([](R& r, ValueId& x, ValueId) { r.norm("norm", x, norm(8)); }),
            "layers.3.norm: inputs: expected activations, found floats %0");
  EXPECT_EQ(error_of([](R& r, ValueId&, ValueId h) { r.add_norm("norm", h, kNoValue, norm(8)); }),
            "layers.3.norm: inputs: expected floats, found activations %1");
  EXPECT_EQ(error_of([](R& r, ValueId& x, ValueId h) {
              r.add_norm("norm", x, r.exact_linear("up", h, weight(8, 8)), norm(8));
            }),
            "layers.3.norm: columns of what is added: expected activations, found floats %2");
  EXPECT_EQ(error_of([](R& r, ValueId&, ValueId h) {
              r.experts("experts", h, h, {8, 2, 8, 4, nullptr});
            }),
            "layers.3.experts: experts: expected floats, found activations %1");
  // A gate has either type.
  for (const bool is_exact : {false, true}) {
    EXPECT_EQ(error_of([&](R& r, ValueId&, ValueId h) {
                const Weight one = weight(1, 8);
                r.sigmoid_gate("gated", h,
                               is_exact ? r.exact_linear("g", h, one) : r.linear("g", h, one));
              }),
              "");
  }
}

TEST(Recorder, refuses_a_value_whose_memory_was_taken_over) {
  using R = Recorder;
  EXPECT_EQ(error_of([](R& r, ValueId& x, ValueId h) {
              ValueId before = x;
              r.add_norm("sum", x, h, norm(8));
              r.add_norm("again", before, kNoValue, norm(8));
            }),
            "layers.3.again: reads %0, which layers.3.sum has written over");
  EXPECT_EQ(error_of([](R& r, ValueId&, ValueId h) {
              const ValueId qkv = r.linear("qkv", h, weight(16, 8));
              r.attention("attention", qkv, attention());
              r.linear("up", qkv, weight(4, 16));
            }),
            "layers.3.up: reads %2, which layers.3.attention.rotary_emb has written over");
  EXPECT_EQ(error_of([](R& r, ValueId&, ValueId h) {
              r.sigmoid_gate("gated", h, r.linear("gate", h, weight(8, 8)));
              r.linear("up", h, weight(4, 8));
            }),
            "layers.3.up: reads %1, which layers.3.gated has written over");
  // The sum of the last norm is no value: its memory is lost all the same.
  EXPECT_EQ(error_of([](R& r, ValueId& x, ValueId h) { r.head_norm("last", x, h, norm(8)); }),
            "layers.3.norm: reads %0, which layers.3.last has written over");
}

TEST(Recorder, layers_may_read_keys_that_others_have_stored) {
  const auto plan_of = [](const CacheSlot& source, int64_t head_dim) {
    Recorder record;
    ValueId x = record.embed("table", weight(100, 8));
    const ValueId h = record.add_norm("h", x, kNoValue, norm(8));
    Recorder::Attention layer = attention();
    record.attention("first", record.linear("qkv", h, weight(16, 8)), layer);
    layer.shape.has_keys = false;
    layer.shape.head_dim = head_dim;
    layer.source = source;
    record.attention("second", record.linear("q", h, weight(2 * head_dim, 8)), layer);
    record.logits("head", record.head_norm("norm", x, kNoValue, norm(8)), weight(100, 8));
    return std::move(record).finish();
  };
  const auto plan = plan_of({0, 0}, 4);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  ASSERT_EQ(plan->cache.groups.size(), 1u);
  EXPECT_EQ(plan->cache.groups[0].layers, 1);
  EXPECT_EQ(plan->cache.groups[0].readers, 1);
  // A token reads twice what it keeps.
  EXPECT_EQ(cache_read_bytes(plan->cache, Element::kF32, 10),
            2 * 10 * cache_position_bytes(plan->cache, Element::kF32));
  EXPECT_EQ(plan_of({0, 1}, 4).error().code, "plan.shape");
  EXPECT_EQ(plan_of({1, 0}, 4).error().code, "plan.shape");
  EXPECT_EQ(plan_of({0, 0}, 8).error().code, "plan.shape");
}

/// The message of the refusal of an operation on 8 columns, or "".
template <class Kind>
std::string refusal(Kind op) {
  Recorder record;
  ValueId x = record.embed("table", weight(100, 8));
  const ValueId h = record.add_norm("norm", x, kNoValue, norm(8));
  if constexpr (std::is_same_v<Kind, MambaOp>) {
    op.projections = record.linear("in", h, weight(op.shape.row_size(), 8));
  } else {
    op.x = h;
    op.router_logits = record.exact_linear("router", h, weight(op.experts.count, 8));
  }
  const ValueId y = record.add("op", op);
  record.logits("head", record.head_norm("norm", x, y, norm(8)), weight(100, 8));
  const auto plan = std::move(record).finish();
  return plan.ok() ? "" : plan.error().message;
}

TEST(Recorder, refuses_routers_that_choose_what_is_not_there) {
  const auto with = [](int64_t top_k, int32_t groups, int32_t top_groups) {
    ExpertsOp op = {.experts = {12, top_k, 8, 4, nullptr}};
    op.router.rule.groups = groups;
    op.router.rule.top_groups = top_groups;
    return refusal(op);
  };
  EXPECT_EQ(with(12, 1, 1), "");
  EXPECT_EQ(with(6, 4, 2), "");
  EXPECT_NE(with(13, 1, 1).find("experts of a token: expected 12, found 13"), std::string::npos);
  EXPECT_NE(with(0, 1, 1).find("experts of a token"), std::string::npos);
  EXPECT_NE(with(7, 4, 2).find("experts of a token: expected 6, found 7"), std::string::npos);
  EXPECT_NE(with(2, 5, 1).find("groups of one size"), std::string::npos);
  EXPECT_NE(with(2, 0, 1).find("groups of experts"), std::string::npos);
  EXPECT_NE(with(2, 4, 5).find("groups that are kept"), std::string::npos);
}

TEST(Recorder, refuses_blocks_of_mamba_that_no_machine_has) {
  const auto with = [](auto&& change) {
    MambaOp op = {.shape = {.heads = 2, .head_size = 4, .groups = 1, .state_size = 3, .taps = 2},
                  .has_norm = false};
    change(op.shape);
    const MambaShape& shape = op.shape;
    op.weights.filters.size = shape.taps * shape.channels();
    op.weights.rates.size = op.weights.dt_bias.size = op.weights.d.size = shape.heads;
    return refusal(op);
  };
  EXPECT_EQ(with([](auto&) {}), "");
  EXPECT_NE(with([](auto& s) { s.groups = 0; }).find("by the groups"), std::string::npos);
  EXPECT_NE(with([](auto& s) { s.norm_groups = 3; }).find("of the norm"), std::string::npos);
  EXPECT_NE(with([](auto& s) { s.taps = 17; }).find("taps: expected 16"), std::string::npos);
  EXPECT_NE(with([](auto& s) { s.taps = 0; }).find("taps: expected 1"), std::string::npos);
}

TEST(Recorder, a_plan_ends_with_its_logits) {
  Recorder record;
  record.embed("table", weight(100, 8));
  EXPECT_EQ(std::move(record).finish().error().code, "plan.shape");
}

TEST(Recorder, delta_nets_and_gates_have_the_columns_of_their_operands) {
  const DeltaNetShape shape = {2, 4, 8, 4, 3, 1e-6f, false};
  const auto vector = [](int64_t size) { return Vector{size, nullptr}; };
  const DeltaNetWeights weights = {vector(3 * 48), vector(4), vector(4), vector(4)};
  const auto record_with = [&](int64_t projections, int64_t gate_columns) {
    Recorder record;
    ValueId x = record.embed("table", weight(100, 16));
    const ValueId h = record.add_norm("norm", x, kNoValue, norm(16));
    const ValueId qkvz = record.linear("qkvz", h, weight(projections, 16));
    const ValueId ba = record.linear("ba", h, weight(8, 16));
    ValueId y =
        record.add("delta", DeltaNetOp{.qkvz = qkvz, .ba = ba, .shape = shape, .weights = weights});
    y = record.columns("halves", y, {{8, 8}, {0, 8}});
    const ValueId gate = record.linear("gate", h, weight(gate_columns, 16));
    y = record.sigmoid_gate("gated", y, gate, h);
    record.logits("head", record.head_norm("norm", x, y, norm(16)), weight(100, 16));
    return std::move(record).finish();
  };
  for (const int64_t gate_columns : {1, 16}) {
    const auto plan = record_with(48 + 16, gate_columns);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    ASSERT_EQ(plan->cache.groups.size(), 1u);
    EXPECT_EQ(plan->cache.groups[0].state_size, 2 * 48 + 4 * 8 * 4);
  }
  EXPECT_EQ(record_with(48, 1).error().message,
            "delta: columns of queries, keys, values and gates: expected 64, found 48");
  EXPECT_EQ(record_with(64, 2).error().message, "gated: columns of the gate: expected 16, found 2");
}

}  // namespace
}  // namespace subbyte
