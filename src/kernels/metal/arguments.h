#pragma once
// What the Metal kernels are given, one text for the shaders and for the host. The weights are
// packed as for CUDA (kernels/gpu/packed_weights.h).
//
//   buffer 0  Arguments              4  codebook, uint16: 2^bits numbers of the activations' type
//          1  codes                  5  gather, uint32 [cols]: the input of each column
//          2  scales                 6  x [tokens][x_stride], uint16
//          3  zero points            7  y [tokens][y_stride], uint16
//
// f16 and bf16 numbers are passed as their bits. A buffer that the matrix has not is never read;
// Metal wants something bound to it all the same.

#include "kernels/gpu/tile_order.h"

namespace subbyte::apple {

struct Arguments {
  int32_t rows;  // N
  int32_t cols;  // K
  int32_t strips;
  int32_t tiles;            // of a strip
  int32_t blocks;           // of scales, of a strip
  int32_t groups_per_tile;  // 1, 2 or 4
  int32_t tiles_per_block;  // of scales; 1 where groups are no longer than tiles
  int32_t zero_bytes;       // 0: zero point `zero` everywhere
  int32_t zero;
  int32_t has_gather;
  float tensor_scale;
  int32_t tokens;
  int32_t x_stride;
  int32_t y_stride;
  gpu::ScaleKind scale_kind;
  gpu::RowOrder row_order;
  uint16_t unused;
};
static_assert(sizeof(Arguments) == 60, "host and shader have the same Arguments");

/// Tokens of one call of a kernel for few tokens.
SUBBYTE_CONSTANT int kMaxTokens = 8;

/// Bytes of threadgroup memory: 0, the table; 1, sums of small_m.metal for kMaxTokens.
SUBBYTE_DEVICE constexpr int table_bytes() {
  return 256 * 4;
}
SUBBYTE_DEVICE constexpr int sums_bytes(int simdgroups) {
  return simdgroups * gpu::kStripRows * kMaxTokens * 4;
}

}  // namespace subbyte::apple
