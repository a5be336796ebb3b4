#include "kernels/cuda/ops/gates.h"

#include <algorithm>

#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/ops/elements.cuh"
#include "kernels/cuda/ops/launch.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxCtas = 1 << 16;

unsigned ctas_for(int64_t size) {
  return static_cast<unsigned>(std::min((size + kThreads - 1) / kThreads, kMaxCtas));
}

__global__ void __launch_bounds__(kThreads)
    gate(void* y, const void* gate_up, Activation activation, Element element, int64_t size,
         int64_t cols) {
  begin_operation();
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < size; i += stride) {
    const int64_t at = i / cols * (2 * cols) + i % cols;
    const float g = load_element(element, gate_up, at);
    const float up = load_element(element, gate_up, at + cols);
    store_element(element, y, i, gated(activation, {}, g, up));
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

void run_gate(void* y, const void* gate_up, Activation activation, Element element, int64_t m,
              int64_t cols, Stream stream) {
  launch(gate, {dim3(ctas_for(m * cols)), kThreads}, stream, y, gate_up, activation, element,
         m * cols, cols);
}

void run_soft_cap(float* x, int64_t size, float factor, float cap, Stream stream) {
  launch(soft_cap, {dim3(ctas_for(size)), kThreads}, stream, x, size, factor, cap);
}

void run_to_floats(float* y, const void* x, Element element, int64_t size, Stream stream) {
  launch(to_floats, {dim3(ctas_for(size)), kThreads}, stream, y, x, element, size);
}

}  // namespace subbyte::cuda
