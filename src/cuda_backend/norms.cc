// Norms and residual sums of a step: from operations to the kernels.

#include "kernels/cuda/elementwise/norm.h"

#include <algorithm>

#include "cuda_backend/step_runner.h"

namespace subbyte {

cuda::AddNormCall CudaStepRunner::norm_call(const AddNormOp& op) const {
  cuda::AddNormCall call;
  call.y = at(op.y);
  call.x = floats(op.x);
  if (op.rows == ValueRows::kHeadRows) call.rows = step_.head_rows();
  call.weight = floats_of(op.norm.weight);
  call.bias = floats_of(op.norm.bias);
  call.is_centred = op.norm.is_centred;
  call.num_rows = rows_of(op.y);
  call.cols = plan_->value(op.y).cols;
  call.eps = op.norm.eps;
  call.factor = op.factor;
  call.scale = floats_of(op.scale);
  call.element = element();
  return call;
}

cuda::AddNormCall CudaStepRunner::add_norm_call(const AddNormOp& op) const {
  cuda::AddNormCall call = norm_call(op);
  if (op.delta != kNoValue) call.delta = at(op.delta);
  return call;
}

Status CudaStepRunner::launch(const AddNormOp& op) {
  cuda::run_add_norm(add_norm_call(op), stream_);
  return {};
}

Status CudaStepRunner::launch(const SummedNorm& item) {
  cuda::run_add_norm(norm_call(plan_op<AddNormOp>(item.op)), stream_);
  return {};
}

Status CudaStepRunner::launch(const RoutedNorm& item) {
  cuda::AddNormCall call = norm_call(plan_op<AddNormOp>(item.op));
  call.routes = routes_;
  if (item.gated >= 0) {
    const auto& gated = plan_op<SigmoidGateOp>(item.gated);
    call.gated = {at(gated.x), gate_of(gated)};
  }
  cuda::run_add_norm(call, stream_);
  return {};
}

/// Of `id`, which the operation `norm` gives unless that is -1; `experts` have left their sum.
cuda::NormTerm CudaStepRunner::norm_term(ValueId id, int64_t norm, int64_t experts) const {
  cuda::NormTerm term;
  if (norm >= 0) {
    const auto& op = plan_op<NormOp>(norm);
    term.weight = floats_of(op.norm.weight);
    term.eps = op.norm.eps;
    id = op.x;
  }
  if (experts >= 0 && plan_op<ExpertsOp>(experts).y == id) {
    term.routes = routes_;
  } else {
    term.x = at(id);
  }
  return term;
}

cuda::JoinedNormsCall CudaStepRunner::joined_norms_call(const JoinedNorms& item) const {
  const auto& add = plan_op<AddNormOp>(item.op);
  cuda::JoinedNormsCall call;
  ValueId delta = add.delta;
  if (item.of_sum >= 0) {
    const auto& norm = plan_op<NormOp>(item.of_sum);
    call.weight = floats_of(norm.norm.weight);
    call.eps = norm.norm.eps;
    delta = norm.x;
  }
  if (item.added < 0) {
    call.terms[0] = norm_term(delta, -1, item.experts);
  } else {
    const auto& sum = plan_op<SigmoidGateOp>(item.added);
    call.terms[0] = norm_term(sum.x, item.terms[0], item.experts);
    call.terms[1] = norm_term(sum.base, item.terms[1], item.experts);
  }
  call.x = floats(add.x);
  call.factor = add.factor;
  call.scale = floats_of(add.scale);
  call.results[0] = {at(add.y), floats_of(add.norm.weight), add.norm.eps};
  for (std::size_t i = 0; i < item.more.size(); ++i) {
    const auto& other = plan_op<AddNormOp>(item.more[i]);
    call.results[i + 1] = {at(other.y), floats_of(other.norm.weight), other.norm.eps};
  }
  call.cols = plan_->value(add.y).cols;
  call.element = element();
  return call;
}

Status CudaStepRunner::launch(const JoinedNorms& item) {
  const cuda::JoinedNormsCall call = joined_norms_call(item);
  if (cuda::serves_joined_norms(call)) {
    cuda::run_joined_norms(call, stream_);
    return {};
  }
  if (item.experts >= 0) {
    const CudaRows y = activations(plan_op<ExpertsOp>(item.experts).y);
    cuda::run_add_routes({y.data, routes_, element(), y.rows, y.cols}, stream_);
  }
  SUBBYTE_CHECK(launch_apart({std::min(item.terms[0], item.terms[1]),
                              std::max(item.terms[0], item.terms[1]), item.added, item.of_sum}));
  SUBBYTE_CHECK(launch(plan_op<AddNormOp>(item.op)));
  for (const int64_t op : item.more) SUBBYTE_CHECK(launch_apart({op}));
  return {};
}

Status CudaStepRunner::launch(const AddOp& op) {
  const void* const delta = op.delta == kNoValue ? nullptr : at(op.delta);
  cuda::run_add(at(op.y), floats(op.x), delta, op.factor, element(),
                rows_of(op.y) * plan_->value(op.y).cols, stream_);
  return {};
}

Status CudaStepRunner::launch(const NormOp& op) {
  const cuda::NormCall call = {.y = at(op.y),
                               .x = at(op.x),
                               .weight = floats_of(op.norm.weight),
                               .num_rows = rows_of(op.y),
                               .stride = plan_->value(op.y).cols,
                               .first = op.first.value_or(0),
                               .cols = op.norm.weight.size,
                               .runs = op.runs,
                               .eps = op.norm.eps,
                               .element = element()};
  cuda::run_norm(call, stream_);
  return {};
}

}  // namespace subbyte
