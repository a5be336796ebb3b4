#include "kernels/cuda/elementwise/norm.h"

#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/experts/routed_sum.cuh"

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

/// What a sum with something is times.
__device__ float scale_of(const AddNormCall& a) {
  return a.scale != nullptr && has_delta(a) ? *a.scale : 1.0f;
}

/// Of a row; the sigmoid of infinity is 1.
__device__ float gate_of(const AddNormCall& a, int64_t row) {
  return a.gated.gate != nullptr ? a.gated.gate[row] : INFINITY;
}

/// As SigmoidGateCall has it with the sum of the routes as its base.
__device__ float add_gated(Element element, float sum, float x, float gate) {
  return rounded(element, x / (1.0f + expf(-gate)) + sum);
}

__device__ void load_delta_8(const AddNormCall& a, int64_t row, int64_t col, float (&delta)[8]) {
  if (a.routes.top_k == 0) return load_8(a.element, a.delta, row * a.cols + col, delta);
  add_routes_8<kThreads>(a.element, a.routes, a.cols, row, col, delta);
#pragma unroll
  for (float& value : delta) value = rounded(a.element, value);
  if (a.gated.x == nullptr) return;
  float x[8];
  load_8(a.element, a.gated.x, row * a.cols + col, x);
  const float gate = gate_of(a, row);
#pragma unroll
  for (int i = 0; i < 8; ++i) delta[i] = add_gated(a.element, delta[i], x[i], gate);
}

__device__ float load_delta(const AddNormCall& a, int64_t row, int64_t col) {
  if (a.routes.top_k == 0) return load_element(a.element, a.delta, row * a.cols + col);
  const float sum = rounded(a.element, add_routes(a.element, a.routes, a.cols, row, col));
  if (a.gated.x == nullptr) return sum;
  return add_gated(a.element, sum, load_element(a.element, a.gated.x, row * a.cols + col),
                   gate_of(a, row));
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
  const float scale = scale_of(a);
  double squares = 0;
#pragma unroll
  for (int r = 0; r < kRuns; ++r) {
    const int64_t i = (int64_t{r} * kThreads + threadIdx.x) * kEight;
#pragma unroll
    for (int e = 0; e < kEight; ++e) {
      values[r][e] = scale * fmaf(a.factor, deltas[r][e], values[r][e]);
      squares = add_squares(squares, values[r][e]);
    }
    if (has_delta(a) && i < a.cols) store_8(Element::kF32, x, i, values[r]);
  }
  const double of_row = sum_in_tree<kThreads / kLanes>(squares, partials);
  const float factor = factor_of(of_row, a.cols, a.eps);
#pragma unroll
  for (int r = 0; r < kRuns; ++r) {
    const int64_t i = (int64_t{r} * kThreads + threadIdx.x) * kEight;
    if (i >= a.cols) continue;
#pragma unroll
    for (int e = 0; e < kEight; ++e) values[r][e] *= factor * weights[r][e];
    store_8(a.element, a.y, blockIdx.x * a.cols + i, values[r]);
  }
}

constexpr int kFour = 4;
constexpr int kMaxRoutesAtOnce = 10;

__device__ float4 add_gated_4(Element element, const float4& sum, const uint2& x, float gate) {
  return {add_gated(element, sum.x, to_float(element, static_cast<uint16_t>(x.x)), gate),
          add_gated(element, sum.y, to_float(element, static_cast<uint16_t>(x.x >> 16)), gate),
          add_gated(element, sum.z, to_float(element, static_cast<uint16_t>(x.y)), gate),
          add_gated(element, sum.w, to_float(element, static_cast<uint16_t>(x.y >> 16)), gate)};
}

/// Routes of a row on their way to the four elements of each thread.
struct FewRoutes {
  alignas(16) uint16_t arrived[kMaxRoutesAtOnce][kThreads][kFour];

  __device__ void copy(const RoutedSum& routes, int64_t cols, int64_t row, int64_t col) {
    const int top_k = static_cast<int>(routes.top_k);
    const auto* const outputs = static_cast<const uint16_t*>(routes.outputs) + col;
#pragma unroll
    for (int r = 0; r < kMaxRoutesAtOnce; ++r) {
      if (r >= top_k) break;
      cp_async<8>(shared_address(arrived[r][threadIdx.x]), outputs + (row * top_k + r) * cols);
    }
  }

  /// The sum, rounded. Lane r of each warp has the weight of route r.
  __device__ float4 sum(Element element, int top_k, float weight) const {
    float4 sum = {};
#pragma unroll
    for (int r = 0; r < kMaxRoutesAtOnce; ++r) {
      if (r >= top_k) break;
      const float of_route = __shfl_sync(~0u, weight, r);
      const uint2 pairs = *reinterpret_cast<const uint2*>(arrived[r][threadIdx.x]);
      sum.x = fmaf(of_route, to_float(element, static_cast<uint16_t>(pairs.x)), sum.x);
      sum.y = fmaf(of_route, to_float(element, static_cast<uint16_t>(pairs.x >> 16)), sum.y);
      sum.z = fmaf(of_route, to_float(element, static_cast<uint16_t>(pairs.y)), sum.z);
      sum.w = fmaf(of_route, to_float(element, static_cast<uint16_t>(pairs.y >> 16)), sum.w);
    }
    return {rounded(element, sum.x), rounded(element, sum.y), rounded(element, sum.z),
            rounded(element, sum.w)};
  }
};

/// A CTA for a row of at most four elements a thread, to which few routes are added, all of them on
/// their way at once.
__global__ void __launch_bounds__(kThreads) add_few_routes(const __grid_constant__ AddNormCall a) {
  __shared__ FewRoutes routes;
  __shared__ double partials[kThreads / kLanes];
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int top_k = static_cast<int>(a.routes.top_k);
  const int64_t col = int64_t{threadIdx.x} * kFour;
  const bool there = col < a.cols;
  float4 weights = {};
  if (there) weights = *reinterpret_cast<const float4*>(a.weight + col);
  begin_operation();
  const int64_t row = a.rows != nullptr ? a.rows[blockIdx.x] : blockIdx.x;
  float* const x = a.x + row * a.cols + col;
  const bool is_gated = a.gated.x != nullptr;
  float4 sum = {};
  uint2 gated = {};
  float gate = 0;
  if (there) {
    routes.copy(a.routes, a.cols, row, col);
    if (is_gated) {
      const auto* const results = static_cast<const uint16_t*>(a.gated.x);
      gated = *reinterpret_cast<const uint2*>(results + row * a.cols + col);
      gate = gate_of(a, row);
    }
    sum = *reinterpret_cast<const float4*>(x);
  }
  const float weight = lane < top_k ? a.routes.weights[row * top_k + lane] : 0;
  cp_async_commit();
  cp_async_wait<0>();
  float4 delta = routes.sum(a.element, top_k, weight);
  if (is_gated) delta = add_gated_4(a.element, delta, gated, gate);
  const float scale = scale_of(a);
  sum = {scale * fmaf(a.factor, delta.x, sum.x), scale * fmaf(a.factor, delta.y, sum.y),
         scale * fmaf(a.factor, delta.z, sum.z), scale * fmaf(a.factor, delta.w, sum.w)};
  double squares = 0;
  if (there) {
    for (const float value : {sum.x, sum.y, sum.z, sum.w}) squares = add_squares(squares, value);
    *reinterpret_cast<float4*>(x) = sum;
  }
  const double of_row = sum_in_tree<kThreads / kLanes>(squares, partials);
  const float factor = factor_of(of_row, a.cols, a.eps);
  const uint2 y = {pack_x2(a.element, sum.x * (factor * weights.x), sum.y * (factor * weights.y)),
                   pack_x2(a.element, sum.z * (factor * weights.z), sum.w * (factor * weights.w))};
  if (there) {
    const int64_t to = blockIdx.x * a.cols + col;
    *reinterpret_cast<uint2*>(static_cast<uint16_t*>(a.y) + to) = y;
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
      value = scale_of(a) * fmaf(a.factor, load_delta(a, row, i), value);
      x[i] = value;
    }
    squares = add_squares(squares, value);
  }
  const float factor = factor_of(sum_of_cta(squares, partials), a.cols, a.eps);
  for (int64_t i = threadIdx.x; i < a.cols; i += kThreads) {
    store_element(a.element, a.y, blockIdx.x * a.cols + i, x[i] * (factor * a.weight[i]));
  }
}

/// The mean of a row, unless it is not subtracted, and the factor of its norm.
struct RowFactors {
  float mean = 0;
  float factor = 1;

  __device__ RowFactors(const AddNormCall& a, const float* x, double* sums, double* squares) {
    double value = 0;
    if (a.is_centred) {
      for (int64_t i = threadIdx.x; i < a.cols; i += kThreads) value += static_cast<double>(x[i]);
      mean = static_cast<float>(sum_of_cta(value, sums) / static_cast<double>(a.cols));
    }
    value = 0;
    for (int64_t i = threadIdx.x; i < a.cols; i += kThreads) {
      value = add_squares(value, x[i] - mean);
    }
    factor = factor_of(sum_of_cta(value, squares), a.cols, a.eps);
  }
};

/// The same for rows of any size and any norm, without routes.
__global__ void __launch_bounds__(kThreads) add_any_norm(const __grid_constant__ AddNormCall a) {
  begin_operation();
  __shared__ double partials[2][kThreads / kLanes];
  const int64_t row = a.rows != nullptr ? a.rows[blockIdx.x] : blockIdx.x;
  float* const x = a.x + row * a.cols;
  for (int64_t i = threadIdx.x; i < a.cols && a.delta != nullptr; i += kThreads) {
    x[i] = scale_of(a) * fmaf(a.factor, load_delta(a, row, i), x[i]);
  }
  const RowFactors factors(a, x, partials[0], partials[1]);
  for (int64_t i = threadIdx.x; i < a.cols; i += kThreads) {
    const float bias = a.bias == nullptr ? 0.0f : a.bias[i];
    store_element(a.element, a.y, blockIdx.x * a.cols + i,
                  fmaf(x[i] - factors.mean, factors.factor * a.weight[i], bias));
  }
}

/// A CTA for a run of a row of activations.
__global__ void __launch_bounds__(kThreads) norm(const __grid_constant__ NormCall a) {
  begin_operation();
  __shared__ double partials[kThreads / kLanes];
  const int64_t row = blockIdx.x / a.runs * a.stride + a.first + blockIdx.x % a.runs * a.cols;
  double squares = 0;
  for (int64_t i = threadIdx.x; i < a.cols; i += kThreads) {
    squares = add_squares(squares, load_element(a.element, a.x, row + i));
  }
  const float factor = factor_of(sum_of_cta(squares, partials), a.cols, a.eps);
  for (int64_t i = threadIdx.x; i < a.cols; i += kThreads) {
    const float x = load_element(a.element, a.x, row + i);
    store_element(a.element, a.y, row + i, x * (factor * a.weight[i]));
  }
}

/// Eight elements of a row in each thread, kRuns times.
template <int kRuns>
struct RowOfCta {
  float values[kRuns][kEight] = {};

  static __device__ int64_t col(int run) {
    return (int64_t{run} * kThreads + threadIdx.x) * kEight;
  }

  __device__ void load(Element element, const void* from, int64_t cols) {
#pragma unroll
    for (int r = 0; r < kRuns; ++r) {
      if (from != nullptr && col(r) < cols) load_8(element, from, col(r), values[r]);
    }
  }

  __device__ void load(const NormTerm& term, Element element, int64_t cols) {
    if (term.routes.top_k == 0) return load(element, term.x, cols);
#pragma unroll
    for (int r = 0; r < kRuns; ++r) {
      if (col(r) >= cols) continue;
      add_routes_8<kThreads>(element, term.routes, cols, 0, col(r), values[r]);
#pragma unroll
      for (float& value : values[r]) value = rounded(element, value);
    }
  }

  __device__ double squares() const {
    double sum = 0;
#pragma unroll
    for (int r = 0; r < kRuns; ++r) {
#pragma unroll
      for (const float value : values[r]) sum = add_squares(sum, value);
    }
    return sum;
  }

  __device__ void normalise(const RowOfCta& weights, float factor, Element element) {
#pragma unroll
    for (int r = 0; r < kRuns; ++r) {
#pragma unroll
      for (int e = 0; e < kEight; ++e) {
        values[r][e] = rounded(element, values[r][e] * (factor * weights.values[r][e]));
      }
    }
  }

  __device__ void store(Element element, void* to, int64_t cols) const {
#pragma unroll
    for (int r = 0; r < kRuns; ++r) {
      if (col(r) < cols) store_8(element, to, col(r), values[r]);
    }
  }
};

/// Weights first, which depend on no other kernel, but those of all results but one.
template <int kRuns>
__global__ void __launch_bounds__(kThreads)
    joined_norms(const __grid_constant__ JoinedNormsCall a) {
  using Row = RowOfCta<kRuns>;
  __shared__ double partials[4][kThreads / kLanes];
  constexpr int kWarps = kThreads / kLanes;
  Row weights[2];
  Row of_sum;
  Row of_result;
#pragma unroll
  for (int t = 0; t < 2; ++t) weights[t].load(Element::kF32, a.terms[t].weight, a.cols);
  of_sum.load(Element::kF32, a.weight, a.cols);
  of_result.load(Element::kF32, a.results[0].weight, a.cols);
  begin_operation();
  Row x;
  x.load(Element::kF32, a.x, a.cols);
  Row added;
#pragma unroll
  for (int t = 0; t < 2; ++t) {
    const NormTerm& term = a.terms[t];
    if (term.x == nullptr && term.routes.top_k == 0) continue;
    Row row;
    row.load(term, a.element, a.cols);
    if (term.weight != nullptr) {
      const double squares = sum_in_tree<kWarps>(row.squares(), partials[t]);
      row.normalise(weights[t], factor_of(squares, a.cols, term.eps), a.element);
    }
#pragma unroll
    for (int r = 0; r < kRuns; ++r) {
#pragma unroll
      for (int e = 0; e < kEight; ++e) {
        added.values[r][e] = rounded(a.element, added.values[r][e] + row.values[r][e]);
      }
    }
  }
  if (a.weight != nullptr) {
    const double squares = sum_in_tree<kWarps>(added.squares(), partials[2]);
    added.normalise(of_sum, factor_of(squares, a.cols, a.eps), a.element);
  }
  const float scale = a.scale != nullptr ? *a.scale : 1.0f;
#pragma unroll
  for (int r = 0; r < kRuns; ++r) {
#pragma unroll
    for (int e = 0; e < kEight; ++e) {
      x.values[r][e] = scale * fmaf(a.factor, added.values[r][e], x.values[r][e]);
    }
  }
  const double squares = sum_in_tree<kWarps>(x.squares(), partials[3]);
  x.store(Element::kF32, a.x, a.cols);
#pragma unroll
  for (int i = 0; i < JoinedNormsCall::kMaxResults; ++i) {
    const JoinedNormsCall::Result& result = a.results[i];
    if (result.y == nullptr) break;
    if (i > 0) of_result.load(Element::kF32, result.weight, a.cols);
    Row y = x;
    y.normalise(of_result, factor_of(squares, a.cols, result.eps), a.element);
    y.store(a.element, result.y, a.cols);
  }
}

__global__ void __launch_bounds__(kThreads)
    add(void* y, float* x, const void* delta, float factor, Element element, int64_t size) {
  begin_operation();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= size) return;
  if (delta != nullptr) x[i] = fmaf(factor, load_element(element, delta, i), x[i]);
  store_element(element, y, i, x[i]);
}

bool is_aligned(const AddNormCall& call) {
  if (call.routes.top_k > 0 && call.element == Element::kF32) return false;
  uintptr_t places = 0;
  for (const void* p :
       {static_cast<const void*>(call.x), call.delta, call.routes.outputs, call.gated.x,
        static_cast<const void*>(call.weight), static_cast<const void*>(call.y)}) {
    places |= reinterpret_cast<uintptr_t>(p);
  }
  return places % 16 == 0 && call.cols % kEight == 0;
}

}  // namespace

void run_add_norm(const AddNormCall& call, Stream stream) {
  const Grid grid = {dim3(static_cast<unsigned>(call.num_rows)), kThreads};
  if (call.is_centred || call.bias != nullptr) return launch(add_any_norm, grid, stream, call);
  const int64_t runs = (call.cols + kThreads * kEight - 1) / (kThreads * kEight);
  if (is_aligned(call) && call.cols <= kThreads * kFour && call.routes.top_k > 0 &&
      call.routes.top_k <= kMaxRoutesAtOnce) {
    return launch(add_few_routes, grid, stream, call);
  }
  if (!is_aligned(call) || runs > kMaxRuns) return launch(add_norm, grid, stream, call);
  if (runs == 1) return launch(add_norm_runs<1>, grid, stream, call);
  if (runs == 2) return launch(add_norm_runs<2>, grid, stream, call);
  launch(add_norm_runs<kMaxRuns>, grid, stream, call);
}

bool serves_joined_norms(const JoinedNormsCall& call) {
  uintptr_t places = reinterpret_cast<uintptr_t>(call.x) | reinterpret_cast<uintptr_t>(call.weight);
  for (const NormTerm& term : call.terms) {
    for (const void* p : {term.x, term.routes.outputs, static_cast<const void*>(term.weight)}) {
      places |= reinterpret_cast<uintptr_t>(p);
    }
  }
  for (const JoinedNormsCall::Result& result : call.results) {
    places |= reinterpret_cast<uintptr_t>(result.y) | reinterpret_cast<uintptr_t>(result.weight);
  }
  return places % 16 == 0 && call.cols % kEight == 0 && call.cols <= 2 * kThreads * kEight &&
         call.element != Element::kF32;
}

void run_joined_norms(const JoinedNormsCall& call, Stream stream) {
  const Grid grid = {dim3(1), kThreads};
  if (call.cols <= kThreads * kEight) return launch(joined_norms<1>, grid, stream, call);
  launch(joined_norms<2>, grid, stream, call);
}

void run_add(void* y, float* x, const void* delta, float factor, Element element, int64_t size,
             Stream stream) {
  const auto ctas = static_cast<unsigned>((size + kThreads - 1) / kThreads);
  launch(add, {dim3(ctas), kThreads}, stream, y, x, delta, factor, element, size);
}

void run_norm(const NormCall& call, Stream stream) {
  launch(norm, {dim3(static_cast<unsigned>(call.num_rows * call.runs)), kThreads}, stream, call);
}

}  // namespace subbyte::cuda
