#pragma once
// Between the projections of an attention block and attention itself: norms of the heads, rotary
// embedding, and the way of keys and values into the cache.

#include <span>

#include "cpu_backend/kv_memory.h"
#include "kernels/cpu/execution.h"
#include "ops/step_plan.h"

namespace subbyte {

/// A row of the batch: its position, and the page of its sequence that holds it.
struct RowPlace {
  int64_t position = 0;
  int32_t page = 0;
};

/// Operands of RotateOp beside qkv.
struct HeadOperands {
  std::span<const float> q_norm, k_norm;  // [head_dim] or empty
  std::span<const float> cos, sin;        // [rows][half]
  int64_t half = 0;                       // pairs that turn
};

/// RotateOp with qkv [rows][qkv_size()] of the shape; keys and values are stored in the cache of
/// the operation's layer.
void rotate_and_store(Execution& execution, const RotateOp& op, std::span<float> qkv,
                      const HeadOperands& operands, std::span<const RowPlace> places,
                      const CpuKvMemory& cache, Element element);

}  // namespace subbyte
