#pragma once
// Formats that the packed kernels do not have, as one that they have: every matrix that runs on the
// CPU runs on a GPU, if not always in as few bytes.

#include "base/status.h"
#include "kernels/gpu/packed_weights.h"
#include "matrix/matrix.h"
#include "subbyte/executor.h"

namespace subbyte::gpu {

/// Format in which a matrix of that format is held:
///   itself                 f32, f16 and bf16, and what packed_format() takes
///   with smaller groups    where only the groups are too large: scales are repeated, nothing is
///                          rounded
///   u8 or i8               integers of 7 bits, and of 5 and 6 in groups of other sizes, which are
///                          the same numbers
///   scales of one level    of two: numbers of f16, rounded; so are offsets
///   dense f16              all else, vectors with act-order, and what is rotated and no vectors,
///                          which is rotated back: each weight is rounded, as activations are.
///                          Where f16 would not hold the largest one, or have too few bits for
///                          it, it is bf16
WeightFormat supported_format(const WeightFormat& format, int64_t rows, int64_t cols,
                              bool act_order);
WeightFormat supported_format(const MatrixView& matrix);

/// Says whether f16 holds weights with this largest magnitude, with enough of their bits.
bool fits_f16(float largest);

/// `matrix` as supported_format() says. Codes: recast.*.
Result<Matrix> support(Matrix matrix, Executor& executor);

/// The dense format that the packed kernels have: numbers of the activations' type, with a scale of
/// 1 for each row.
WeightFormat packed_floats(Number number);

/// A dense matrix of f32, f16 or bf16 in that format. As f16 weights of another type come with the
/// power of two, in tensor_scale, that brings the largest of a matrix near the top of f16. Only
/// what is below 2^-28 of the largest may be rounded then, to within 2^-39 of it, which is less
/// than sums in float32 lose. A matrix of which more would be rounded, or that has infinities, is
/// refused. Code linear.unsupported.
Result<Matrix> as_packed_floats(Matrix matrix, Number number, Executor& executor);

}  // namespace subbyte::gpu
