#pragma once
// What GPTQModel's fused int4 layers hand to PyTorch (transform_cpu, transform_xpu and the shim for
// AWQ), from canonical matrices of u4 with zero points. The layouts are drawn in int4pack.h.
//
//   y = _weight_int4pack_mm_for_cpu(x, weight, G, scales_and_zeros)
//   y = _weight_int4pack_mm_with_scales_and_zeros(x, weight, G, scales, zeros)
//
// Both take x with its columns gathered by the matrix's input_order where there is one: the columns
// of the weights are in the order of their groups, and x is put into that same order.
//
// Unlike the transform of GPTQModel's end of 2025, transform_cpu keeps zero points that are not 8.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "foreign_layouts/int4pack.h"
#include "matrix/matrix.h"

namespace subbyte {

struct FusedCpuInt4 {
  std::vector<std::byte> weight;            // U8 [N, K/2] in tiles
  std::vector<std::byte> scales_and_zeros;  // [K/G, N, 2]
};

struct FusedXpuInt4 {
  std::vector<std::byte> weight;  // I32 [N, K/8]
  std::vector<std::byte> scales;  // [K/G, N]
  std::vector<std::byte> zeros;   // I8 [K/G, N]
};

/// Scales become `type`, that of the activations (f16, bf16 or f32), and z is (8 - zero) times the
/// scale after that, as GPTQ layers have it. Outputs in 16s, groups of 32, 64, 128 or 256 that fill
/// the inputs. Codes: layout.shape, and those of pack_scales_and_zeros.
Result<FusedCpuInt4> transform_cpu(const MatrixView& matrix, CpuTile tile, Format type);

/// The same, except that z is (8 - zero) times the scale as the matrix has it, rounded to `type`
/// once, as AWQ layers have it.
Result<FusedCpuInt4> transform_cpu_awq(const MatrixView& matrix, CpuTile tile, Format type);

/// Groups in 32s that fill the inputs; zero points of 0 to 15. Codes: layout.shape, layout.format,
/// layout.zero_range, layout.scale_range.
Result<FusedXpuInt4> transform_xpu(const MatrixView& matrix, Format type);

/// to[m][k] = from[m][order[k]] for rows of order.size() elements of `width` bytes. A canonical
/// matrix with that input_order times `to` is what the layer makes of `from`.
void gather_inputs(std::byte* to, const std::byte* from, int64_t rows,
                   std::span<const uint32_t> order, int width);

}  // namespace subbyte
