#pragma once
// Products, checked the same way for every machine.

#include <subbyte/subbyte.h>

#include "base/operands.h"
#include "base/status.h"
#include "kernels/cuda/common/arguments.h"
#include "kernels/gpu/tile_order.h"

namespace subbyte::c {

inline bool is_gate(int32_t activation) {
  return activation >= SUBBYTE_SILU_GATE;
}

/// The gate as kernels call it.
constexpr cuda::Activation gate_of(int32_t activation) {
  switch (activation) {
    case SUBBYTE_SILU_GATE:
      return cuda::Activation::kSwiGLU;
    case SUBBYTE_GELU_GATE:
      return cuda::Activation::kGeGLU;
    case SUBBYTE_CLAMPED_GATE:
      return cuda::Activation::kClampedSwiGLU;
    default:
      return cuda::Activation::kNone;
  }
}

/// The activation without a gate as kernels call it.
constexpr cuda::Unary unary_of(int32_t activation) {
  return activation == SUBBYTE_RELU   ? cuda::Unary::kRelu
         : activation == SUBBYTE_GELU ? cuda::Unary::kGelu
                                      : cuda::Unary::kNone;
}

/// Constants of the clamped gate.
inline SwiGLU clamp_of(const subbyte_product& p) {
  if (p.alpha == 0 && p.limit == 0 && p.up_offset == 0) return kUsualClamp;
  return {p.alpha, p.limit, p.up_offset};
}

/// The product with all that was left out filled in: batch, strides. `reserves`: the addresses of
/// x and y may be NULL. Codes: c.null, c.struct_size, c.argument.
Result<subbyte_product> read_product(const subbyte_product* product, int64_t rows, int64_t cols,
                                     gpu::RowOrder row_order, bool reserves = false);

}  // namespace subbyte::c
