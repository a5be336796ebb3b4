#pragma once
// Between the projections of an attention block and attention itself: norms of the heads, rotary
// embedding, and the way of keys and values into the cache.

#include <span>

#include "cpu_backend/kv_memory.h"
#include "kernels/cpu/execution.h"
#include "ops/attention.h"
#include "ops/rope.h"

namespace subbyte {

/// A row of the batch: its position, and the page of its sequence that holds it.
struct RowPlace {
  int64_t position = 0;
  int32_t page = 0;
};

/// Weights of the norms, [head_dim] or empty.
struct HeadNormWeights {
  std::span<const float> q, k;
  float eps = 1e-6f;
  bool has_values = false;  // heads of values have a norm by ones
};

/// cos and sin [rows][half] of the angles of each row: 2 * half elements of a head turn in pairs,
/// and the others stay (AttentionShape).
struct RowAngles {
  std::span<const float> cos, sin;
  int64_t half = 0;
};

/// qkv [rows][qkv_size()] of the shape: queries and keys are normalised and turned in place; keys
/// and values are stored in the cache of `layer`.
void rotate_and_store(Execution& execution, std::span<float> qkv, const AttentionShape& shape,
                      RopePairs pairs, const HeadNormWeights& norms, const RowAngles& angles,
                      std::span<const RowPlace> places, const CpuKvMemory& cache, Element element,
                      int64_t layer);

}  // namespace subbyte
