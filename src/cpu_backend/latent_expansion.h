#pragma once
// Attention over keys and values of every head that are made again from latents (LatentSizes).

#include <span>

#include "base/status.h"
#include "cpu_backend/attention.h"
#include "cpu_backend/float_buffer.h"
#include "matrix/matrix.h"

namespace subbyte {

/// Both matrices, in numbers.
struct LatentMatrixViews {
  MatrixView keys;    // [heads * rank][nope]
  MatrixView values;  // [heads * value][rank]
};

class LatentExpansion {
 public:
  /// Says whether so many positions fit the memory that may be used.
  static bool fits(const LatentSizes& sizes, int64_t positions);

  /// attention() over the latents of `layer` of the shape with values in keys, of queries that
  /// stand at the end of the rank of each head, before what turns. Results stand at the beginning
  /// of each head's rank, and its other numbers are not written. Code linear.unsupported.
  Status attend(Execution& execution, const AttentionPart& part, int64_t q_stride,
                const KvLayer& layer, const AttentionShape& shape, const LatentSizes& sizes,
                const LatentMatrixViews& matrices, std::span<const float> sinks);

 private:
  FloatBuffer latents_;   // [positions][rank]
  FloatBuffer turned_;    // [positions][turning]
  FloatBuffer matrices_;  // of keys of some heads the other way round: [heads][nope][rank]
  FloatBuffer expanded_;  // [heads][keys, values][positions of whole pages][head_dim]
};

}  // namespace subbyte
