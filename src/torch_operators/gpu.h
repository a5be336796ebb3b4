#pragma once
// The GPU of a tensor: torch's current stream there, and memory of torch's caching allocator.

#include "device/gpu.h"
#include "device/operands.h"
#include "torch_operators/tensor.h"

namespace subbyte::torch_operators {

/// Code cuda.device.
Result<device::Gpu> gpu_of(const Tensor& tensor);

/// Says whether a CUDA graph is captured on torch's current stream of the GPU of a tensor.
bool is_captured(const Tensor& tensor);

using device::element_of;

inline gpu::Number number_of(const Tensor& x) {
  return x.format() == Format::kBF16 ? gpu::Number::kBF16 : gpu::Number::kF16;
}

/// Numbers of `tensor` in that type: a copy where they are of another one, which the stream makes.
Tensor as_type(const Tensor& tensor, int32_t dtype);

/// Itself, or a copy at a multiple of 16 bytes.
Tensor aligned(const Tensor& tensor);

}  // namespace subbyte::torch_operators
