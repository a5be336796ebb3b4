#include "kernels/cuda/elementwise/gates.h"

#include <algorithm>

#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/common/runs.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxCtas = 1 << 16;

unsigned ctas_for(int64_t size) {
  return static_cast<unsigned>(std::min((size + kThreads - 1) / kThreads, kMaxCtas));
}

__global__ void __launch_bounds__(kThreads) gate(const __grid_constant__ GateCall a) {
  begin_operation();
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < a.rows * a.cols; i += stride) {
    const int64_t at = i / a.cols * (2 * a.cols) + i % a.cols;
    const float g = load_element(a.element, a.gate_up, at);
    const float up = load_element(a.element, a.gate_up, at + a.cols);
    store_element(a.element, a.y, i, gated(a.activation, a.swiglu, g, up));
  }
}

__global__ void __launch_bounds__(kThreads)
    gate_columns(const __grid_constant__ GateColumnsCall a) {
  begin_operation();
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < a.rows * a.cols; i += stride) {
    const float g = load_element(a.element, a.x, i);
    const int64_t at = i / a.cols * a.up_stride + a.first + i % a.cols;
    store_element(a.element, a.y, i, gated(a.activation, {}, g, load_element(a.element, a.up, at)));
  }
}

__global__ void __launch_bounds__(kThreads) square_relu(void* x, Element element, int64_t size) {
  begin_operation();
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < size; i += stride) {
    const float value = load_element(element, x, i);
    store_element(element, x, i, value < 0 ? 0 : value * value);  // NaN stays
  }
}

/// Eight numbers of a row for a thread, or where rows are no multiples of eight one.
template <int kCount>
__global__ void __launch_bounds__(kThreads)
    sigmoid_gate(const __grid_constant__ SigmoidGateCall a) {
  begin_operation();
  const int64_t stride = int64_t{gridDim.x} * kThreads * kCount;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kCount; i < a.rows * a.cols;
       i += stride) {
    float x[kCount];
    float gate[kCount];
    float base[kCount] = {};
    const bool has_gates = !a.is_of_row && a.gate != nullptr;
    load(a.element, a.x, i, x);
    if (has_gates) load(a.gate_element, a.gate, i, gate);
    if (a.base != nullptr) load(a.element, a.base, i, base);
    const float of_row = a.gate == nullptr ? INFINITY  // whose sigmoid is 1
                         : has_gates       ? 0
                                           : load_element(a.gate_element, a.gate, i / a.cols);
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      x[j] = x[j] / (1.0f + expf(-(has_gates ? gate[j] : of_row))) + base[j];
    }
    store(a.element, a.x, i, x);
  }
}

__global__ void __launch_bounds__(kThreads)
    soft_cap(float* x, int64_t size, float factor, float cap) {
  begin_operation();
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < size; i += stride) {
    const float value = factor * x[i];
    x[i] = cap > 0 ? cap * tanhf(value / cap) : value;
  }
}

__global__ void __launch_bounds__(kThreads)
    to_floats(float* y, const void* x, Element element, int64_t size) {
  begin_operation();
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < size; i += stride) {
    y[i] = load_element(element, x, i);
  }
}

}  // namespace

void run_gate(const GateCall& call, Stream stream) {
  launch(gate, {dim3(ctas_for(call.rows * call.cols)), kThreads}, stream, call);
}

void run_gate_columns(const GateColumnsCall& call, Stream stream) {
  launch(gate_columns, {dim3(ctas_for(call.rows * call.cols)), kThreads}, stream, call);
}

void run_squared_relu(void* x, Element element, int64_t size, Stream stream) {
  launch(square_relu, {dim3(ctas_for(size)), kThreads}, stream, x, element, size);
}

void run_sigmoid_gate(const SigmoidGateCall& call, Stream stream) {
  if (call.cols % 8 == 0) {
    launch(sigmoid_gate<8>, {dim3(ctas_for(call.rows * call.cols / 8)), kThreads}, stream, call);
  } else {
    launch(sigmoid_gate<1>, {dim3(ctas_for(call.rows * call.cols)), kThreads}, stream, call);
  }
}

void run_soft_cap(float* x, int64_t size, float factor, float cap, Stream stream) {
  launch(soft_cap, {dim3(ctas_for(size)), kThreads}, stream, x, size, factor, cap);
}

void run_to_floats(float* y, const void* x, Element element, int64_t size, Stream stream) {
  launch(to_floats, {dim3(ctas_for(size)), kThreads}, stream, y, x, element, size);
}

}  // namespace subbyte::cuda
