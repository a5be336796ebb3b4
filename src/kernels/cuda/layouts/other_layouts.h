#pragma once
// Weights and scales in the layouts of other software, to the bits of their operators on the CPU
// (src/torch_operators/). Each is one launch, which allocates nothing. Code cuda.launch.

#include <array>
#include <cstdint>

#include "base/status.h"
#include "kernels/cuda/common/elements.h"

namespace subbyte::cuda {

/// Blocks of bitsandbytes: consecutive numbers that share a scale, two codes a byte, the first
/// number in the high half. All are device memory.
struct NibbleBlocks {
  uint8_t* packed = nullptr;        // [(count + 1) / 2]
  float* absmax = nullptr;          // a number for each block
  void* numbers = nullptr;          // [count]
  Element element = Element::kF16;  // of the numbers, also kF32
  int64_t count = 0;
  int64_t blocksize = 64;  // a power of two from 32 to 4096
};

/// To numbers, each values[code] times the scale of its block, rounded.
SUBBYTE_BY_NVCC Status dequantize_nibbles(const NibbleBlocks& blocks,
                                          const std::array<float, 16>& values, Stream stream);

/// Codes by rising values: a number belongs to the code after the last middle that is below it,
/// NaN to the last.
struct RisingCodes {
  std::array<uint8_t, 16> codes;
  std::array<float, 15> middles;
};

/// To bytes and scales: a block that is whole is multiplied by the inverse of its largest
/// magnitude, a last one that is not is divided by it, which is 1e-38 at the least then.
SUBBYTE_BY_NVCC Status quantize_nibbles(const NibbleBlocks& blocks, const RisingCodes& rising,
                                        Stream stream);

/// Matrices of scales one after the other, between rows and atoms of scale_place()
/// (kernels/block_codes.h): of 128 x 4 (layout 1) or of 8 x 4 (2).
struct ScaleMove {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  int64_t matrices = 1;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t padded_rows = 0;  // of the atoms; what is padding is written as 0
  int64_t padded_cols = 0;  // in fours
  int width = 1;            // bytes of a scale, 1 or 2
  int layout = 1;
  bool to_rows = false;  // from atoms
};

SUBBYTE_BY_NVCC Status move_scales(const ScaleMove& move, Stream stream);

/// AWQ's words of 4 bits to numbers [cols][rows], (code - zero) * scale, rounded.
struct AwqWords {
  void* out = nullptr;
  const uint32_t* words = nullptr;  // [cols][rows / 8]
  const void* scales = nullptr;     // [groups][rows], of the type of `out`
  const uint32_t* zeros = nullptr;  // [groups][rows / 8]
  Element element = Element::kF16;  // or kBF16
  int64_t rows = 0;                 // outputs
  int64_t cols = 0;                 // inputs
  int64_t groups = 1;
};

SUBBYTE_BY_NVCC Status dequantize_awq(const AwqWords& awq, Stream stream);

}  // namespace subbyte::cuda
