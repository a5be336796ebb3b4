#pragma once
// Gated delta nets: for each value head of a sequence a matrix S [key_size][value_size], and for
// each token
//
//   q, k, v     = silu(convolution of its projections and of those of the tokens before it)
//   q, k        = q / |q| / sqrt(key_size), k / |k|
//   decay, beta = exp(rate softplus(a + dt_bias)), sigmoid(b)
//   S           = decay S + k (beta (v - decay S^T k))^T
//   y           = norm(S^T q) * silu(z)
//
// Between the 16-bit projections and the 16-bit result all is float32, but for the operands of the
// tensor cores, which compute long prompts in chunks (delta_net_chunks.h).

#include <cstddef>

#include "kernels/cuda/common/elements.h"

namespace subbyte::cuda {

/// Numbers of a head of keys, or of values, at most.
inline constexpr int kMaxDeltaNetHead = 256;

/// Shared memory of a CTA that chunks take at most, in bytes.
inline constexpr int kDeltaNetChunkBytes = 142 * 1024;

/// The column of a row of projections where the numbers of key head i begin, or those of its value
/// heads, which follow each other: first + i * stride.
struct DeltaNetColumns {
  int32_t first = 0;
  int32_t stride = 0;
};

struct DeltaNetSizes {
  int32_t key_heads = 0;
  int32_t value_heads = 0;
  int32_t values_per_key = 0;  // value head h reads key head h / values_per_key
  int32_t key_size = 0;        // at most kMaxDeltaNetHead, as value_size
  int32_t value_size = 0;
  int32_t taps = 0;  // of the convolution, the last one is that of the token itself
  // The results of value heads lie in tiles: first those of the first value head of each key head.
  bool gives_tiles = false;
};

/// The product that gives `ba`, of weights of 16 bits without a bias, all rows 16-byte aligned.
struct DeltaNetGateProduct {
  const void* weights = nullptr;  // [2 value_heads][cols]
  Element element = Element::kBF16;
  const void* x = nullptr;  // [rows][cols], of the type of the projections
  int64_t cols = 0;
};

struct DeltaNetCall {
  void* y = nullptr;           // [rows][value_heads * value_size]
  const void* qkvz = nullptr;  // [rows][2 key_heads * key_size + 2 value_heads * value_size]
  const void* ba = nullptr;    // [rows][2 value_heads], or where computes_gates() nullptr, and
  DeltaNetGateProduct gate_product;
  Element element = Element::kF16;
  DeltaNetSizes sizes = {};
  DeltaNetColumns q = {}, k = {}, v = {}, z = {};  // of qkvz
  DeltaNetColumns b = {}, a = {};                  // of ba
  // Weights. Channels are all queries, all keys, all values.
  const float* filters = nullptr;  // [taps][channels]
  const float* rates = nullptr;    // [value_heads], below 0
  const float* dt_bias = nullptr;
  const float* norm = nullptr;  // [value_size]
  float key_eps = 0;            // added to the sums of squares of queries and of keys
  float norm_eps = 0;           // added to the mean of squares of a result
  // States: inputs of the convolution [taps - 1][channels], then S of each value head. The kernel
  // that was launched just before may write neither them nor the parts: single tokens read both
  // while it runs.
  float* states = nullptr;   // of the layer, state 0
  int64_t state_stride = 0;  // floats from a state to the next
  const StatePart* parts = nullptr;
  int64_t num_parts = 0;
  int64_t num_rows = 0;          // the tokens of all parts, in their order
  std::byte* scratch = nullptr;  // 16-byte aligned
  /// Token after token, never in chunks: the bits of a token depend neither on the tokens that the
  /// step has besides it nor on how its sequence is cut into steps.
  bool is_recurrent = false;
};

/// Bytes of `scratch`; 0: none are needed, every part is a single token.
int64_t delta_net_scratch(const DeltaNetSizes& sizes, int64_t num_rows, int64_t num_parts,
                          bool is_recurrent);

/// Says whether run_delta_net() multiplies call.gate_product itself, and needs no `ba`.
bool computes_gates(const DeltaNetCall& call);

/// Errors are left to cudaGetLastError().
void run_delta_net(const DeltaNetCall& call, Stream stream);

}  // namespace subbyte::cuda
