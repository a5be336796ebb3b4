#include "kernels/cuda/ops/activations.h"

#include <algorithm>
#include <string>

#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/ops/elements.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxCtas = 1 << 16;

__global__ void __launch_bounds__(kThreads) activate(ActivationCall call, Element element) {
  const int64_t size = call.m * call.cols;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < size; i += step) {
    const int64_t row = i / call.cols;
    const int64_t col = i % call.cols;
    float value = load_element(element, call.y, row * call.y_stride + col);
    if (call.is_gelu) {
      value = gated(Activation::kGeGLU, {}, value, 1.0f);
    } else {
      value = value < 0 ? 0 : value;
    }
    if (call.residual != nullptr) {
      value += load_element(element, call.residual, row * call.residual_stride + col);
    }
    store_element(element, call.y, row * call.y_stride + col, value);
  }
}

}  // namespace

Status run_activation(const ActivationCall& call, Stream stream) {
  const int64_t size = call.m * call.cols;
  if (size == 0) return {};
  const auto ctas = static_cast<unsigned>(std::min((size + kThreads - 1) / kThreads, kMaxCtas));
  activate<<<ctas, kThreads, 0, stream>>>(call, element_of(call.number));
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return {};
  return Error{"cuda.launch", std::string("activation: ") + cudaGetErrorString(error)};
}

}  // namespace subbyte::cuda
