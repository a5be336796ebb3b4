#include "kernels/cuda/ops/norm.h"

#include <cuda_runtime.h>

#include "kernels/cuda/ops/elements.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;

/// A CTA for a row. A thread reads again what it has written itself.
__global__ void __launch_bounds__(kThreads) add_norm(const __grid_constant__ AddNormCall a) {
  __shared__ double partials[kThreads / kLanes];
  const int64_t row = a.rows != nullptr ? a.rows[blockIdx.x] : blockIdx.x;
  float* const x = a.x + row * a.cols;
  double squares = 0;
  for (int64_t i = threadIdx.x; i < a.cols; i += kThreads) {
    float value = x[i];
    if (a.delta != nullptr) {
      value += load_element(a.element, a.delta, row * a.cols + i);
      x[i] = value;
    }
    squares = fma(static_cast<double>(value), static_cast<double>(value), squares);
  }
  squares = sum_of_cta(squares, partials);
  const float mean = static_cast<float>(squares / static_cast<double>(a.cols));
  const float factor = 1.0f / sqrtf(mean + a.eps);
  for (int64_t i = threadIdx.x; i < a.cols; i += kThreads) {
    store_element(a.element, a.y, blockIdx.x * a.cols + i, x[i] * factor * a.weight[i]);
  }
}

}  // namespace

void run_add_norm(const AddNormCall& call, Stream stream) {
  add_norm<<<static_cast<unsigned>(call.num_rows), kThreads, 0, stream>>>(call);
}

}  // namespace subbyte::cuda
