// Which GPU an address leads to, copies, and operations that need no handle.

#include <cuda_runtime_api.h>

#include <string>

#include "c_interface/gpu.h"
#include "c_interface/gpu_memory.h"
#include "kernels/cuda/ops/dequantize.h"
#include "kernels/cuda/ops/quantize.h"

namespace subbyte::c {
namespace {

/// Asked once: without a driver each question would look for one again.
bool has_gpus() {
  static const bool found = [] {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
    return error == cudaSuccess && count > 0;
  }();
  return found;
}

/// A part of a matrix, copied to the host.
Status copy_part(std::span<const std::byte>& part, void* stream, Matrix& owner) {
  if (part.empty()) return {};
  const auto bytes = allocate_bytes(part.size());
  const auto on = static_cast<cudaStream_t>(stream);
  cudaError_t error =
      cudaMemcpyAsync(bytes.get(), part.data(), part.size(), cudaMemcpyDeviceToHost, on);
  if (error == cudaSuccess) error = cudaStreamSynchronize(on);
  if (error != cudaSuccess) return gpu_error("cuda.copy", "copy from the GPU", error);
  part = {bytes.get(), part.size()};
  owner.owners.push_back(bytes);
  return {};
}

}  // namespace

int device_of(const void* address) {
  if (address == nullptr || !has_gpus()) return -1;
  cudaPointerAttributes attributes = {};
  if (cudaPointerGetAttributes(&attributes, address) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return -1;
  }
  const bool is_there =
      attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
  return is_there ? attributes.device : -1;
}

Result<Matrix> copy_to_host(const MatrixView& on_gpu, int device, void* stream) {
  const CurrentDevice current(device);
  SUBBYTE_CHECK(current.status());
  Matrix copy{on_gpu, {}};
  SUBBYTE_CHECK(copy_part(copy.view.codes, stream, copy));
  SUBBYTE_CHECK(copy_part(copy.view.scales, stream, copy));
  SUBBYTE_CHECK(copy_part(copy.view.zeros, stream, copy));
  std::span<const std::byte> order = std::as_bytes(copy.view.input_order);
  SUBBYTE_CHECK(copy_part(order, stream, copy));
  copy.view.input_order = {reinterpret_cast<const uint32_t*>(order.data()),
                           copy.view.input_order.size()};
  return copy;
}

Status copy_rows(std::byte* to, const void* from, int64_t rows, int64_t width, int64_t stride,
                 int device, void* stream) {
  if (device < 0) {
    for (int64_t row = 0; row < rows; ++row) {
      __builtin_memcpy(to + row * width, static_cast<const std::byte*>(from) + row * stride,
                       static_cast<std::size_t>(width));
    }
    return {};
  }
  const CurrentDevice current(device);
  SUBBYTE_CHECK(current.status());
  const auto on = static_cast<cudaStream_t>(stream);
  cudaError_t error = cudaMemcpy2DAsync(to, width, from, rows == 1 ? width : stride, width, rows,
                                        cudaMemcpyDeviceToHost, on);
  if (error == cudaSuccess) error = cudaStreamSynchronize(on);
  if (error == cudaSuccess) return {};
  return gpu_error("cuda.copy", "copy from the GPU", error);
}

Status dequantize_on_gpu(const MatrixView& on_gpu, Format number, void* out, int device,
                         void* stream) {
  const CurrentDevice current(device);
  SUBBYTE_CHECK(current.status());
  const Element element = number == Format::kF32   ? Element::kF32
                          : number == Format::kF16 ? Element::kF16
                                                   : Element::kBF16;
  return cuda::dequantize(on_gpu, element, out, static_cast<cuda::Stream>(stream));
}

Status quantize_blocks_on_gpu(const BlockQuantization& blocks, const void* x, void* codes,
                              void* scales, int device, void* stream) {
  const CurrentDevice current(device);
  SUBBYTE_CHECK(current.status());
  return cuda::quantize_blocks(blocks, x, codes, scales, static_cast<cuda::Stream>(stream));
}

}  // namespace subbyte::c
