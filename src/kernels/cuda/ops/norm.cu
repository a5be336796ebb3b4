#include "kernels/cuda/ops/norm.h"

#include "kernels/cuda/ops/elements.cuh"
#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ops/routed_sum.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kEight = 8;  // elements that a thread loads at once
constexpr int kMaxRuns = 4;

__device__ float factor_of(double squares, int64_t cols, float eps) {
  const float mean = static_cast<float>(squares / static_cast<double>(cols));
  return 1.0f / sqrtf(mean + eps);
}

__device__ double add_squares(double sum, float value) {
  return fma(static_cast<double>(value), static_cast<double>(value), sum);
}

__device__ bool has_delta(const AddNormCall& a) {
  return a.delta != nullptr || a.routes.top_k > 0;
}

__device__ void load_delta_8(const AddNormCall& a, int64_t row, int64_t col, float (&delta)[8]) {
  if (a.routes.top_k == 0) return load_8(a.element, a.delta, row * a.cols + col, delta);
  add_routes_8<kThreads>(a.element, a.routes, a.cols, row, col, delta);
#pragma unroll
  for (float& value : delta) value = rounded(a.element, value);
}

__device__ float load_delta(const AddNormCall& a, int64_t row, int64_t col) {
  if (a.routes.top_k == 0) return load_element(a.element, a.delta, row * a.cols + col);
  return rounded(a.element, add_routes(a.element, a.routes, a.cols, row, col));
}

/// A CTA for a row, which stays in registers: kRuns times eight elements for each thread, loaded
/// all at once, weights before anything else. Rows of a multiple of eight elements.
template <int kRuns>
__global__ void __launch_bounds__(kThreads) add_norm_runs(const __grid_constant__ AddNormCall a) {
  float weights[kRuns][kEight] = {};
#pragma unroll
  for (int r = 0; r < kRuns; ++r) {
    const int64_t i = (int64_t{r} * kThreads + threadIdx.x) * kEight;
    if (i < a.cols) load_8(Element::kF32, a.weight, i, weights[r]);
  }
  begin_operation();
  __shared__ double partials[kThreads / kLanes];
  const int64_t row = a.rows != nullptr ? a.rows[blockIdx.x] : blockIdx.x;
  float* const x = a.x + row * a.cols;
  float values[kRuns][kEight] = {};
  float deltas[kRuns][kEight] = {};
#pragma unroll
  for (int r = 0; r < kRuns; ++r) {
    const int64_t i = (int64_t{r} * kThreads + threadIdx.x) * kEight;
    if (i >= a.cols) continue;
    load_8(Element::kF32, x, i, values[r]);
    if (has_delta(a)) load_delta_8(a, row, i, deltas[r]);
  }
  double squares = 0;
#pragma unroll
  for (int r = 0; r < kRuns; ++r) {
    const int64_t i = (int64_t{r} * kThreads + threadIdx.x) * kEight;
#pragma unroll
    for (int e = 0; e < kEight; ++e) {
      values[r][e] = fmaf(a.factor, deltas[r][e], values[r][e]);
      squares = add_squares(squares, values[r][e]);
    }
    if (has_delta(a) && i < a.cols) store_8(Element::kF32, x, i, values[r]);
  }
  const float factor = factor_of(sum_of_cta(squares, partials), a.cols, a.eps);
#pragma unroll
  for (int r = 0; r < kRuns; ++r) {
    const int64_t i = (int64_t{r} * kThreads + threadIdx.x) * kEight;
    if (i >= a.cols) continue;
#pragma unroll
    for (int e = 0; e < kEight; ++e) values[r][e] *= factor * weights[r][e];
    store_8(a.element, a.y, blockIdx.x * a.cols + i, values[r]);
  }
}

/// The same for rows of any size. A thread reads again what it has written itself.
__global__ void __launch_bounds__(kThreads) add_norm(const __grid_constant__ AddNormCall a) {
  begin_operation();
  __shared__ double partials[kThreads / kLanes];
  const int64_t row = a.rows != nullptr ? a.rows[blockIdx.x] : blockIdx.x;
  float* const x = a.x + row * a.cols;
  double squares = 0;
  for (int64_t i = threadIdx.x; i < a.cols; i += kThreads) {
    float value = x[i];
    if (has_delta(a)) {
      value = fmaf(a.factor, load_delta(a, row, i), value);
      x[i] = value;
    }
    squares = add_squares(squares, value);
  }
  const float factor = factor_of(sum_of_cta(squares, partials), a.cols, a.eps);
  for (int64_t i = threadIdx.x; i < a.cols; i += kThreads) {
    store_element(a.element, a.y, blockIdx.x * a.cols + i, x[i] * (factor * a.weight[i]));
  }
}

/// A CTA for a row of activations.
__global__ void __launch_bounds__(kThreads)
    norm(void* y, const void* x, const float* weight, Element element, int64_t cols, float eps) {
  begin_operation();
  __shared__ double partials[kThreads / kLanes];
  const int64_t row = int64_t{blockIdx.x} * cols;
  double squares = 0;
  for (int64_t i = threadIdx.x; i < cols; i += kThreads) {
    squares = add_squares(squares, load_element(element, x, row + i));
  }
  const float factor = factor_of(sum_of_cta(squares, partials), cols, eps);
  for (int64_t i = threadIdx.x; i < cols; i += kThreads) {
    store_element(element, y, row + i, load_element(element, x, row + i) * (factor * weight[i]));
  }
}

bool is_aligned(const AddNormCall& call) {
  if (call.routes.top_k > 0 && call.element == Element::kF32) return false;
  uintptr_t places = 0;
  for (const void* p : {static_cast<const void*>(call.x), call.delta, call.routes.outputs,
                        static_cast<const void*>(call.weight), static_cast<const void*>(call.y)}) {
    places |= reinterpret_cast<uintptr_t>(p);
  }
  return places % 16 == 0 && call.cols % kEight == 0;
}

}  // namespace

void run_add_norm(const AddNormCall& call, Stream stream) {
  const Grid grid = {dim3(static_cast<unsigned>(call.num_rows)), kThreads};
  const int64_t runs = (call.cols + kThreads * kEight - 1) / (kThreads * kEight);
  if (!is_aligned(call) || runs > kMaxRuns) return launch(add_norm, grid, stream, call);
  if (runs == 1) return launch(add_norm_runs<1>, grid, stream, call);
  if (runs == 2) return launch(add_norm_runs<2>, grid, stream, call);
  launch(add_norm_runs<kMaxRuns>, grid, stream, call);
}

void run_norm(void* y, const void* x, const float* weight, Element element, int64_t num_rows,
              int64_t cols, float eps, Stream stream) {
  launch(norm, {dim3(static_cast<unsigned>(num_rows)), kThreads}, stream, y, x, weight, element,
         cols, eps);
}

}  // namespace subbyte::cuda
