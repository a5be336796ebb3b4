#include "ops/step_plan.h"

#include <string_view>

namespace subbyte {
namespace {

std::string to_string(const Weight& weight) {
  return "[" + std::to_string(weight.rows) + "][" + std::to_string(weight.cols) + "]";
}

struct Description {
  std::string operator()(const EmbedOp& op) const { return "embed " + to_string(op.table); }
  std::string operator()(const AddNormOp& op) const {
    return op.delta == kNoValue ? "norm" : "add, norm";
  }
  std::string operator()(const NormOp&) const { return "norm"; }
  std::string operator()(const LinearOp& op) const {
    return (op.exact ? "exact linear " : "linear ") + to_string(op.weight);
  }
  std::string operator()(const GatedLinearOp& op) const {
    return "gated linear " + to_string(op.gate_up);
  }
  std::string operator()(const AnglesOp&) const { return "angles"; }
  std::string operator()(const RotateOp&) const { return "rotate, store"; }
  std::string operator()(const AttendOp& op) const {
    return op.shape.window > 0 ? "attend, window " + std::to_string(op.shape.window) : "attend";
  }
  std::string operator()(const ExpertsOp& op) const {
    return "experts, " + std::to_string(op.experts.top_k) + " of " +
           std::to_string(op.experts.count);
  }
  std::string operator()(const ColumnsOp&) const { return "columns"; }
  std::string operator()(const SigmoidGateOp& op) const {
    return op.base == kNoValue ? "sigmoid gate" : "sigmoid gate, add";
  }
  std::string operator()(const DeltaNetOp& op) const {
    return "gated delta net, " + std::to_string(op.shape.value_heads) + " heads";
  }
  std::string operator()(const LogitsOp&) const { return "logits, choices"; }
};

/// "%3, %4"
std::string names_of(const ValueIds& ids) {
  std::string names;
  for (const ValueId id : ids) {
    if (id != kNoValue) names += (names.empty() ? "%" : ", %") + std::to_string(id);
  }
  return names;
}

}  // namespace

ValueIds Op::operands() const {
  return std::visit([](const auto& op) { return op.operands(); }, what);
}

ValueIds Op::results() const {
  return std::visit([](const auto& op) { return op.results(); }, what);
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
    for (const ValueId id : plan.ops[i].operands()) {
      if (id != kNoValue) readers[id].push_back(static_cast<int64_t>(i));
    }
  }
  return readers;
}

std::string to_string(const StepPlan& plan) {
  std::string text;
  for (const Op& op : plan.ops) {
    const std::string results = names_of(op.results());
    if (!results.empty()) text += results + " = ";
    text += std::visit(Description(), op.what);
    const std::string operands = names_of(op.operands());
    if (!operands.empty()) text += " of " + operands;
    text += "  (" + op.name + ")\n";
  }
  return text;
}

}  // namespace subbyte
