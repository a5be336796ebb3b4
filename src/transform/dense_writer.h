#pragma once
// Matrices of any format as tensors of F32, BF16 or F16.

#include "checkpoints/containers/checkpoint_writer.h"
#include "checkpoints/containers/safetensors.h"
#include "transform/difference.h"

namespace subbyte {

/// Puts the weights of `matrix` as numbers of `dtype` in pieces: [N][K], or [K][N] when
/// `transposed`, as experts have it, and says how far they are from the weights. Where `rounds`,
/// they are rounded to nearest even; else a weight that is no such number is an error. `name` is
/// for messages. Codes: convert.inexact, and convert.overflow for a finite weight beyond the type.
Result<Difference> write_dense(const MatrixView& matrix, std::string_view name, DType dtype,
                               bool transposed, bool rounds, Executor& pool,
                               const std::function<Status(std::span<const std::byte>)>& put);

/// The elements of a tensor of F32, BF16 or F16 as matrices in their order: all full rows of a
/// fixed length, and what is left.
std::vector<MatrixView> flat_views(const FileTensor& tensor);

}  // namespace subbyte
