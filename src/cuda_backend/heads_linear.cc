// Products of heads of a step: from the operation to the kernels.

#include "kernels/cuda/dense/heads_linear.h"

#include "cuda_backend/step_runner.h"

namespace subbyte {

Status CudaStepRunner::launch(const HeadsLinearOp& op) {
  const device::PackedMatrix& weights = *cuda_weight(op.weight).parts.front().weights;
  cuda::HeadsLinearCall call;
  call.weights = weights.memory().data();
  call.weights_element = weights.element();
  call.x = at(op.x);
  if (op.rest != kNoValue) call.rest = at(op.rest);
  call.y = at(op.y);
  call.element = element();
  call.m = rows_of(op.y);
  call.heads = static_cast<int32_t>(op.heads);
  call.outputs = static_cast<int32_t>(op.outputs());
  call.inputs = static_cast<int32_t>(op.weight.cols);
  call.kept = static_cast<int32_t>(op.kept);
  call.rest_cols = static_cast<int32_t>(op.rest_cols);
  call.batch_invariant = options_.batch_invariant;
  cuda::run_heads_linear(call, stream_);
  return {};
}

}  // namespace subbyte
