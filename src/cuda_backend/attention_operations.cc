// Operations of attention: RotateOp, SelectOp and AttendOp.

#include "cuda_backend/step_runner.h"

namespace subbyte {

Status CudaStepRunner::launch(const RotateOp& op) {
  const bool turns = op.cos != kNoValue;
  attention_.rotate(op, activations(op.qkv), turns ? floats(op.cos) : nullptr,
                    turns ? floats(op.sin) : nullptr, turns ? 2 * plan_->value(op.cos).cols : 0);
  return {};
}

Status CudaStepRunner::launch(const AttendOp& op) {
  const float* const selected = op.selected == kNoValue ? nullptr : floats(op.selected);
  return attention_.attend(op, kind_of(op, compiled_->has_16bit_latents()), activations(op.y),
                           activations(op.qkv), selected);
}

/// A cache of another type has no such kernel, nor has a GPU before Hopper.
bool CudaStepRunner::attends_tokens() const {
  const std::span<const Part> parts = batch_->parts;
  return schedule_ != &compiled_->launches() &&
         parts.front().sequence->pool().type() == element() &&
         cuda::StepLayout::supports(device_, std::ssize(parts));
}

/// In batch-invariant mode a token has the same kernels in every step.
bool CudaStepRunner::attends_batch() const {
  return has_single_tokens(*batch_) && std::ssize(batch_->parts) > cuda::kStepTokens &&
         !options_.batch_invariant;
}

Status CudaStepRunner::launch(const TokenAttention& item) {
  const auto& rotate = plan_op<RotateOp>(item.rotate);
  const auto& attend = plan_op<AttendOp>(item.op);
  const float* const cos = floats(rotate.cos);
  const float* const sin = floats(rotate.sin);
  const int64_t turning = 2 * plan_->value(rotate.cos).cols;
  if (!attends_tokens()) {
    SUBBYTE_TRY(const bool is_done,
                attends_batch()
                    ? attention_.attend_batch(
                          rotate, attend, kind_of(attend, compiled_->has_16bit_latents()),
                          activations(attend.y), activations(rotate.qkv), cos, sin, turning)
                    : false);
    return is_done ? Status() : launch_apart({item.rotate, item.op});
  }
  cuda::StepAttention attention = attention_.of_program(rotate, cos, sin, turning);
  attention.qkv = {at(rotate.qkv), plan_->value(rotate.qkv).cols, cuda::StepInput::Kind::kNumbers,
                   0, 0};
  attention.y = at(attend.y);
  attention.sinks = floats_of(attend.sinks);
  return programs_.attend(attention, attend.cache.group, step_);
}

Status CudaStepRunner::launch(const SelectOp& op) {
  return attention_.select(op, floats(op.y), activations(op.q), floats(op.weights));
}

}  // namespace subbyte
