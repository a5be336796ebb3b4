// Products of heads of a step: from the operation to the kernels.

#include "kernels/cuda/dense/heads_linear.h"

#include "cuda_backend/step_runner.h"

namespace subbyte {

Status CudaStepRunner::launch(const HeadsLinearOp& op) {
  const cuda::ExpandedSizes latents = expanded_sizes(op.latent, compiled_->has_16bit_latents());
  for (const cuda::ExpandedRows& rows : step_.expanded_rows(latents)) {
    if (rows.are_expanded) {
      has_expanded_ = true;
      move_heads(op, rows.first, rows.count);
    } else {
      multiply_heads(op, rows.first, rows.count);
    }
  }
  return {};
}

void CudaStepRunner::multiply_heads(const HeadsLinearOp& op, int64_t first, int64_t rows) {
  const device::PackedMatrix& weights = *cuda_weight(op.weight).parts.front().weights;
  cuda::HeadsLinearCall call;
  call.weights = weights.memory().data();
  call.weights_element = weights.element();
  call.x = row_at(op.x, first);
  if (op.rest != kNoValue) call.rest = row_at(op.rest, first);
  call.y = row_at(op.y, first);
  call.element = element();
  call.m = rows;
  call.heads = static_cast<int32_t>(op.heads);
  call.outputs = static_cast<int32_t>(op.outputs());
  call.inputs = static_cast<int32_t>(op.weight.cols);
  call.kept = static_cast<int32_t>(op.kept);
  call.rest_cols = static_cast<int32_t>(op.rest_cols);
  call.batch_invariant = options_.batch_invariant;
  cuda::run_heads_linear(call, stream_);
}

/// Queries, which have a rest, to the end of the outputs, and results from the beginning of the
/// inputs.
void CudaStepRunner::move_heads(const HeadsLinearOp& op, int64_t first, int64_t rows) {
  const bool of_queries = op.rest != kNoValue;
  cuda::MoveHeadsCall call;
  call.x = row_at(op.x, first);
  if (of_queries) call.rest = row_at(op.rest, first);
  call.y = row_at(op.y, first);
  call.rows = rows;
  call.heads = static_cast<int32_t>(op.heads);
  call.x_step = static_cast<int32_t>(op.weight.cols + op.kept);
  call.y_step = static_cast<int32_t>(op.outputs() + op.kept);
  call.count = std::min(call.x_step, call.y_step);
  call.y_first = of_queries ? call.y_step - call.count : 0;
  call.rest_cols = static_cast<int32_t>(op.rest_cols);
  cuda::run_move_heads(call, stream_);
}

}  // namespace subbyte
