#pragma once
// Norms of query and key heads, rotary positions, and keys and values into the cache.

#include "kernels/cuda/common/elements.h"

namespace subbyte::cuda {

/// cos and sin of position * inv_freq[i], times `factor`: in double precision, rounded once.
struct AnglesCall {
  float* cos = nullptr;  // [num_rows][half]
  float* sin = nullptr;
  const RowPlace* places = nullptr;       // [num_rows]
  const double* inv_freq = nullptr;       // [half]
  const uint8_t* are_long = nullptr;      // [num_rows], rows with the others; nullptr: none
  const double* long_inv_freq = nullptr;  // [half], where there are some
  int64_t num_rows = 0;
  int64_t half = 0;
  double factor = 1;
};
void run_angles(const AnglesCall& call, Stream stream);

/// Queries are times 1 + beta ln(1 + floor((position + first) / step)).
struct QueryGrowth {
  float beta = 0;  // 0: they stay
  int32_t first = 0;
  int32_t step = 1;
};

/// Rows of qkv have `heads` heads of queries, `kv_heads` of keys and as many of values, or no keys
/// and values. Queries are normalised, turned, scaled and stored where they were; keys the same but
/// for the factor, and stored in the cache alone, not rounded in between; values are stored in the
/// cache.
struct RotateCall {
  void* qkv = nullptr;  // [num_rows][(heads + 2 kv_heads) * head_dim]
  Element element = Element::kF16;
  int64_t num_rows = 0;
  int32_t heads = 0;
  int32_t kv_heads = 0;           // 0: queries alone
  int32_t head_dim = 0;           // even, at most 512
  const float* q_norm = nullptr;  // [head_dim]; nullptr: none
  const float* k_norm = nullptr;
  float eps = 0;
  bool norms_by_ones = false;  // of queries and keys, where these are nullptr
  bool norms_after_turn = false;
  bool normalises_values = false;  // by ones
  const float* cos = nullptr;      // [num_rows][turning / 2]
  const float* sin = nullptr;
  int32_t turning = 0;          // elements of a head from the first on; the others stay
  bool are_neighbours = false;  // elements that turn together: 2 i and 2 i + 1
  QueryGrowth query_growth = {};
  const RowPlace* places = nullptr;  // [num_rows]
  KvLayer cache = {};
};

/// Says whether all of a head turns with its other half, after a norm with weights or none, and
/// nothing else: heads of 64 or 128 numbers of 16 bits, into such a cache, all at multiples of 16
/// bytes.
bool turns_halves(const RotateCall& call);

/// Errors are left to cudaGetLastError().
void run_rotate(const RotateCall& call, Stream stream);

}  // namespace subbyte::cuda
