#pragma once
// Attention over keys and values of every head that are made again from latents (LatentSizes).

#include <span>

#include "base/status.h"
#include "cpu_backend/attention.h"
#include "matrix/matrix.h"

namespace subbyte {

/// Both matrices, in numbers.
struct LatentMatrixViews {
  MatrixView keys;    // [heads * rank][nope]
  MatrixView values;  // [heads * value][rank]
};

/// Heads of so many positions that are expanded at a time: with latents and matrices they take no
/// more than Execution::expansion_floats(). 0: not even one fits.
int64_t heads_that_fit(const Execution& execution, const LatentSizes& sizes, int64_t positions);

/// attention() over the latents of `layer` of the shape with values in keys, of queries that stand
/// at the end of the rank of each head, before what turns. Results stand at the beginning of each
/// head's rank, and its other numbers are not written. A head of each part has to fit. Code
/// linear.unsupported.
Status attention_of_expanded(Execution& execution, std::span<const AttentionPart> parts,
                             int64_t q_stride, const KvLayer& layer, const AttentionShape& shape,
                             const LatentSizes& sizes, const LatentMatrixViews& matrices,
                             std::span<const float> sinks);

}  // namespace subbyte
