#include "cuda_backend/delta_net.h"

#include <algorithm>
#include <string>

#include "cuda_backend/delta_net_sizes.h"
#include "cuda_backend/kv_memory.h"
#include "cuda_backend/weights.h"

namespace subbyte {
namespace {

cuda::DeltaNetColumns columns_of(const HeadColumns& columns) {
  return {static_cast<int32_t>(columns.first), static_cast<int32_t>(columns.stride)};
}

}  // namespace

Status CudaDeltaNets::check(const DeltaNetShape& shape) {
  const int64_t largest = std::max(shape.key_size, shape.value_size);
  if (largest <= cuda::kMaxDeltaNetHead) return {};
  return Error{"linear.unsupported", "the GPU has gated delta nets for heads of up to " +
                                         std::to_string(cuda::kMaxDeltaNetHead) + " numbers, not " +
                                         std::to_string(largest) + " (--device cpu has them)"};
}

/// A step has its largest scratch in chunks where it has as many parts as there may be for them,
/// and without chunks where all its tokens are of one part.
int64_t CudaDeltaNets::memory_bytes(const DeltaNetShape& shape, const StepSize& size) const {
  const cuda::DeltaNetSizes sizes = delta_net_sizes(shape);
  int64_t bytes = 0;
  for (int64_t parts = 1; parts <= std::min(size.sequences, size.tokens); ++parts) {
    bytes = std::max(bytes, cuda::delta_net_scratch(sizes, size.tokens, parts, is_recurrent_));
  }
  return bytes;
}

bool CudaDeltaNets::serves(const DeltaNetOp& op, const cuda::DeltaNetGateProduct& product,
                           int64_t rows) const {
  cuda::DeltaNetCall call;
  call.sizes = delta_net_sizes(op.shape);
  call.gate_product = product;
  call.num_parts = step_.num_parts();
  call.num_rows = rows;
  call.is_recurrent = is_recurrent_;
  return cuda::computes_gates(call);
}

Status CudaDeltaNets::run(const DeltaNetOp& op, const CudaRows& y, const void* qkvz, const void* ba,
                          const cuda::DeltaNetGateProduct& product) {
  cuda::DeltaNetCall call = of_program(op);
  call.y = y.data;
  call.qkvz = qkvz;
  call.ba = product.weights == nullptr ? ba : nullptr;
  call.gate_product = product;
  call.parts = step_.states(op.cache.group);
  call.num_parts = step_.num_parts();
  call.num_rows = y.rows;
  call.is_recurrent = is_recurrent_;
  SUBBYTE_CHECK(scratch_.grow(
      cuda::delta_net_scratch(call.sizes, call.num_rows, call.num_parts, call.is_recurrent)));
  call.scratch = scratch_.data();
  cuda::run_delta_net(call, stream_);
  return {};
}

cuda::DeltaNetCall CudaDeltaNets::of_program(const DeltaNetOp& op) const {
  const auto& memory = static_cast<const CudaStateMemory&>(step_.memory(op.cache.group));
  const DeltaNetColumns columns = delta_net_columns(op.shape);
  cuda::DeltaNetCall call;
  call.element = element_;
  call.sizes = delta_net_sizes(op.shape);
  call.q = columns_of(columns.q);
  call.k = columns_of(columns.k);
  call.v = columns_of(columns.v);
  call.z = columns_of(columns.z);
  call.b = columns_of(columns.b);
  call.a = columns_of(columns.a);
  call.filters = floats_of(op.weights.filters);
  call.rates = floats_of(op.weights.rates);
  call.dt_bias = floats_of(op.weights.dt_bias);
  call.norm = floats_of(op.weights.norm);
  call.key_eps = kDeltaNetEps;
  call.norm_eps = op.shape.eps;
  call.states = memory.layer(op.cache.layer);
  call.state_stride = memory.stride();
  return call;
}

}  // namespace subbyte
