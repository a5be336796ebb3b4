#pragma once
// Handles of the interface, and what several files do with them.

#include <subbyte/subbyte.h>
#include <memory>

#include "base/status.h"
#include "c_interface/turns.h"
#include "device/host_weights.h"
#include "device/packed_matrix.h"
#include "kernels/cpu/execution.h"
#include "matrix/matrix.h"
#include "subbyte/executor.h"

namespace subbyte::c {

/// Threads and buffers of the CPU, which one call at a time uses.
struct Context : Turns {
  Context() : Turns("context", "context.busy") {}

  std::unique_ptr<Execution> execution;
  /// Workspaces with weights as floats are large: all matrices share those of a GPU.
  device::WorkspacesOfGpus floats;
};

}  // namespace subbyte::c

struct subbyte_context {
  std::shared_ptr<subbyte::c::Context> shared;
};

struct subbyte_matrix {
  std::shared_ptr<subbyte::c::Context> context;
  subbyte::Matrix matrix;  // of the host; without bytes where the matrix is packed
  subbyte::gpu::RowOrder row_order = subbyte::gpu::RowOrder::kNatural;
  std::shared_ptr<const subbyte::device::PackedMatrix> on_gpu;  // nullptr: on the host
  mutable subbyte::device::Workspaces workspaces;               // of products on the GPU
  /// Form that products on the CPU read, made by the first of them in its turn on the context.
  mutable std::unique_ptr<const subbyte::device::HostWeights> multiplied;
};

namespace subbyte::c {

/// Hands out a matrix that fill(made, pool) makes, with a turn on the context.
template <typename Fill>
Status make_matrix(const std::shared_ptr<Context>& context, subbyte_matrix** to, const Fill& fill) {
  auto made = std::make_unique<subbyte_matrix>();
  made->context = context;
  SUBBYTE_TRY(const auto turn, Turn::take(context));
  SUBBYTE_CHECK(fill(*made, context->execution->pool()));
  if (made->on_gpu != nullptr) made->matrix = {made->on_gpu->view(), {}};
  *to = made.release();
  return {};
}

}  // namespace subbyte::c
