#include "ops/step_plan.h"

#include <algorithm>
#include <numeric>

namespace subbyte {
namespace {

/// "%3, %4"
std::string names_of(const std::vector<ValueId>& ids) {
  std::string names;
  for (const ValueId id : ids) names += (names.empty() ? "%" : ", %") + std::to_string(id);
  return names;
}

}  // namespace

std::string size_text(const Weight& weight) {
  return "[" + std::to_string(weight.rows) + "][" + std::to_string(weight.cols) + "]";
}

Operands AddNormOp::operands() const {
  const int64_t cols = norm.weight.size;
  Operands all = {reads_floats(x, cols)};
  if (delta != kNoValue) {
    all = {taken_over(all.front()), reads(delta, cols, "columns of what is added")};
  }
  if (scale.size > 0) all.push_back(holds("numbers of the scale", 1, scale.size));
  if (sum != kNoValue) all.push_back(in_place(writes(sum, cols, ValueType::kFloat)));
  all.push_back(holds("biases", norm.bias.size > 0 ? cols : 0, norm.bias.size));
  all.push_back(writes(y, cols));
  all.back().rows = rows;
  return all;
}

Operands AddOp::operands() const {
  Operands all = {reads_floats(x, Operand::kAnyCols)};
  if (delta != kNoValue) {
    all = {taken_over(all.front()), reads(delta, Operand::kAnyCols),
           in_place(writes(sum, Operand::kAnyCols, ValueType::kFloat))};
  }
  all.push_back(writes(y, Operand::kAnyCols));
  return all;
}

Operands NormOp::operands() const {
  const int64_t cols = runs * norm.weight.size;
  const Operand others = holds("norms of another kind than RMS", 0, norm.is_rms() ? 0 : 1);
  if (!first) return {reads(x, cols), others, writes(y, cols)};
  return {taken_over(reads(x, Operand::kAnyCols)), others, in_place(writes(y, Operand::kAnyCols))};
}

std::string NormOp::text() const {
  const std::string size = std::to_string(norm.weight.size);
  if (first) return "norm of " + size + " from " + std::to_string(*first);
  return runs > 1 ? "norm of each " + size : "norm";
}

std::string LinearOp::text() const {
  return (exact ? "exact linear " : "linear ") + size_text(weight) +
         (squares_relu ? ", squared relu" : "");
}

Operands AnglesOp::operands() const {
  const auto half = static_cast<int64_t>(rope->inv_freq().size());
  return {writes(cos, half, ValueType::kFloat), writes(sin, half, ValueType::kFloat)};
}

Operands RotateOp::operands() const {
  Operands all = {taken_over(reads(qkv, shape.qkv_size(), "columns of queries, keys and values"))};
  if (cos != kNoValue) {
    all.push_back(reads_floats(cos, Operand::kAnyCols));
    all.push_back(reads_floats(sin, Operand::kAnyCols));
  }
  for (const Vector* norm : {&norms.q, &norms.k}) {
    if (norm->size > 0)
      all.push_back(holds("numbers of a head's norm", shape.head_dim, norm->size));
  }
  all.push_back(in_place(writes(y, shape.qkv_size())));
  return all;
}

Operands AttendOp::operands() const {
  Operands all = {reads(qkv, shape.qkv_size())};
  const bool selects = selected != kNoValue;
  if (selects) all.push_back(reads_floats(selected, shape.top, "selected positions"));
  all.push_back(holds("selected positions", selects ? shape.top : 0, shape.top));
  all.push_back(holds("heads of keys with values in them, where positions are selected",
                      selects ? 1 : 0, selects && shape.values_in_keys > 0 ? 1 : 0));
  all.push_back(holds("sinks", sinks.size > 0 ? shape.heads : 0, sinks.size));
  all.push_back(holds("heads of keys with values in them",
                      shape.values_in_keys > 0 ? 1 : shape.kv_heads, shape.kv_heads));
  all.push_back(holds("rows of the matrix of keys", latent.heads * latent.rank, latent_keys.rows));
  all.push_back(
      holds("rows of the matrix of values", latent.heads * latent.value, latent_values.rows));
  all.push_back(writes(y, shape.result_size()));
  return all;
}

std::string AttendOp::text() const {
  if (shape.top > 0) return "attend, selected " + std::to_string(shape.top);
  if (shape.window == 0) return "attend";
  return (shape.in_chunks ? "attend, chunks of " : "attend, window ") +
         std::to_string(shape.window);
}

Operands HeadsLinearOp::operands() const {
  Operands all = {reads(x, heads * (weight.cols + kept)),
                  holds("rows of the weights, by the heads a rest of", 0, weight.rows % heads)};
  if (rest != kNoValue) all.push_back(reads(rest, rest_cols, "columns after the heads"));
  all.push_back(writes(y, weight.rows + heads * kept + rest_cols));
  return all;
}

std::string HeadsLinearOp::text() const {
  return "linear of " + std::to_string(heads) + " heads " + size_text(weight);
}

Operands ExpertsOp::operands() const {
  const auto of_each = [&](std::string_view what, const Vector& numbers) {
    return holds(what, numbers.size > 0 ? experts.count : 0, numbers.size);
  };
  const int64_t groups = router.rule.groups;
  const int64_t in_group = groups > 0 ? experts.count / groups : 0;
  return {reads(x, experts.hidden),
          reads_floats(router_logits, experts.count, "experts"),
          holds_some("experts of a token", experts.top_k),
          holds_some("groups of experts", groups),
          holds_at_most("groups of experts", Routing::kMaxGroups, groups),
          holds("experts in groups of one size", in_group * groups, experts.count),
          holds_at_most("groups that are kept", groups, router.rule.top_groups),
          holds_at_most("experts of a token", router.rule.top_groups * in_group, experts.top_k),
          of_each("biases of the choice", router.biases),
          of_each("factors of experts", router.factors),
          writes(y, experts.hidden)};
}

std::string ExpertsOp::text() const {
  return "experts, " + std::to_string(experts.top_k) + " of " + std::to_string(experts.count);
}

Operands ColumnsOp::operands() const {
  const auto add = [](int64_t sum, const Range& range) { return sum + range.count; };
  return {reads(x, Operand::kAnyCols),
          writes(y, std::accumulate(ranges.begin(), ranges.end(), int64_t{0}, add))};
}

Operands SigmoidGateOp::operands() const {
  Operands all = {taken_over(reads(x, Operand::kAnyCols))};
  if (gate != kNoValue) all.push_back({.value = gate});
  if (base != kNoValue) all.push_back(reads(base, Operand::kAnyCols));
  all.push_back(in_place(writes(y, Operand::kAnyCols)));
  return all;
}

ValueId StepPlan::memory_of(ValueId id) const {
  while (value(id).in_place_of != kNoValue) id = value(id).in_place_of;
  return id;
}

int64_t StepPlan::vocab_size() const {
  const auto* const last = std::get_if<LogitsOp>(&ops.back().what);
  return last == nullptr ? 0 : value(last->logits).cols;
}

std::vector<std::vector<int64_t>> readers_of(const StepPlan& plan) {
  std::vector<std::vector<int64_t>> readers(plan.values.size());
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    for (const ValueId id : plan.ops[i].inputs) readers[id].push_back(static_cast<int64_t>(i));
  }
  return readers;
}

std::string to_string(const StepPlan& plan) {
  std::string text;
  for (const Op& op : plan.ops) {
    if (!op.outputs.empty()) text += names_of(op.outputs) + " = ";
    text += std::visit([](const auto& what) { return what.text(); }, op.what);
    if (!op.inputs.empty()) text += " of " + names_of(op.inputs);
    text += "  (" + op.name + ")\n";
  }
  return text;
}

}  // namespace subbyte
