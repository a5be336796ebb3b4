#pragma once
// Inputs of a product with rotated weights: rotated as they are (formats/rotation.h), and in the
// order that codes of four inputs a byte have in a packed step (gpu/tile_order.h, kFours).

#include <cstdint>

#include "base/host_device.h"
#include "base/status.h"
#include "kernels/gpu/packed_weights.h"

struct CUstream_st;

namespace subbyte::cuda {

/// Rows of prepared inputs are a multiple of as many numbers.
inline constexpr int64_t kPreparedGrain = 16;

/// Rows that are such multiples and follow each other may be prepared in place: a warp reads the
/// inputs of a rotation before it writes them.
struct PrepareInputsCall {
  const gpu::PackedFormat* format = nullptr;
  const void* x = nullptr;  // [m][x_stride]
  void* to = nullptr;       // [m][prepared_stride(cols)], 16-byte aligned
  int64_t x_stride = 0;
  int64_t m = 0;
  gpu::Number number = gpu::Number::kF16;
  bool dependent_launch = false;  // waits for the kernel before it before it reads x
};

/// Sums in float32 and rounds once. Code cuda.launch.
SUBBYTE_BY_NVCC Status prepare_inputs(const PrepareInputsCall& call, CUstream_st* stream);

}  // namespace subbyte::cuda
