#pragma once
// FlashInfer's group_gemm_mxfp8_mxfp4_nt_groupwise (before: group_gemm_mxfp4_nt_groupwise), with
// the meaning of its arguments: rows [m_indptr[i], m_indptr[i + 1]) of out are those rows of a
// times the weights of group i, transposed.
//
//   a         FP8   [M][K]           M = m_indptr[G], K in 128s
//   b         E2M1  [G][N][K / 2]    the even input in the low half of a byte; N in 8s
//   a_scale   E8M0  [R][K / 32]      every group's scales begin at a row of their own, swizzled
//   b_scale   E8M0  [G][N'][K / 32]  N' is N in 128s, swizzled
//   m_indptr  i32   [G + 1]          from 0, multiples of 4 that do not fall: groups may be empty
//   out       BF16 or F16 [M][N]
//
// foreign_layouts/flashinfer.h has R and the order of the scales, and packs them.
//
// Products and sums are in double precision, which has no rounding inside a block of 32, in the
// order of K, and are rounded once to nearest even: bits depend neither on threads nor on the
// hints. A scale of 255 makes NaN of every output of its row.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/executor.h"
#include "base/status.h"
#include "formats/format.h"

namespace subbyte::flashinfer {

struct GroupGemm {
  std::span<const std::byte> a;
  std::span<const std::byte> b;
  std::span<const std::byte> a_scale;
  std::span<const std::byte> b_scale;
  std::span<const int32_t> m_indptr;
  std::span<std::byte> out;
  int64_t n = 0;
  int64_t k = 0;
  Format a_dtype = Format::kE4M3;    // or kE5M2
  Format out_dtype = Format::kBF16;  // or kF16
  // Hints, of which no bit of the result depends; the values that FlashInfer takes.
  int mma_sm = 1;       // 1, 2
  int tile_m = 128;     // 128
  int tile_n = 128;     // 32, 64, 128, 192, 256
  int tile_k = 128;     // 128, 256
  bool swap_ab = true;  // any
};

/// Codes: group_gemm.<argument> for the argument that is wrong: n, k, a_dtype, out_dtype, mma_sm,
/// tile_m, tile_n, tile_k, m_indptr, and a, b, a_scale, b_scale, out for their sizes in bytes.
Status check_group_gemm(const GroupGemm& gemm);

/// In host memory. Codes: those of check_group_gemm(), group_gemm.out_of_memory.
Status group_gemm_mxfp8_mxfp4_nt_groupwise(const GroupGemm& gemm, Executor& executor);

/// The name that it had.
inline Status group_gemm_mxfp4_nt_groupwise(const GroupGemm& gemm, Executor& executor) {
  return group_gemm_mxfp8_mxfp4_nt_groupwise(gemm, executor);
}

}  // namespace subbyte::flashinfer
