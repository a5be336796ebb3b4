#include "kernels/cuda/cuda_c.h"

#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <vector>

#include "kernels/blocks_of_c.h"
#include "kernels/cuda/linear.h"

using subbyte::check_addresses;
using subbyte::Error;
using subbyte::MatrixView;
using subbyte::Result;
using subbyte::run_in_c;
using subbyte::Status;
namespace cuda = subbyte::cuda;

struct SubbyteCudaMatrix {
  uint64_t id;  // never given twice
  MatrixView view;
  cuda::PackedFormat format;
  cuda::Device device;
};

namespace {

Result<MatrixView> view_of(const SubbyteCudaMatrixDescription& d) {
  const auto* element = d.element == nullptr ? nullptr : subbyte::find_format(d.element);
  const auto* scale = d.scale == nullptr ? nullptr : subbyte::find_format(d.scale);
  if (element == nullptr || scale == nullptr || d.zero_bytes < 0 || d.zero_bytes > 2 ||
      d.group_size < 0 || d.rows < 1 || d.cols < 1 || d.rows > INT32_MAX || d.cols > INT32_MAX) {
    return Error{"cuda.format",
                 "matrix: expected names of formats, zero_bytes of 0 to 2 and sizes "
                 "of 1 to 2^31 - 1"};
  }
  MatrixView view;
  view.format = {element->id, scale->id, static_cast<subbyte::Zero>(d.zero_bytes), d.group_size};
  view.rows = d.rows;
  view.cols = d.cols;
  view.tensor_scale = d.tensor_scale;
  const auto bytes = [](const void* p, int64_t size) {
    return std::span(static_cast<const std::byte*>(p),
                     p == nullptr ? 0 : static_cast<std::size_t>(size));
  };
  view.codes = bytes(d.codes, d.rows * view.row_bytes());
  view.scales = bytes(d.scales, d.rows * view.groups() * scale->bits / 8);
  view.zeros = bytes(d.zero_bytes == 0 ? nullptr : d.zeros, d.rows * view.groups() * d.zero_bytes);
  SUBBYTE_CHECK(check_addresses(
      {{"codes", d.codes}, {"scales", d.scales}, {"zeros", d.zero_bytes == 0 ? &d : d.zeros}}));
  if (d.input_order != nullptr) {
    view.input_order = {d.input_order, static_cast<std::size_t>(d.cols)};
  }
  return view;
}

cuda::Number number_of(const SubbyteCudaLinear& call) {
  return call.is_bf16 != 0 ? cuda::Number::kBF16 : cuda::Number::kF16;
}

/// All that a plan depends on.
struct PlanKey {
  uint64_t matrix = 0;
  int64_t m = 0;
  bool is_bf16 = false;
  bool aligned = false;
  bool batch_invariant = false;
  bool operator==(const PlanKey&) const = default;
};

/// Planning takes longer than launching: each thread keeps its last plans.
Result<cuda::Plan> plan_of(const SubbyteCudaMatrix& matrix, const SubbyteCudaLinear& call) {
  struct Kept {
    PlanKey key;
    cuda::Plan plan;
  };
  thread_local std::array<Kept, 1024> kept;
  const bool aligned = (call.x_stride | matrix.format.cols) % 8 == 0 &&
                       reinterpret_cast<uintptr_t>(call.x) % 16 == 0;
  const PlanKey key = {matrix.id, call.m, call.is_bf16 != 0, aligned, call.batch_invariant != 0};
  const auto mixed = static_cast<uint64_t>(call.m) * 0x9E3779B97F4A7C15u + matrix.id * 4 +
                     2 * aligned + key.batch_invariant;
  Kept& slot = kept[mixed % kept.size()];
  if (slot.key == key) return slot.plan;
  cuda::PlanOptions options;
  options.batch_invariant = key.batch_invariant;
  const auto plan =
      cuda::plan_linear({matrix.format, number_of(call), call.m, aligned}, matrix.device, options);
  if (plan) slot = {key, *plan};
  return plan;
}

cuda::LinearCall linear_of(const SubbyteCudaMatrix& matrix, const void* packed,
                           const SubbyteCudaLinear& call, cuda::Number number) {
  cuda::LinearCall linear;
  linear.weights = cuda::weight_arguments(static_cast<const std::byte*>(packed), matrix.format,
                                          matrix.view.tensor_scale, number);
  linear.format = &matrix.format;
  linear.x = call.x;
  linear.y = call.y;
  linear.bias = call.bias;
  linear.residual = call.residual;
  linear.x_stride = call.x_stride;
  linear.y_stride = call.y_stride;
  linear.residual_stride = call.residual_stride;
  linear.m = call.m;
  linear.activation = static_cast<cuda::Activation>(call.activation);
  linear.dependent_launch = call.dependent_launch != 0;
  return linear;
}

}  // namespace

SubbyteCudaMatrix* subbyte_cuda_matrix_create(const SubbyteCudaMatrixDescription* description,
                                              const char** error) {
  SubbyteCudaMatrix* made = nullptr;
  static_cast<void>(run_in_c(error, [&]() -> Status {
    SUBBYTE_CHECK(check_addresses({{"description", description}}));
    SUBBYTE_TRY(const MatrixView view, view_of(*description));
    if (description->row_order < 0 || description->row_order > 2) {
      return Error{"cuda.format", "matrix: expected a row_order of 0, 1 or 2"};
    }
    SUBBYTE_TRY(const cuda::PackedFormat format,
                cuda::packed_format(view, static_cast<cuda::RowOrder>(description->row_order)));
    SUBBYTE_TRY(const cuda::Device device, cuda::query_device());
    static std::atomic<uint64_t> next_id = 1;
    made = new SubbyteCudaMatrix{next_id++, view, format, device};
    return {};
  }));
  return made;
}

void subbyte_cuda_matrix_destroy(SubbyteCudaMatrix* matrix) {
  delete matrix;
}

int64_t subbyte_cuda_matrix_bytes(const SubbyteCudaMatrix* matrix) {
  return matrix == nullptr ? -1 : matrix->format.bytes;
}

int subbyte_cuda_matrix_pack(const SubbyteCudaMatrix* matrix, void* packed, void* stream,
                             const char** error) {
  return run_in_c(error, [&]() -> Status {
    SUBBYTE_CHECK(check_addresses({{"matrix", matrix}, {"packed", packed}}));
    std::vector<std::byte> bytes(matrix->format.bytes);
    cuda::pack_on_host(bytes.data(), matrix->view, matrix->format);
    const auto on = static_cast<cudaStream_t>(stream);
    cudaError_t result =
        cudaMemcpyAsync(packed, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, on);
    if (result == cudaSuccess) result = cudaStreamSynchronize(on);
    if (result == cudaSuccess) return {};
    return Error{"cuda.copy", cudaGetErrorString(result)};
  });
}

int subbyte_cuda_linear_workspace(const SubbyteCudaMatrix* matrix, const SubbyteCudaLinear* call,
                                  int64_t* bytes, const char** error) {
  return run_in_c(error, [&]() -> Status {
    SUBBYTE_CHECK(check_addresses({{"matrix", matrix}, {"call", call}, {"bytes", bytes}}));
    SUBBYTE_TRY(const cuda::Plan plan, plan_of(*matrix, *call));
    *bytes = plan.workspace_bytes;
    return {};
  });
}

int subbyte_cuda_linear(const SubbyteCudaMatrix* matrix, const void* packed,
                        const SubbyteCudaLinear* call, void* workspace, void* stream,
                        const char** error) {
  return run_in_c(error, [&]() -> Status {
    SUBBYTE_CHECK(check_addresses({{"matrix", matrix}, {"packed", packed}, {"call", call}}));
    SUBBYTE_TRY(const cuda::Plan plan, plan_of(*matrix, *call));
    if (call->activation < 0 || call->activation > 2) {
      return Error{"cuda.format", "linear: expected an activation of 0, 1 or 2"};
    }
    if (call->m > 0) SUBBYTE_CHECK(check_addresses({{"x", call->x}, {"y", call->y}}));
    if (plan.workspace_bytes > 0) SUBBYTE_CHECK(check_addresses({{"workspace", workspace}}));
    const cuda::Number number = number_of(*call);
    return cuda::run_linear(plan, linear_of(*matrix, packed, *call, number), number, workspace,
                            static_cast<cuda::Stream>(stream));
  });
}
