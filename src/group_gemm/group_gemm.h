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
// linear() multiplies (kernels/cpu/linear.h): activations and weights are exact, but where they
// become signed bytes 2^-22 of the largest of 128 activations; sums are in float32 and are rounded
// once more, to nearest even. With u = 2^-24 and magnitudes A, W of a row of a and of weights an
// output is off by at most
//
//   1.01 (K + K / 32 + 40) u sum A W + 2^-22 sum max128(A) W + half a step of out
//
// Rows with NaN, infinity or, but for blocks of zeros, scales outside of 2^-46 to 2^20 (of weights
// 2^-63 to 2^64) are multiplied in double precision and rounded once, some 30 times slower. A scale
// of 255 makes NaN of every output of its row.
//
// Bits depend on the rows of the group and on the instruction set, neither on threads nor on the
// hints, which choose nothing: they are checked, because FlashInfer does, and the tiles of the
// kernels for CPUs are those that suit them. Rows of zeros at the end of a group, which fill it up
// to a multiple of 4, cost nothing.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "formats/format.h"
#include "subbyte/executor.h"

namespace subbyte {
class Execution;
}  // namespace subbyte

namespace subbyte::group_gemm {

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
  // Hints, which are checked and choose nothing; the values that FlashInfer takes.
  int mma_sm = 1;       // 1, 2
  int tile_m = 128;     // 128
  int tile_n = 128;     // 32, 64, 128, 192, 256
  int tile_k = 128;     // 128, 256
  bool swap_ab = true;  // any
};

/// Codes: group_gemm.<argument> for the argument that is wrong: n, k, a_dtype, out_dtype, mma_sm,
/// tile_m, tile_n, tile_k, m_indptr, and a, b, a_scale, b_scale, out for their sizes in bytes.
Status check_group_gemm(const GroupGemm& gemm);

/// Multiplies in host memory. Scales are unpacked by each call. Codes: those of check_group_gemm(),
/// group_gemm.out_of_memory.
Status group_gemm_mxfp8_mxfp4_nt_groupwise(const GroupGemm& gemm, Executor& executor);

/// Does the same with an execution of kernels/cpu/execution.h, which
/// keeps its buffers from call to call, and whose precision and batch-invariant mode are those of
/// linear().
Status group_gemm_mxfp8_mxfp4_nt_groupwise(const GroupGemm& gemm, Execution& execution);

/// The name that it had.
inline Status group_gemm_mxfp4_nt_groupwise(const GroupGemm& gemm, Executor& executor) {
  return group_gemm_mxfp8_mxfp4_nt_groupwise(gemm, executor);
}

}  // namespace subbyte::group_gemm
