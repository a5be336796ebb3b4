#pragma once
// Products, checked the same way for every machine.

#include <subbyte/subbyte.h>

#include "base/operands.h"
#include "base/status.h"
#include "device/product.h"
#include "kernels/gpu/tile_order.h"

namespace subbyte::c {

inline bool is_gate(int32_t activation) {
  return activation >= SUBBYTE_SILU_GATE;
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
