#pragma once
// What GPTQModel's fused int4 layers hand to PyTorch on XPU (transform_xpu), from canonical
// matrices of u4 with zero points. The layouts are drawn in int4pack.h.
//
//   y = _weight_int4pack_mm_with_scales_and_zeros(x, weight, G, scales, zeros)
//
// takes x with its columns gathered by the matrix's input_order where there is one: the columns of
// the weights are in the order of their groups, and x is put into that same order.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "matrix/matrix.h"

namespace subbyte {

struct FusedXpuInt4 {
  std::vector<std::byte> weight;  // I32 [N, K/8]
  std::vector<std::byte> scales;  // [K/G, N]
  std::vector<std::byte> zeros;   // I8 [K/G, N]
};

/// Scales become `type`, that of the activations (f16, bf16 or f32). Groups in 32s that fill the
/// inputs; zero points of 0 to 15. Codes: layout.shape, layout.format, layout.zero_range,
/// layout.scale_range.
Result<FusedXpuInt4> transform_xpu(const MatrixView& matrix, Format type);

}  // namespace subbyte
