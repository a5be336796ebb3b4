#pragma once
// Blocks of Mamba 2: for each head of a sequence a matrix S [state_size][head_size], and for each
// token
//
//   x, B, C = silu(bias + convolution of its projections and of those of the tokens before it)
//   dt      = softplus(dt + dt_bias), held within limits
//   S       = exp(rate dt) S + B (dt x)^T
//   y       = norm((S^T C + d x) * silu(z)), or with the norm before the gate, or without one
//
// Between the 16-bit projections and the 16-bit result all is float32, but in long prompts, which
// tensor cores compute in chunks (mamba_chunks.h).

#include <cstddef>

#include "kernels/cuda/common/elements.h"

namespace subbyte::cuda {

/// Shared memory of a CTA that chunks take at most, in bytes.
inline constexpr int kMambaChunkBytes = 110 * 1024;

struct MambaSizes {
  int32_t heads = 0;
  int32_t head_size = 0;   // at most 256, as state_size
  int32_t groups = 0;      // of B and C: head h reads group h / (heads / groups)
  int32_t state_size = 0;  // numbers of B, and of C, of a group
  int32_t taps = 0;        // of the convolution, the last one is that of the token itself
  int32_t norm_groups = 1;
};

struct MambaCall {
  void* y = nullptr;                  // [rows][heads * head_size]
  const void* projections = nullptr;  // [rows]: z, x, B, C, dt
  Element element = Element::kF16;
  MambaSizes sizes = {};
  // Weights. Channels are those of x, of B and of C.
  const float* filters = nullptr;  // [taps][channels]
  const float* bias = nullptr;     // [channels], or nullptr
  const float* rates = nullptr;    // [heads], below 0
  const float* dt_bias = nullptr;
  const float* d = nullptr;
  const float* norm = nullptr;  // [heads * head_size], or nullptr: no norm
  float eps = 0;                // added to the mean of squares of a norm group
  bool norm_before_gate = false;
  float least_step = 0;
  float largest_step = 0;
  // States: inputs of the convolution [taps - 1][channels], then S of each head. The kernel that
  // was launched just before may write neither them nor the parts: single tokens read both while
  // it runs.
  float* states = nullptr;   // of the layer, state 0
  int64_t state_stride = 0;  // floats from a state to the next
  const StatePart* parts = nullptr;
  int64_t num_parts = 0;
  int64_t num_rows = 0;  // the tokens of all parts, in their order
  /// 16-byte aligned; for each row so many floats as MambaShape::scratch_size() says.
  std::byte* scratch = nullptr;
  /// Token after token, never in chunks: the bits of a token depend neither on the tokens that the
  /// step has besides it nor on how its sequence is cut into steps.
  bool is_recurrent = false;
};

/// Errors are left to cudaGetLastError().
void run_mamba(const MambaCall& call, Stream stream);

}  // namespace subbyte::cuda
