#pragma once
// Quantizing to blocks on a GPU, to the bits of cpu::quantize_blocks().

#include "base/status.h"
#include "kernels/cuda/common/elements.h"
#include "kernels/quantized_blocks.h"

namespace subbyte::cuda {

/// Options of NVFP4 alone.
struct Nvfp4Options {
  /// In device memory: blocks.tensor_scale is 1 over this number then, whatever it is.
  const float* global_scale_there = nullptr;
  /// "4 over 6", to the bits of torch_operators/four_over_six.h.
  bool four_over_six = false;
  bool is_squared = false;  // the error that decides; else absolute
  float global_scale = 1;   // blocks.tensor_scale is 1 over it
};

/// x [rows][cols] of blocks.input to blocks.code_bytes() and blocks.scale_bytes(), every one of
/// which is written. All are device memory, x and codes 16-byte aligned. One launch, which
/// allocates nothing and can be captured in a graph. Codes: those of check_block_quantization(),
/// cuda.shape (an address), cuda.launch.
SUBBYTE_BY_NVCC Status quantize_blocks(const BlockQuantization& blocks, const void* x, void* codes,
                                       void* scales, Stream stream,
                                       const Nvfp4Options& options = {});

struct RoundToMxfp8Call {
  void* to = nullptr;
  const void* x = nullptr;          // may be `to`; both at multiples of 16 bytes
  int64_t count = 0;                // in 32s
  Element element = Element::kF16;  // or kBF16
};

/// round_to_mxfp8() of kernels/quantized_blocks.h, of 16-bit numbers. What is beyond f16 becomes
/// infinity. Errors are left to cudaGetLastError().
SUBBYTE_BY_NVCC void run_round_to_mxfp8(const RoundToMxfp8Call& call, Stream stream);

struct QuantizeRowsCall {
  uint8_t* codes = nullptr;       // [count][cols], 16-byte aligned
  float* scales = nullptr;        // [count]
  const void* x = nullptr;        // [..][cols], 16-byte aligned
  const int32_t* rows = nullptr;  // of x, of each row of codes; nullptr: as many
  int64_t count = 0;
  int64_t cols = 0;                 // a multiple of 16
  Element element = Element::kF16;  // or kBF16
};

/// Rows of x in E4M3 with a power of two for each: that which MXFP8 (ScaleRule::kCeil) has for its
/// largest number. So numbers down to 2^-14 of that are those of MXFP8, and smaller ones multiples
/// of 2^-9 of the power; a row with NaN is NaN. Of each 16 codes of a row, code
/// 4 t + j is of input 2 t + j / 2 + 8 (j % 2), the order of large_m/w4a8_products.cuh. Errors
/// are left to cudaGetLastError().
SUBBYTE_BY_NVCC void run_quantize_rows(const QuantizeRowsCall& call, Stream stream);

}  // namespace subbyte::cuda
