#pragma once
// Matrices of any format as tensors of F32, BF16 or F16.

#include "checkpoints/containers/checkpoint_writer.h"
#include "checkpoints/containers/safetensors.h"
#include "transform/difference.h"

namespace subbyte {

/// Treatment by write_dense() of weights that are no numbers of the target type.
struct DenseRounding {
  bool allowed = false;  // to nearest even, measured in `loss`; else they are an error
  Difference loss;       // of the matrices that were not exact
  WorstLoss worst;       // of them
  int64_t rounded = 0;   // how many these are
};

/// Puts the weights of `matrix` as numbers of `dtype` in pieces: [N][K], or [K][N] when
/// `transposed`, as experts have it. `name` is for messages.
/// Codes: convert.inexact, and convert.overflow for a finite weight beyond the type.
Status write_dense(const MatrixView& matrix, std::string_view name, DType dtype, bool transposed,
                   DenseRounding& rounding, Executor& pool,
                   const std::function<Status(std::span<const std::byte>)>& put);

/// The elements of a tensor of F32, BF16 or F16 as matrices in their order: all full rows of a
/// fixed length, and what is left.
std::vector<MatrixView> flat_views(const FileTensor& tensor);

}  // namespace subbyte
