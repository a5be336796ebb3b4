#pragma once
// Words of checkpoints to words of kernels of other software. foreign_layouts/ draws them; the
// functions there are the twins of these on the host. All are device memory. Code cuda.launch.

#include <cstdint>

#include "base/status.h"
#include "kernels/cuda/common/elements.h"

namespace subbyte::cuda {

/// Words of GPTQ [cols * bits / 32][rows] or of AWQ [cols][rows * bits / 32] to those of Marlin
/// (foreign_layouts/marlin.h, marlin_int8.h), rows in 64s and cols in 16s.
struct MarlinRepack {
  uint32_t* to = nullptr;
  const uint32_t* words = nullptr;
  const int32_t* order = nullptr;  // [cols]: stored column k is column order[k]; may be nullptr
  uint32_t* fault = nullptr;       // becomes 1 where `order` has no column; beside an order
  int64_t rows = 0;
  int64_t cols = 0;
  int bits = 4;  // or 8
  bool is_awq = false;
};

SUBBYTE_BY_NVCC Status repack_marlin(const MarlinRepack& repack, Stream stream);

/// Codes of 4 bits to canonical ones, the even input in the low half of a byte.
struct NibbleCodes {
  uint8_t* to = nullptr;           // [count], bytes
  const uint8_t* bytes = nullptr;  // [count] with the even input in the high half, or
  const int32_t* words = nullptr;  // [2 count], a code each
  uint32_t* fault = nullptr;       // becomes 1 where a word is not from 0 to 15; beside words
  int64_t count = 0;
};

SUBBYTE_BY_NVCC Status narrow_nibbles(const NibbleCodes& codes, Stream stream);

}  // namespace subbyte::cuda
