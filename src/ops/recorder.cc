#include "ops/recorder.h"

#include <algorithm>
#include <utility>

namespace subbyte {

ValueId Recorder::value(int64_t cols, ValueType type, ValueRows rows, ValueId in_place_of) {
  plan_.values.push_back({cols, type, rows, in_place_of});
  return static_cast<ValueId>(plan_.values.size() - 1);
}

void Recorder::expect(std::string_view name, std::string_view what, int64_t expected,
                      int64_t found) {
  if (error_ || expected == found) return;
  error_ =
      Error{"plan.shape", prefix_ + std::string(name) + ": " + std::string(what) + ": expected " +
                              std::to_string(expected) + ", found " + std::to_string(found)};
}

void Recorder::append(std::string_view name, Operation operation) {
  plan_.ops.push_back({prefix_ + std::string(name), std::move(operation)});
}

ValueId Recorder::embed(std::string_view name, const Weight& table, float factor) {
  const ValueId y = value(table.cols, ValueType::kFloat);
  append(name, EmbedOp{y, table, factor});
  return y;
}

ValueId Recorder::add_norm(std::string_view name, ValueId& x, ValueId delta, const Norm& norm,
                           float factor) {
  expect(name, "numbers of the norm", cols(x), norm.weight.size);
  if (delta != kNoValue) expect(name, "columns of what is added", cols(x), cols(delta));
  AddNormOp op = {kNoValue, kNoValue, x, delta, norm, factor};
  if (delta != kNoValue) {
    op.sum = value(cols(x), ValueType::kFloat, ValueRows::kTokens, x);
    x = op.sum;
  }
  op.y = value(cols(x), ValueType::kActivation);
  append(name, op);
  return op.y;
}

ValueId Recorder::head_norm(std::string_view name, ValueId x, ValueId delta, const Norm& norm,
                            float factor) {
  expect(name, "numbers of the norm", cols(x), norm.weight.size);
  if (delta != kNoValue) expect(name, "columns of what is added", cols(x), cols(delta));
  const ValueId y = value(cols(x), ValueType::kActivation, ValueRows::kHeadRows);
  append(name, AddNormOp{y, kNoValue, x, delta, norm, factor});
  return y;
}

ValueId Recorder::norm(std::string_view name, ValueId x, const Norm& norm) {
  expect(name, "numbers of the norm", cols(x), norm.weight.size);
  const ValueId y = value(cols(x), ValueType::kActivation);
  append(name, NormOp{y, x, norm});
  return y;
}

ValueId Recorder::product(std::string_view name, ValueId x, const Weight& weight, bool exact,
                          ValueType type) {
  expect(name, "inputs", cols(x), weight.cols);
  const ValueRows rows = x < 0 ? ValueRows::kTokens : plan_.value(x).rows;
  const ValueId y = value(weight.rows, type, rows);
  append(name, LinearOp{y, x, weight, exact});
  return y;
}

ValueId Recorder::linear(std::string_view name, ValueId x, const Weight& weight) {
  return product(name, x, weight, false, ValueType::kActivation);
}

ValueId Recorder::exact_linear(std::string_view name, ValueId x, const Weight& weight) {
  return product(name, x, weight, true, ValueType::kFloat);
}

ValueId Recorder::gated_linear(std::string_view name, ValueId x, const Weight& gate_up, Gate gate) {
  expect(name, "inputs", cols(x), gate_up.cols);
  expect(name, "rows of gate and up together, by 2 a rest of", 0, gate_up.rows % 2);
  const ValueId y = value(gate_up.rows / 2, ValueType::kActivation);
  append(name, GatedLinearOp{y, x, gate_up, gate});
  return y;
}

Recorder::Angles Recorder::angles_of(const std::shared_ptr<const Rope>& rope) {
  const auto known = std::ranges::find(angles_, rope.get(), &Angles::rope);
  if (known != angles_.end()) return *known;
  const auto half = static_cast<int64_t>(rope->inv_freq().size());
  const Angles made = {rope.get(), value(half, ValueType::kFloat), value(half, ValueType::kFloat)};
  first_ops_.push_back({"rotary_emb", AnglesOp{made.cos, made.sin, rope}});
  angles_.push_back(made);
  return made;
}

ValueId Recorder::attention(std::string_view name, ValueId qkv, const Attention& attention) {
  const AttentionShape& shape = attention.shape;
  expect(name, "columns of queries, keys and values", shape.q_size() + 2 * shape.kv_size(),
         cols(qkv));
  const auto turning = 2 * static_cast<int64_t>(attention.rope->inv_freq().size());
  expect(name, "numbers that turn beyond those of a head", 0,
         std::max<int64_t>(turning - shape.head_dim, 0));
  for (const Vector* norm : {&attention.norms.q, &attention.norms.k}) {
    if (norm->size != 0) expect(name, "numbers of a head's norm", shape.head_dim, norm->size);
  }
  if (attention.sinks.size != 0) expect(name, "sinks", shape.heads, attention.sinks.size);
  const Angles angles = angles_of(attention.rope);
  const CacheSlot cache = add_to_cache(
      {.kv_heads = shape.kv_heads, .head_dim = shape.head_dim, .window = shape.window});
  const ValueId rotated = value(cols(qkv), ValueType::kActivation, ValueRows::kTokens, qkv);
  append(std::string(name) + ".rotary_emb",
         RotateOp{rotated, qkv, angles.cos, angles.sin, attention.norms, shape, cache});
  const ValueId y = value(shape.q_size(), ValueType::kActivation);
  append(name, AttendOp{y, rotated, shape, cache, attention.sinks});
  return y;
}

ValueId Recorder::experts(std::string_view name, ValueId x, ValueId router_logits,
                          const Experts& experts) {
  expect(name, "inputs", cols(x), experts.hidden);
  expect(name, "experts", experts.count, cols(router_logits));
  const ValueId y = value(experts.hidden, ValueType::kActivation);
  append(name, ExpertsOp{y, x, router_logits, experts});
  return y;
}

ValueId Recorder::columns(std::string_view name, ValueId x, std::vector<ColumnsOp::Range> ranges) {
  int64_t count = 0;
  for (const ColumnsOp::Range& range : ranges) {
    const bool fits = range.first >= 0 && range.count >= 0 && range.first + range.count <= cols(x);
    expect(name, "ranges beyond the columns", 0, fits ? 0 : 1);
    count += range.count;
  }
  const ValueId y = value(count, ValueType::kActivation);
  append(name, ColumnsOp{y, x, std::move(ranges)});
  return y;
}

ValueId Recorder::sigmoid_gate(std::string_view name, ValueId x, ValueId gate, ValueId base) {
  if (cols(gate) != 1) expect(name, "columns of the gate", cols(x), cols(gate));
  if (base != kNoValue) expect(name, "columns of what is added", cols(x), cols(base));
  const ValueId y = value(cols(x), ValueType::kActivation, ValueRows::kTokens, x);
  append(name, SigmoidGateOp{y, x, gate, base});
  return y;
}

ValueId Recorder::delta_net(std::string_view name, ValueId qkvz, ValueId ba,
                            const DeltaNetShape& shape, const DeltaNetWeights& weights) {
  expect(name, "columns of queries, keys, values and gates", shape.channels() + shape.value_width(),
         cols(qkvz));
  expect(name, "columns of b and a", 2 * shape.value_heads, cols(ba));
  expect(name, "numbers of the filters", shape.taps * shape.channels(), weights.filters.size);
  expect(name, "numbers of A_log", shape.value_heads, weights.a_log.size);
  expect(name, "numbers of dt_bias", shape.value_heads, weights.dt_bias.size);
  expect(name, "numbers of the norm", shape.value_size, weights.norm.size);
  const ValueId y = value(shape.value_width(), ValueType::kActivation);
  const CacheSlot cache = add_to_cache({.state_size = shape.state_size()});
  append(name, DeltaNetOp{y, qkvz, ba, shape, weights, cache});
  return y;
}

CacheSlot Recorder::add_to_cache(CacheGroup group) {
  std::vector<CacheGroup>& groups = plan_.cache.groups;
  const auto keeps_the_same = [&](const CacheGroup& other) {
    group.layers = other.layers;
    return group == other;
  };
  auto found = std::ranges::find_if(groups, keeps_the_same);
  if (found == groups.end()) {
    group.layers = 0;
    found = groups.insert(groups.end(), group);
  }
  return {static_cast<int32_t>(found - groups.begin()), found->layers++};
}

void Recorder::logits(std::string_view name, ValueId x, const Weight& head, float factor,
                      float cap) {
  const bool is_of_head = x < 0 || plan_.value(x).rows == ValueRows::kHeadRows;
  expect(name, "rows of tokens whose logits nobody asks for", 0, is_of_head ? 0 : 1);
  const ValueId logits = product(name, x, head, false, ValueType::kFloat);
  append(std::string(name) + ".logits", LogitsOp{logits, factor, cap});
  has_logits_ = true;
}

Result<StepPlan> Recorder::finish() && {
  if (error_) return std::move(*error_);
  if (!has_logits_) return Error{"plan.shape", "a plan whose last operation is not its logits"};
  plan_.ops.insert(plan_.ops.begin(), first_ops_.begin(), first_ops_.end());
  return std::move(plan_);
}

}  // namespace subbyte
