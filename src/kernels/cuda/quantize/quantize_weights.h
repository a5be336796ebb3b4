#pragma once
// Quantizing weights on a GPU, to the bits of the quantizers of quantize/ on the CPU.

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "kernels/cuda/common/elements.h"
#include "kernels/weight_rounding.h"

namespace subbyte::cuda {

/// Device memory, weights and results contiguous; results are those of a canonical matrix.
struct WeightBuffers {
  const void* weights = nullptr;    // [rows][cols]
  Element element = Element::kF16;  // of the weights, also kF32
  int64_t rows = 0;                 // and cols: at least 1
  int64_t cols = 0;                 // in groups, but for FP8
  uint8_t* codes = nullptr;         // [rows][row_bytes()]
  uint8_t* scales = nullptr;        // [rows][groups], at multiples of their size
  uint8_t* zeros = nullptr;         // [rows][groups] of kMinMax
  double* factor = nullptr;         // one, of NVFP4 and nfl
  uint8_t* byte_codes = nullptr;    // [rows][cols], if needs_byte_codes()
  uint32_t* state = nullptr;        // two words
};

/// Says whether groups begin within bytes, so that codes are written as bytes first.
SUBBYTE_BY_NVCC bool needs_byte_codes(const WeightRounding& how, int64_t cols);

/// Launches alone. The second word of the state becomes 1 where the CPU refuses a weight or the
/// scale of a group; the results mean nothing then. Code cuda.launch.
SUBBYTE_BY_NVCC Status quantize_weights(const WeightRounding& how, const WeightBuffers& buffers,
                                        Stream stream);

}  // namespace subbyte::cuda
