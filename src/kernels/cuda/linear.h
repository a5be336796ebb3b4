#pragma once
// y = x W^T + bias on a GPU, for every packed weight format. A call allocates nothing and does not
// wait, so it can be captured in a graph.
//
//   SUBBYTE_TRY(PackedFormat format, packed_format(matrix));
//   ... allocate format.bytes on the device, pack_on_host() and copy, or pack_on_device() ...
//   SUBBYTE_TRY(Plan plan, plan_linear({format, Number::kBF16, m}, device));
//   SUBBYTE_CHECK(run_linear(plan, arguments, Number::kBF16, workspace, stream));

#include <cstddef>
#include <cstdint>

#include "base/host_device.h"
#include "base/status.h"
#include "kernels/cuda/plan.h"
#include "kernels/cuda/weight_arguments.h"

struct CUstream_st;  // cudaStream_t, without the toolkit's headers

namespace subbyte::cuda {

using Stream = CUstream_st*;

/// Device `index`. Codes: cuda.device (there is none, it is older than sm_80, or no kernels of this
/// build run on it).
SUBBYTE_BY_NVCC Result<Device> query_device(int index = 0);

/// Packs a canonical matrix that lies in device memory (all spans of `matrix` but its codebook are
/// device pointers)
/// to `to`, format.bytes in device memory, on the stream. `format` is packed_format() of the same
/// matrix. Codes: cuda.launch.
SUBBYTE_BY_NVCC Status pack_on_device(std::byte* to, const MatrixView& matrix,
                                      const PackedFormat& format, Stream stream);

/// The canonical codes, scales and zero points of a packed matrix, to device memory of the sizes
/// that its source format has. Its gather is the order of inputs. Codes: cuda.format (floats),
/// cuda.launch.
SUBBYTE_BY_NVCC Status unpack_on_device(std::byte* codes, std::byte* scales, std::byte* zeros,
                                        const std::byte* packed, const PackedFormat& format,
                                        Stream stream);

struct LinearCall {
  WeightArguments weights;  // weight_arguments() of the packed matrix
  const PackedFormat* format = nullptr;
  const void* x = nullptr;         // [m][x_stride]
  void* y = nullptr;               // [m][y_stride]
  const void* bias = nullptr;      // [rows] or nullptr
  const void* residual = nullptr;  // [m][residual_stride], added to y, or nullptr; may be y
  int64_t x_stride = 0;
  int64_t y_stride = 0;
  int64_t residual_stride = 0;
  int64_t m = 0;
  Activation activation = Activation::kNone;
  Unary unary = Unary::kNone;   // where there is no gate
  SwiGLU swiglu = kUsualClamp;  // of kClampedSwiGLU
  /// Programmatic dependent launch: the kernel may begin before the one before it on the stream has
  /// ended, and waits for that one before it reads x. The one before must not write these weights.
  bool dependent_launch = false;
};

/// Launches. `workspace` has plan.workspace_bytes, 256-byte aligned, or is nullptr if that is 0.
/// Codes: cuda.launch, cuda.shape (another m than the plan's, strides that are too short, a null
/// pointer, an activation without gate and up side by side: row_order).
SUBBYTE_BY_NVCC Status run_linear(const Plan& plan, const LinearCall& call, Number number,
                                  void* workspace, Stream stream);

}  // namespace subbyte::cuda
