#pragma once
// Matrices of any format as tensors of F32, BF16 or F16.

#include "checkpoints/containers/checkpoint_writer.h"
#include "checkpoints/containers/safetensors.h"
#include "transform/difference.h"

namespace subbyte {

/// Treatment of weights that are no numbers of a type.
enum class DenseRounding : uint8_t {
  kNone,     // they are an error
  kNearest,  // to nearest even; a finite weight beyond the type is an error
  kFinite,   // the same of quantize, where NaN and infinity are errors, too
};

/// Puts the weights of `matrix` as numbers of `dtype` in pieces: [N][K], or [K][N] when
/// `transposed`, as experts have it, and says how far they are from the weights. `name` is for
/// messages. Codes: convert.inexact, convert.overflow; of kFinite quantize.f16_overflow and
/// quantize.not_finite.
Result<Difference> write_dense(const MatrixView& matrix, std::string_view name, DType dtype,
                               bool transposed, DenseRounding rounding, Executor& pool,
                               const std::function<Status(std::span<const std::byte>)>& put);

/// The same of a tensor of F32, BF16 or F16, whose pages are given back. The difference is that of
/// the parts that are not exact.
Result<Difference> write_dense(const FileTensor& tensor, DType dtype, DenseRounding rounding,
                               Executor& pool, const PutBytes& put);

/// The elements of a tensor of F32, BF16 or F16 as matrices in their order: all full rows of a
/// fixed length, and what is left.
std::vector<MatrixView> flat_views(const FileTensor& tensor);

}  // namespace subbyte
