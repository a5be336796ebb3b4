// Short convolutions of a step: from the operation to the kernel.

#include "kernels/cuda/short_conv/short_conv.h"

#include "cuda_backend/kv_memory.h"
#include "cuda_backend/step_runner.h"

namespace subbyte {

Status CudaStepRunner::launch(const ShortConvOp& op) {
  const auto& memory = static_cast<const CudaStateMemory&>(step_.memory(op.cache.group));
  cuda::ShortConvCall call;
  call.y = at(op.y);
  call.bcx = at(op.bcx);
  call.element = element();
  call.rows = rows_of(op.y);
  call.channels = op.channels;
  call.taps = op.taps;
  call.filters = floats_of(op.filters);
  if (op.bias.size > 0) call.bias = floats_of(op.bias);
  call.states = memory.layer(op.cache.layer);
  call.state_stride = memory.stride();
  call.parts = step_.states(op.cache.group);
  call.num_parts = step_.num_parts();
  cuda::run_short_conv(call, stream_);
  return {};
}

}  // namespace subbyte
