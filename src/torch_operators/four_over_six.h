#pragma once
// "4 over 6" of FlashInfer's nvfp4_quantize: for each block of 16 both a scale under which the
// largest number becomes 6 and one under which it becomes 4 are tried, and the one with the smaller
// error stays; 6 where they are equal. With g the global scale, all in f32:
//
//   s6 = amax / 6 * g, s4 = 1.5 s6, each as e4m3, at most 448
//   code = x * (1 / (s * (1 / g))) as e2m1; error = sum of |code * s * (1 / g) - x|, or of squares
//
// (quantize/nvfp4.h has a search for weights, which measures in double precision and keeps scales
// from becoming 0.)

#include "base/status.h"
#include "kernels/quantized_blocks.h"
#include "torch_operators/machine.h"
#include "torch_operators/tensor.h"

namespace subbyte::torch_operators {

enum class BlockError : uint8_t { kAbsolute, kSquared };

struct FourOverSix {
  float global_scale;
  BlockError error;
};

/// Quantizes x, on a CPU. What is not finite, and zeros, become what they do without the search.
/// Codes: those of check_block_quantization().
Status quantize_four_over_six(Machine& machine, const BlockQuantization& blocks,
                              const FourOverSix& search, const Tensor& x, Tensor& codes,
                              Tensor& scales);

}  // namespace subbyte::torch_operators
