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
  const AttentionKind kind = kind_of(op, compiled_->has_16bit_latents());
  return attention_.attend(op, kind, activations(op.y), activations(op.qkv), selected);
}

Status CudaStepRunner::launch(const SelectOp& op) {
  return attention_.select(op, floats(op.y), activations(op.q), floats(op.weights));
}

}  // namespace subbyte
