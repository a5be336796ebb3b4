#pragma once
// Activations as TMA copies them.

#include <cuda.h>

#include <cstdint>

#include "base/status.h"
#include "kernels/cuda/plan.h"

namespace subbyte::cuda {

/// A map of boxes of 64 inputs by `tokens` tokens of x [m][stride]; what is outside of its `cols`
/// columns and `m` rows reads as zero. Code cuda.launch.
Status describe_activations(CUtensorMap& map, const void* x, int64_t m, int64_t cols,
                            int64_t stride, int tokens, Number number);

/// The same of bytes, rows without gaps, in boxes for wgmma_descriptor_of_bytes().
Status describe_bytes(CUtensorMap& map, const uint8_t* x, int64_t m, int64_t cols, int tokens);

/// The same in boxes of two K tiles, 128 inputs, for wgmma_descriptor().
Status describe_pairs_of_bytes(CUtensorMap& map, const uint8_t* x, int64_t m, int64_t cols,
                               int tokens);

/// A map of boxes of `box` bytes, a multiple of 8 or at most 256, by 8 rows of a matrix [rows]
/// [row_bytes], which is at a multiple of 16 bytes and has rows of a multiple of 16.
Status describe_strips(CUtensorMap& map, const uint8_t* data, int64_t rows, int64_t row_bytes,
                       int box);

}  // namespace subbyte::cuda
