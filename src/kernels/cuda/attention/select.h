#pragma once
// The positions that tokens attend to: those with the largest scores, which heads of an index give.

#include "kernels/cuda/common/elements.h"

namespace subbyte::cuda {

inline constexpr int kMaxSelectHeads = 128;
inline constexpr int kMaxSelectHead = 128;  // numbers, a multiple of 16

/// out = positions in ascending order: of a token that sees no more than `top` all of them, else
/// those with the largest scores, the lower one on ties. The score of a position is the sum over
/// the heads of weight times max(q k, 0), with products as mma has them in the type of activations,
/// and sums in float32. NaN is the lowest.
struct SelectCall {
  const void* q = nullptr;  // [num_rows][heads * head_dim]
  Element element = Element::kF16;
  const float* weights = nullptr;  // [num_rows][heads]
  float* out = nullptr;            // [num_rows][top]
  int64_t num_rows = 0;
  int32_t heads = 0;
  int32_t head_dim = 0;
  int32_t top = 0;
  const RowPlace* places = nullptr;  // [num_rows]
  const int32_t* pages = nullptr;    // page table of all parts
  KvLayer cache = {};                // keys alone, of one head
  float* scores = nullptr;           // [rows_at_a_time][positions]
  int64_t positions = 0;             // more than any row has, a multiple of kPagePositions
  int64_t rows_at_a_time = 1;
  int64_t first_row = 0;  // of those at a time
};

/// Errors are left to cudaGetLastError().
void run_select(const SelectCall& call, Stream stream);

}  // namespace subbyte::cuda
