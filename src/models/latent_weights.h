#pragma once
// The matrix that makes keys and values of every head from a latent of a token, as what queries and
// results are multiplied by instead: attention then reads latents alone (AttentionShape).
//
//   in a file   [heads][keys + values][rank]      k = K c, v = V c for a latent c
//   keys        [heads][rank][keys]               q k = (K^T q) c
//   values      [heads][values][rank]             V (sum of weights c)

#include "base/status.h"
#include "checkpoints/importer.h"
#include "matrix/matrix.h"
#include "models/tensor_spec.h"
#include "subbyte/executor.h"

namespace subbyte {

struct LatentMatrices {
  Matrix keys;    // [heads * rank][keys]
  Matrix values;  // [heads * values][rank]
};

struct LatentShape {
  int64_t rows = 0;
  int64_t cols = 0;
};
LatentShape latent_keys_shape(const TensorSpec& spec);
LatentShape latent_values_shape(const TensorSpec& spec);

/// The format of both, of a matrix in `format`: numbers stay as they are, all else becomes f32 for
/// kernels of the host, which round no weights, and f16 for others; bf16 where a number is too
/// large for that.
WeightFormat latent_format(const WeightFormat& format, bool on_host);

inline constexpr const char* kKeysApart = "k_b_proj";  // of kv_b_proj, where they are apart
inline constexpr const char* kValuesApart = "v_b_proj";

/// One of both as a file has it, where it has them apart.
Matrix latent_side(const Matrix& side, bool on_host, Executor& pool);

LatentMatrices latent_matrices(const MatrixView& joined, const LatentHeads& heads, bool on_host,
                               Executor& pool);

/// The tensors with both sides of each matrix that lies in two, as GGUF has them, put together, as
/// directories have it: numbers as they are, and what is quantized as f32, which is exact. Codes:
/// those of the importers; gguf.tensor for sides that are not of one matrix.
Result<TensorSource> with_joined_latents(const ImportContext& context);

}  // namespace subbyte
