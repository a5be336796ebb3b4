#include "kernels/cuda/elementwise/activations.h"

#include <algorithm>
#include <string>

#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/common/prologue_epilogue.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxCtas = 1 << 16;

__device__ float sum_at(const EpilogueCall& call, int64_t row, int64_t col) {
  const float sum = load_element(call.sums_element, call.sums, row * call.sums_stride + col);
  const float bias = call.bias == nullptr ? 0.0f : load_element(call.element, call.bias, col);
  return call.gain * sum + bias;
}

__device__ float result_of(const EpilogueCall& call, int64_t row, int64_t col) {
  if (call.gate != Activation::kNone) {
    const bool pairs = call.gate_up_pairs;
    const float gate = sum_at(call, row, pairs ? 2 * col : col);
    const float up = sum_at(call, row, pairs ? 2 * col + 1 : col + call.cols);
    return gated(call.gate, call.swiglu, gate, up);
  }
  return activated(call.unary, sum_at(call, row, col));
}

__global__ void __launch_bounds__(kThreads) epilogue(EpilogueCall call) {
  const int64_t size = call.m * call.cols;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < size; i += step) {
    const int64_t row = i / call.cols;
    const int64_t col = i % call.cols;
    float value = result_of(call, row, col);
    if (call.residual != nullptr) {
      value += load_element(call.element, call.residual, row * call.residual_stride + col);
    }
    store_element(call.element, call.y, row * call.y_stride + col, value);
  }
}

}  // namespace

Status run_epilogue(const EpilogueCall& call, Stream stream) {
  const int64_t size = call.m * call.cols;
  if (size == 0) return {};
  const auto ctas = static_cast<unsigned>(std::min((size + kThreads - 1) / kThreads, kMaxCtas));
  epilogue<<<ctas, kThreads, 0, stream>>>(call);
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return {};
  return Error{"cuda.launch", std::string("epilogue: ") + cudaGetErrorString(error)};
}

}  // namespace subbyte::cuda
