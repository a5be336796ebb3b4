#pragma once
// What a group GEMM of MXFP8 activations needs around its products (group_gemm.h): rows
// [m_indptr[i], m_indptr[i + 1]) of a are those of group i. Values of m_indptr beyond the rows that
// there are count as the last one, so that wrong ones read nothing that is not there.

#include "formats/format.h"
#include "kernels/cuda/common/elements.h"
#include "kernels/cuda/experts/arguments.h"

namespace subbyte::cuda {

struct GroupTilesCall {
  const int32_t* m_indptr = nullptr;  // [groups + 1]
  int64_t groups = 0;
  int64_t m = 0;                // rows of a
  int tile_tokens = 8;          // rows of a tile, at most
  ExpertTile* tiles = nullptr;  // [num_tiles]: those with rows first
  int64_t num_tiles = 0;
};

/// Errors are left to cudaGetLastError(), here and below.
void run_group_tiles(const GroupTilesCall& call, Stream stream);

struct GroupRowsCall {
  void* to = nullptr;            // BF16 [m][k]
  const void* a = nullptr;       // FP8 [m][k], 16-byte aligned
  const void* scales = nullptr;  // E8M0, swizzled: foreign_layouts/flashinfer.h has the picture
  const int32_t* m_indptr = nullptr;
  int64_t groups = 0;
  int64_t m = 0;
  int64_t k = 0;                // in 128s
  Format type = Format::kE4M3;  // or kE5M2
};

/// a times its scales: exact, but for products of 2^128 and more, which become infinite, and those
/// below 2^-126, which are rounded to the subnormal numbers of BF16.
void run_group_rows(const GroupRowsCall& call, Stream stream);

struct PlainScalesCall {
  void* to = nullptr;          // E8M0 [groups][rows][k / 32]
  const void* from = nullptr;  // E8M0 [groups][rows in 128s][k / 32], swizzled
  int64_t groups = 0;
  int64_t rows = 0;
  int64_t k = 0;  // in 128s
};

void run_plain_scales(const PlainScalesCall& call, Stream stream);

void run_fill(float* to, int64_t count, float value, Stream stream);

}  // namespace subbyte::cuda
