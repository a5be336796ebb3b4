#pragma once
// The group GEMM of FlashInfer for MXFP4 weights and MXFP8 activations
// (group_gemm_mxfp8_mxfp4_nt_groupwise): y of group i = x of group i times W of expert i. An expert
// whose group is empty has its weights all the same.
//
// Weights, U8 [E][N'][K'/2]: canonical rows, the even k in the low nibble; N' is N in 8s, K' is K
// in 128s. Codes of padding are 0, which is 0.0.
//
// Scales of weights, E8M0 [E][R][K'/32]: R is N in 128s, not N'. Each expert is atoms of 128 rows
// and 4 groups, first all atoms of rows 0 to 127; the bytes of padding are 0. An atom, 512 bytes,
// of which each cell is groups 0, 1, 2, 3 of a row:
//
//   byte      0         4         8        12
//      0   row  0    row 32    row 64    row 96
//     16   row  1    row 33    row 65    row 97
//    ...
//    496   row 31    row 63    row 95    row 127
//
//   byte (row / 128 * K'/128 + group / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 + group % 4
//
// Activations, FP8 [M][K']: the rows of all groups, group i is [m_indptr[i], m_indptr[i + 1]).
// Scales of activations, E8M0: atoms as above, and every group begins one, at row
// (m_indptr[i] + 127 i) / 128 * 128; as many rows as that says for i = E. Between the groups is
// padding of 0: the rest of the last atom, and at times one atom more than a group needs.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace subbyte {

/// The weights of one expert.
struct FlashinferShape {
  int64_t rows = 0;  // N, outputs
  int64_t cols = 0;  // K, inputs, in 32s

  int64_t padded_rows() const { return (rows + 7) / 8 * 8; }
  int64_t padded_cols() const { return (cols + 127) / 128 * 128; }
  int64_t code_bytes() const { return padded_rows() * (padded_cols() / 2); }
  int64_t scale_rows() const { return (rows + 127) / 128 * 128; }
  int64_t scale_bytes() const { return scale_rows() * (padded_cols() / 32); }
};

/// At most 2^24 outputs and as many inputs, those in 32s. Code layout.shape.
Status check_flashinfer_shape(const FlashinferShape& shape);

/// Where the scale of a row and a group lies; `cols` is K, padded or not.
int64_t flashinfer_scale_byte(int64_t row, int64_t group, int64_t cols);

/// Canonical codes [rows][cols / 2] of one expert to code_bytes() and back. The shape has been
/// checked, here and below.
void pack_flashinfer_codes(std::byte* to, const std::byte* codes, const FlashinferShape& shape);
void unpack_flashinfer_codes(std::byte* codes, const std::byte* from, const FlashinferShape& shape);

/// Canonical scales [rows][cols / 32] of one expert to scale_bytes().
void pack_flashinfer_scales(std::byte* to, const std::byte* scales, const FlashinferShape& shape);

/// Begins with 0 and does not fall; every element is a multiple of 4, which the kernel needs and
/// does not check. Code layout.groups.
Status check_flashinfer_groups(std::span<const int32_t> m_indptr);

/// The row of the buffer at which the scales of group i begin; for i = E, its number of rows.
int64_t flashinfer_group_row(std::span<const int32_t> m_indptr, int64_t i);

}  // namespace subbyte
