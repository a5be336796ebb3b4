// Blocks of Mamba 2 of a step: from the operation to the kernels.

#include "kernels/cuda/mamba/mamba.h"

#include "cuda_backend/kv_memory.h"
#include "cuda_backend/step_runner.h"

namespace subbyte {

Status CudaStepRunner::launch(const MambaOp& op) {
  const auto& memory = static_cast<const CudaStateMemory&>(step_.memory(op.cache.group));
  const MambaShape& shape = op.shape;
  cuda::MambaCall call;
  call.y = at(op.y);
  call.projections = at(op.projections);
  call.element = element();
  call.sizes = {static_cast<int32_t>(shape.heads),  static_cast<int32_t>(shape.head_size),
                static_cast<int32_t>(shape.groups), static_cast<int32_t>(shape.state_size),
                static_cast<int32_t>(shape.taps),   static_cast<int32_t>(shape.norm_groups)};
  call.filters = floats_of(op.weights.filters);
  if (op.weights.bias.size > 0) call.bias = floats_of(op.weights.bias);
  call.rates = floats_of(op.weights.rates);
  call.dt_bias = floats_of(op.weights.dt_bias);
  call.d = floats_of(op.weights.d);
  if (op.weights.norm.size > 0) call.norm = floats_of(op.weights.norm);
  call.eps = shape.eps;
  call.norm_before_gate = shape.norm_before_gate;
  call.least_step = shape.least_step;
  call.largest_step = shape.largest_step;
  call.states = memory.layer(op.cache.layer);
  call.state_stride = memory.stride();
  call.parts = step_.states(op.cache.group);
  call.num_parts = step_.num_parts();
  call.num_rows = rows_of(op.y);
  call.scratch = at(op.scratch);
  call.is_recurrent = step_.batch_invariant() || device_.shared_bytes < cuda::kMambaChunkBytes;
  cuda::run_mamba(call, stream_);
  return {};
}

}  // namespace subbyte
