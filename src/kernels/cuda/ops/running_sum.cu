#include "kernels/cuda/ops/elements.cuh"
#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ops/running_sum.h"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;

/// A thread for each column of a part.
__global__ void __launch_bounds__(kThreads) running_sum(RunningSumCall call) {
  begin_operation();
  const int64_t col = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (col >= call.cols) return;
  const StatePart part = call.parts[blockIdx.y];
  float sum = part.from < 0 ? 0.0f : call.states[part.from * call.state_stride + col];
  for (int64_t t = part.first_token; t < part.first_token + part.num_tokens; ++t) {
    const int64_t at = t * call.cols + col;
    sum += load_element(call.element, call.x, at);
    store_element(call.element, call.y, at, sum);
  }
  call.states[part.to * call.state_stride + col] = sum;
}

}  // namespace

void run_running_sum(const RunningSumCall& call, Stream stream) {
  const auto ctas = static_cast<unsigned>((call.cols + kThreads - 1) / kThreads);
  const auto parts = static_cast<unsigned>(call.num_parts);
  launch(running_sum, {dim3(ctas, parts), kThreads}, stream, call);
}

}  // namespace subbyte::cuda
