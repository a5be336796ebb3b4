#pragma once
// Short convolutions over the tokens, between two gates: of the numbers b, c and x of a token
//
//   u = b * x     y = c * (bias + sum over the taps of filter * u)
//
// where the last tap is that of the token itself, and those before it are of the tokens before it,
// or of the state that earlier steps left. Between 16-bit rows all is float32, and what is computed
// of a token depends neither on the other tokens of the step nor on how its sequence is cut.

#include "kernels/cuda/common/elements.h"

namespace subbyte::cuda {

struct ShortConvCall {
  void* y = nullptr;          // [rows][channels]
  const void* bcx = nullptr;  // [rows][3 * channels]: all b, all c, all x
  Element element = Element::kF16;
  int64_t rows = 0;  // the tokens of all parts, in their order
  int64_t channels = 0;
  int64_t taps = 0;
  const float* filters = nullptr;  // [taps][channels], 16-byte aligned
  const float* bias = nullptr;     // [channels], or nullptr
  // States: u of the last tokens, [taps - 1][channels], the earliest first.
  float* states = nullptr;   // of the layer, state 0
  int64_t state_stride = 0;  // floats from a state to the next
  const StatePart* parts = nullptr;
  int64_t num_parts = 0;
};

/// Errors are left to cudaGetLastError().
void run_short_conv(const ShortConvCall& call, Stream stream);

}  // namespace subbyte::cuda
