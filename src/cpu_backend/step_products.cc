// Products of a step with the norms before them.
#include <algorithm>
#include <utility>

#include "cpu_backend/gates.h"
#include "cpu_backend/made_norm.h"
#include "cpu_backend/step_runner.h"

namespace subbyte {
namespace {

/// The weight of a product that reads x alone; nullptr: it is none.
const Weight* product_of(const StepPlan& plan, std::size_t i, ValueId x) {
  const auto op = static_cast<int64_t>(i);
  if (const auto* linear = plan.as<LinearOp>(op)) return linear->x == x ? &linear->weight : nullptr;
  const auto* gated = plan.as<GatedLinearOp>(op);
  return gated != nullptr && gated->x == x ? &gated->gate_up : nullptr;
}

NextWeights weights_of(const StepPlan& plan, std::size_t i) {
  const auto op = static_cast<int64_t>(i);
  const auto* linear = plan.as<LinearOp>(op);
  const auto* gated = plan.as<GatedLinearOp>(op);
  if (linear == nullptr && gated == nullptr) return {};
  NextWeights weights;
  for (const Matrix& part : open(linear != nullptr ? linear->weight : gated->gate_up).parts) {
    weights.matrices.push_back(&part.view);
  }
  if (gated != nullptr) weights.set_size = 2;
  return weights;
}

}  // namespace

CpuCompiledStep::CpuCompiledStep(StepPlan step_plan)
    : CompiledStep(std::move(step_plan)), slots_(assign_slots(plan())) {
  const std::size_t count = plan().ops.size();
  for (std::size_t i = 0; i < count; ++i) products_.push_back(weights_of(plan(), i));
  follows_.assign(count, nullptr);
  kept_.resize(count);
  const NextWeights* next = nullptr;
  for (std::size_t i = 2 * count; i-- > 0;) {
    follows_[i % count] = next;
    const bool is_chosen_later = plan().as<ExpertsOp>(static_cast<int64_t>(i % count)) != nullptr;
    if (is_chosen_later) next = nullptr;
    if (!products_[i % count].matrices.empty()) next = &products_[i % count];
  }
  for (std::size_t i = 0; i < count; ++i) {
    joins_next_.push_back(i + 1 < count && (is_norm_of_product(i) || is_rotation_of_attention(i)));
  }
}

bool CpuCompiledStep::is_norm_of_product(std::size_t i) const {
  const auto* norm = plan().as<AddNormOp>(static_cast<int64_t>(i));
  if (norm == nullptr || !norm->norm.is_rms()) return false;
  const Weight* weight = product_of(plan(), i + 1, norm->y);
  if (weight == nullptr) return false;
  const auto is_rotated = [](const Matrix& part) { return part.view.format.rotation != 0; };
  if (std::ranges::any_of(open(*weight).parts, is_rotated)) return false;
  // While some threads write results, others read what the norm is of.
  const auto& slot_of = slots_.slot_of;
  const int32_t results = slot_of[plan().ops[i + 1].outputs.front()];
  return results != slot_of[norm->x] &&
         (norm->delta == kNoValue || results != slot_of[norm->delta]);
}

std::span<const LinearProduct> StepRunner::products_of(ValueId y, ValueId x, const Weight& weight) {
  const CpuWeight& opened = open(weight);
  const std::span<float> results = numbers(y);
  const std::span<const float> from = numbers(x);
  const int64_t m = rows_of(x);
  products_.clear();
  int64_t first = 0;
  for (const Matrix& part : opened.parts) {
    const int64_t rows = part.view.rows;
    LinearProduct product = {results.subspan(first), from, m, &part.view};
    product.bias = opened.bias_of(first, rows);
    product.y_stride = weight.rows;
    products_.push_back(product);
    first += rows;
  }
  return products_;
}

bool CpuCompiledStep::is_rotation_of_attention(std::size_t i) const {
  const auto* rotate = plan().as<RotateOp>(static_cast<int64_t>(i));
  const auto* attend = plan().as<AttendOp>(static_cast<int64_t>(i) + 1);
  if (rotate == nullptr || attend == nullptr || attend->qkv != rotate->y) return false;
  const auto reads_it = [&](const Op& op) {
    return std::ranges::find(op.inputs, rotate->y) != op.inputs.end();
  };
  const AttentionShape& shape = attend->shape;
  return std::ranges::count_if(plan().ops, reads_it) == 1 && attend->selected == kNoValue &&
         attend->latent.heads == 0 && shape.values_in_keys == 0 &&
         shape.heads / shape.kv_heads <= kMostPreparedHeads;
}

bool StepRunner::is_left(const CpuCompiledStep& step, std::size_t i) {
  if (!step.joins_next(i) || batch_->observer != nullptr) return false;
  const auto op = static_cast<int64_t>(i);
  if (const auto* norm = plan_->as<AddNormOp>(op)) {
    const int64_t rows = rows_of(norm->y);
    const bool is_made =
        rows == std::ssize(tokens_) && makes_rows(execution_, rows, plan_->value(norm->y).cols);
    left_norm_ = is_made ? norm : nullptr;
    return is_made;
  }
  const bool are_single = batch_->parts.size() == tokens_.size();
  left_rotation_ = are_single ? plan_->as<RotateOp>(op) : nullptr;
  return are_single;
}

Status StepRunner::multiply(std::span<const LinearProduct> products, LinearPass pass,
                            AfterPart after) {
  pass.next = next_;
  pass.kept = kept_;
  const AddNormOp* const op = std::exchange(left_norm_, nullptr);
  if (op == nullptr) return linear_pass(execution_, products, pass, after);
  MadeNorm norm;
  norm.y = numbers(op->y);
  norm.x = numbers(op->x);
  norm.weight = open(op->norm.weight);
  norm.eps = op->norm.eps;
  if (op->delta != kNoValue) {
    norm.delta = numbers(op->delta);
    norm.sum = sums_.take(std::ssize(norm.x));
    norm.factor = op->factor;
    if (op->scale.size > 0) norm.scale = open(op->scale).front();
  }
  NormMaker maker(execution_, norm);
  const MakeRows make_rows = maker;
  pass.make_rows = &make_rows;
  SUBBYTE_CHECK(linear_pass(execution_, products, pass, after));
  maker.finish();
  if (!norm.sum.empty()) std::swap(slots_[slots_of_values_->slot_of[op->x]], sums_);
  return {};
}

Status StepRunner::run(const LinearOp& op) {
  const std::span<const LinearProduct> products = products_of(op.y, op.x, op.weight);
  if (!op.squares_relu) return multiply(products, {.is_exact = op.exact}, kNothingAfter);
  return multiply(products, {}, [&](const DonePart& part) {
    squared_relu(products[part.set].y, op.weight.rows, part);
  });
}

Status StepRunner::run(const GatedLinearOp& op) {
  const CpuWeight& opened = open(op.gate_up);
  const int64_t inner = op.gate_up.rows / 2;
  const int64_t m = rows_of(op.y);
  const std::span<float> gate = numbers(op.y);
  const std::span<float> x = numbers(op.x);
  const std::span<float> up(execution_.floats(Execution::Slot::kGate, m * inner),
                            static_cast<std::size_t>(m * inner));
  const LinearProduct products[] = {
      {gate, x, m, &opened.parts[0].view, opened.bias_of(0, inner)},
      {up, x, m, &opened.parts[1].view, opened.bias_of(inner, inner)}};
  return multiply(products, {.set_size = 2}, [&](const DonePart& part) {
    apply_gate(execution_.kernels(), op.gate, gate, up, inner, part);
  });
}

}  // namespace subbyte
