#pragma once
// The int4 layouts of PyTorch, for u4 codes with w = (q - 8) * s + z, where z = (8 - zero) * s.
//
// CPU (_convert_weight_to_int4pack_for_cpu): U8 [N, K/2] in name only. A byte holds two outputs of
// one input, in tiles of 64, 32 or 16 outputs; which, depends on the instruction set of the process
// that packed, so such bytes are for that machine and not for files. A tile of `width` outputs that
// begins at output n0 fills bytes [n0 * K/2, ...), input after input:
//
//   halves (AVX-512: 64, AVX2: 32)   byte k * width/2 + r % (width/2): r low, r + width/2 high
//   pairs (others: 32 or 16)         byte k * width/2 + r/2:           r even low, odd high
//
// Outputs that do not fill a tile (16, 32 or 48) are one narrower tile, always in pairs.
//
// XPU: I32 [N, K/8], the canonical bytes; scales [K/G, N]; zero points I8 [K/G, N]; here
// w = s * (q - z).
//
// CUDA (_convert_weight_to_int4pack, inner_k_tiles T = 2, 4 or 8): I32 [N/8][K/(16 T)][32][T/2].
// Word j of lane L holds output 8 * tile + L/4 and, for 32 inputs from k0 = 16 T * tile + 32 j +
// 2 (L % 4), from the low nibble up: k0, k0+8, k0+16, k0+24, k0+1, k0+9, k0+17, k0+25.
//
// scales_and_zeros, for CPU and CUDA: [K/G, N, 2] floats of the activations' type, s and z.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "foreign_layouts/nibble_layout.h"
#include "matrix/matrix.h"

namespace subbyte {

/// The tile of a CPU, and the way of its nibbles.
enum class CpuTile : uint8_t { kHalves64, kHalves32, kPairs32, kPairs16 };

/// Outputs are in 16s, inputs in 2s. Code layout.shape.
Status check_int4pack_cpu_shape(int64_t rows, int64_t cols);
NibblePlace int4pack_cpu_place(int64_t n, int64_t k, int64_t rows, int64_t cols, CpuTile tile);

/// Canonical codes [rows][cols / 2] to the bytes above and back. The shape has been checked.
void pack_int4_cpu(std::byte* to, const std::byte* codes, int64_t rows, int64_t cols, CpuTile tile);
void unpack_int4_cpu(std::byte* codes, const std::byte* from, int64_t rows, int64_t cols,
                     CpuTile tile);

/// Outputs are in 8s, inputs in 16 * inner_k_tiles, which is 2, 4 or 8. Code layout.shape.
Status check_int4pack_cuda_shape(int64_t rows, int64_t cols, int inner_k_tiles);
NibblePlace int4pack_cuda_place(int64_t n, int64_t k, int64_t cols, int inner_k_tiles);

void pack_int4_cuda(std::byte* to, const std::byte* codes, int64_t rows, int64_t cols,
                    int inner_k_tiles);
void unpack_int4_cuda(std::byte* codes, const std::byte* from, int64_t rows, int64_t cols,
                      int inner_k_tiles);

/// From which scale z is computed: the one of the matrix, or that rounded to the type of the
/// tensor.
enum class OffsetScale : uint8_t { kStored, kRounded };

/// scales_and_zeros of a matrix of u4 with zero points, in f16, bf16 or f32; s and z are rounded to
/// that type once. Codes: layout.format; layout.zero_range above 16; layout.scale_range when s or z
/// is beyond the type.
Result<std::vector<std::byte>> pack_scales_and_zeros(const MatrixView& matrix, Format type,
                                                     OffsetScale offset);
/// The same in the type of the scales, which then are not rounded. Also of a matrix of i4 with
/// offsets of that type, which become z as they are.
Result<std::vector<std::byte>> pack_scales_and_zeros(const MatrixView& matrix);

/// Scales and zero points, as a canonical matrix has them, of such a tensor [groups][rows][2].
struct ScalesAndZeros {
  std::vector<std::byte> scales;  // [rows][groups] of the same type
  std::vector<std::byte> zeros;   // [rows][groups], 0 to 16; 8 where the scale is 0; or offsets
};

/// Code layout.zero_range when some z is not what (8 - zero) * s rounds to for a zero from 0 to 16,
/// as z that were fitted freely are not.
Result<ScalesAndZeros> unpack_scales_and_zeros(std::span<const std::byte> tensor, Format type,
                                               int64_t rows, int64_t groups);

/// Scales and offsets, as a canonical matrix of i4 with zeros of that type has them, of any such
/// tensor in f16, bf16 or f32: no bit is changed, so z that were fitted freely come, too. `zeros`
/// are the offsets. Codes: layout.format, layout.shape.
Result<ScalesAndZeros> unpack_scales_and_offsets(std::span<const std::byte> tensor, Format type,
                                                 int64_t rows, int64_t groups);

/// XPU: canonical scales of `width` bytes, or zero points, [rows][groups] to [groups][rows] and
/// back.
void pack_int4_xpu_groups(std::byte* to, const std::byte* from, int64_t rows, int64_t groups,
                          int width);
void unpack_int4_xpu_groups(std::byte* to, const std::byte* from, int64_t rows, int64_t groups,
                            int width);

}  // namespace subbyte
