// A run lies in shared memory, where each stage of butterflies pairs its numbers; short runs share
// a CTA. Rotations are of activations and take a fraction of the products after them, so no stage
// is kept in registers.

#include "kernels/cuda/codebook/hadamard.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/common/launch.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kNumbersOfCta = 2048;  // of short runs
constexpr int64_t kMaxCtas = 1 << 16;

/// Runs of a CTA, one after the other in shared memory.
struct Layout {
  int runs;
  int numbers;
};

__global__ void __launch_bounds__(kThreads)
    rotate_runs(const __grid_constant__ HadamardCall a, Layout layout, float factor) {
  begin_operation();
  extern __shared__ float x[];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t all = a.runs * a.dim;
  for (int64_t first = int64_t{blockIdx.x} * layout.numbers; first < all;
       first += int64_t{gridDim.x} * layout.numbers) {
    const int count = static_cast<int>(min(int64_t{layout.numbers}, all - first));
    for (int i = thread; i < count; i += kThreads) {
      const int in_run = i & (a.dim - 1);
      const bool is_negative =
          a.signs != nullptr && (a.signs[in_run / 32] >> (in_run % 32) & 1u) != 0;
      const float value = load_element(a.element, a.data, first + i);
      x[i] = is_negative ? -value : value;
    }
    __syncthreads();
    for (int step = 1; step < a.dim; step *= 2) {
      for (int pair = thread; pair < count / 2; pair += kThreads) {
        const int low = pair / step * 2 * step + pair % step;
        const float one = x[low];
        const float other = x[low + step];
        x[low] = one + other;
        x[low + step] = one - other;
      }
      __syncthreads();
    }
    for (int i = thread; i < count; i += kThreads) {
      store_element(a.element, a.data, first + i, x[i] * factor);
    }
    __syncthreads();
  }
}

}  // namespace

Status run_hadamard(const HadamardCall& call, Stream stream) {
  if (call.runs == 0) return {};
  const int runs = std::max(1, kNumbersOfCta / call.dim);
  const Layout layout = {runs, runs * call.dim};
  const int64_t ctas = std::min((call.runs + runs - 1) / runs, kMaxCtas);
  const float factor = 1 / std::sqrt(static_cast<float>(call.dim));
  const Grid grid = {dim3(static_cast<unsigned>(ctas)), kThreads,
                     layout.numbers * static_cast<int>(sizeof(float))};
  launch(rotate_runs, grid, stream, call, layout, factor);
  return launched("hadamard");
}

}  // namespace subbyte::cuda
