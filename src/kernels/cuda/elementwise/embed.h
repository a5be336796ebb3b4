#pragma once
// Rows of a table as floats: the residual stream begins with them.

#include "kernels/cuda/common/elements.h"
#include "kernels/cuda/weight_arguments.h"

namespace subbyte::cuda {

struct EmbedCall {
  float* y = nullptr;               // [num_tokens][cols]
  const int32_t* tokens = nullptr;  // each a row of the table, or -2 - i: that of chosen[i]
  const int32_t* chosen = nullptr;  // rows; negative ones count as 0
  int64_t num_tokens = 0;
  int64_t cols = 0;
  float factor = 1;
};

/// Looks up rows of a dense table [rows][cols], exactly but for the factor. Errors are left to
/// cudaGetLastError().
void run_embed(const EmbedCall& call, const void* table, Element element, Stream stream);

/// Says whether run_embed() reads packed tables of that kind: integers, codebooks and vectors,
/// which it rotates back.
constexpr bool is_embeddable(DecoderKind decoder) {
  return decoder == DecoderKind::kIntegers || decoder == DecoderKind::kCodebook ||
         decoder == DecoderKind::kVectors;
}

/// Looks up rows of a packed table that is_embeddable(), with rows in natural order, in float32;
/// `table` is weight_arguments() of it, for any number.
void run_embed(const EmbedCall& call, const WeightArguments& table, const PackedFormat& format,
               Stream stream);

}  // namespace subbyte::cuda
