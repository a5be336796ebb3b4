#include "cuda_backend/linear.h"

#include <algorithm>

#include "kernels/cuda/ops/dense.h"
#include "kernels/cuda/ops/gates.h"
#include "kernels/cuda/w8a8.h"

namespace subbyte {
namespace {

constexpr int64_t kAligned = 8;  // 16-bit numbers that are 16 bytes
/// Fewer read their weights about as long as they multiply.
constexpr int64_t kLeastTokensInFp8 = 256;

int64_t outputs_of(const CudaWeight& weight) {
  int64_t rows = 0;
  for (const CudaMatrix& part : weight.parts) rows += part.rows;
  return rows;
}

void* at(void* p, int64_t index, Element element) {
  return static_cast<std::byte*>(p) + index * element_bytes(element);
}

}  // namespace

bool CudaProducts::rounds_inputs(const CudaMatrix& matrix, int64_t m, bool aligned) const {
  return options_.fp8_activations && aligned && m >= kLeastTokensInFp8 &&
         cuda::has_w8a8_products(matrix.format);
}

Result<cuda::Plan> CudaProducts::plan_of(const CudaMatrix& matrix, int64_t m, bool aligned) const {
  return matrix.plans->find(matrix.format, device_,
                            {.m = m,
                             .number = number_,
                             .aligned = aligned,
                             .batch_invariant = options_.batch_invariant,
                             .fp8_inputs = rounds_inputs(matrix, m, aligned)});
}

Status CudaProducts::check(const CudaWeight& weight) const {
  for (const CudaMatrix& part : weight.parts) {
    if (!part.is_packed) continue;
    auto plan = plan_of(part, 1, part.cols % kAligned == 0);
    if (!plan.ok()) return Error{"linear.unsupported", std::move(plan).error().message};
  }
  return {};
}

Status CudaProducts::reserve(int64_t workspace_bytes, int64_t results_bytes) {
  SUBBYTE_CHECK(workspace_.grow(workspace_bytes));
  return results_.grow(results_bytes);
}

Status CudaProducts::multiply_packed(const CudaRows& y, int64_t first, const CudaRows& x,
                                     const CudaMatrix& matrix, cuda::Activation activation) {
  const bool aligned = x.cols % kAligned == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
  SUBBYTE_TRY(const cuda::Plan plan, plan_of(matrix, x.rows, aligned));
  SUBBYTE_CHECK(workspace_.grow(plan.workspace_bytes));
  cuda::LinearCall call;
  call.weights = matrix.arguments;
  call.format = &matrix.format;
  call.x = x.data;
  call.x_stride = x.cols;
  call.y = at(y.data, first, cuda::element_of(number_));
  call.y_stride = y.cols;
  call.bias = matrix.bias.data();
  call.m = x.rows;
  call.activation = activation;
  call.dependent_launch = true;  // operations before it let it begin, and write no weights
  void* const workspace = plan.workspace_bytes > 0 ? workspace_.data() : nullptr;
  if (rounds_inputs(matrix, x.rows, aligned)) {
    return cuda::run_w8a8(plan, call, number_, workspace, stream_);
  }
  return cuda::run_linear(plan, call, number_, workspace, stream_);
}

void CudaProducts::multiply_dense(void* y, Element y_element, int64_t y_stride, int64_t first,
                                  const CudaRows& x, const CudaMatrix& matrix) {
  cuda::DenseCall call;
  call.weights = matrix.memory.data();
  call.weights_element = matrix.element;
  call.x = x.data;
  call.x_element = cuda::element_of(number_);
  call.y = at(y, first, y_element);
  call.y_element = y_element;
  call.bias = reinterpret_cast<const float*>(matrix.bias.data());
  call.m = x.rows;
  call.rows = matrix.rows;
  call.cols = matrix.cols;
  call.x_stride = x.cols;
  call.y_stride = y_stride;
  call.batch_invariant = options_.batch_invariant;
  cuda::run_dense(call, stream_);
}

Status CudaProducts::multiply(const CudaRows& y, const CudaRows& x, const CudaWeight& weight) {
  int64_t first = 0;
  for (const CudaMatrix& part : weight.parts) {
    if (part.is_packed) {
      SUBBYTE_CHECK(multiply_packed(y, first, x, part, cuda::Activation::kNone));
    } else {
      multiply_dense(y.data, cuda::element_of(number_), y.cols, first, x, part);
    }
    first += part.rows;
  }
  return {};
}

Status CudaProducts::multiply_gated(const CudaRows& y, const CudaRows& x, const CudaWeight& gate_up,
                                    cuda::Activation gate) {
  const CudaMatrix& matrix = gate_up.parts.front();
  if (gate_up.parts.size() == 1 && matrix.is_packed &&
      matrix.format.row_order == cuda::RowOrder::kGateAboveUp) {
    return multiply_packed(y, 0, x, matrix, gate);
  }
  const int64_t outputs = outputs_of(gate_up);
  SUBBYTE_CHECK(results_.grow(x.rows * outputs * 2));
  SUBBYTE_CHECK(multiply({results_.data(), x.rows, outputs}, x, gate_up));
  cuda::run_gate(y.data, results_.data(), gate, cuda::element_of(number_), x.rows, y.cols, stream_);
  return {};
}

Status CudaProducts::multiply_to_floats(float* y, const CudaRows& x, const CudaWeight& weight) {
  const int64_t outputs = outputs_of(weight);
  if (weight.parts.size() == 1 && !weight.parts.front().is_packed) {
    multiply_dense(y, Element::kF32, outputs, 0, x, weight.parts.front());
    return {};
  }
  SUBBYTE_CHECK(results_.grow(x.rows * outputs * 2));
  SUBBYTE_CHECK(multiply({results_.data(), x.rows, outputs}, x, weight));
  cuda::run_to_floats(y, results_.data(), cuda::element_of(number_), x.rows * outputs, stream_);
  return {};
}

}  // namespace subbyte
