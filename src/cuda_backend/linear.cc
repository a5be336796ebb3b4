#include "cuda_backend/linear.h"

#include "kernels/cuda/elementwise/gates.h"

namespace subbyte {
namespace {

int64_t outputs_of(const CudaWeight& weight) {
  int64_t rows = 0;
  for (const CudaMatrix& part : weight.parts) rows += part.rows();
  return rows;
}

}  // namespace

device::Product CudaProducts::product(const CudaMatrix& matrix) const {
  device::Product product;
  product.number = format();
  product.bias = matrix.bias.data();
  if (matrix.is_dense()) product.bias_number = Format::kF32;
  product.batch_invariant = options_.batch_invariant;
  product.fp8_inputs = options_.fp8_activations;
  product.dependent_launch = true;  // operations before it let it begin, and write no weights
  return product;
}

Status CudaProducts::check(const CudaWeight& weight) const {
  for (const CudaMatrix& part : weight.parts) {
    device::Product one = product(part);
    one.m = 1;
    one.x_stride = part.cols();
    const Status found = part.weights->check(one);
    if (!found.ok()) return Error{"linear.unsupported", found.error().message};
  }
  return {};
}

Status CudaProducts::reserve(int64_t workspace_bytes, int64_t results_bytes) {
  SUBBYTE_CHECK(workspace_.reserve(workspace_bytes));
  return results_.grow(results_bytes);
}

Status CudaProducts::multiply(device::Product product, const CudaRows& x,
                              const CudaMatrix& matrix) {
  product.m = x.rows;
  product.x = x.data;
  product.x_stride = x.cols;
  const int gpu = matrix.weights->index();  // current: whoever runs steps has entered it
  return matrix.weights->multiply(product, device::Gpu::current(gpu, stream_, workspace_));
}

Status CudaProducts::multiply(const CudaRows& y, const CudaRows& x, const CudaWeight& weight) {
  auto* to = static_cast<uint16_t*>(y.data);
  for (const CudaMatrix& part : weight.parts) {
    device::Product one = product(part);
    one.y = to;
    one.y_stride = y.cols;
    SUBBYTE_CHECK(multiply(one, x, part));
    to += part.rows();
  }
  return {};
}

Status CudaProducts::multiply_gated(const CudaRows& y, const CudaRows& x, const CudaWeight& gate_up,
                                    Gate gate) {
  const CudaMatrix& matrix = gate_up.parts.front();
  if (gate_up.parts.size() == 1 && !matrix.is_dense() &&
      matrix.format().row_order == gpu::RowOrder::kGateAboveUp) {
    device::Product one = product(matrix);
    one.y = y.data;
    one.y_stride = y.cols;
    one.activation =
        gate == Gate::kGelu ? device::Activation::kGeluGate : device::Activation::kSiluGate;
    return multiply(one, x, matrix);
  }
  const int64_t outputs = outputs_of(gate_up);
  SUBBYTE_CHECK(results_.grow(x.rows * outputs * 2));
  SUBBYTE_CHECK(multiply({results_.data(), x.rows, outputs}, x, gate_up));
  cuda::GateCall call;
  call.y = y.data;
  call.gate_up = results_.data();
  call.activation = activation_of(gate);
  call.element = cuda::element_of(number_);
  call.rows = x.rows;
  call.cols = y.cols;
  cuda::run_gate(call, stream_);
  return {};
}

Status CudaProducts::multiply_to_floats(float* y, const CudaRows& x, const CudaWeight& weight) {
  const int64_t outputs = outputs_of(weight);
  const CudaMatrix& first = weight.parts.front();
  if (weight.parts.size() == 1 && first.is_dense()) {
    device::Product one = product(first);
    one.y = y;
    one.y_number = Format::kF32;
    one.y_stride = outputs;
    return multiply(one, x, first);
  }
  SUBBYTE_CHECK(results_.grow(x.rows * outputs * 2));
  SUBBYTE_CHECK(multiply({results_.data(), x.rows, outputs}, x, weight));
  cuda::run_to_floats(y, results_.data(), cuda::element_of(number_), x.rows * outputs, stream_);
  return {};
}

}  // namespace subbyte
