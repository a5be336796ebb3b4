#include "kernels/cuda/dense/heads_linear.h"

#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/dense/dense_16bit.h"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kLanes;
constexpr int kRows = 4;  // outputs of a warp
constexpr int kEight = 8;
constexpr int64_t kMostGemvTokens = 4;

/// CTAs that copy, of each row: a thread has eight numbers.
__host__ __device__ int copy_ctas(const HeadsLinearCall& a) {
  const int64_t eights = (int64_t{a.heads} * a.kept + a.rest_cols + kEight - 1) / kEight;
  return static_cast<int>((eights + kThreads - 1) / kThreads);
}

/// Numbers of a row that are copied: what is kept of each head, then the rest.
__device__ void copy_row(const HeadsLinearCall& a, int64_t row, int cta) {
  const int64_t kept = int64_t{a.heads} * a.kept;
  const int64_t first = (int64_t{cta} * kThreads + threadIdx.x) * kEight;
  for (int64_t i = first; i < first + kEight && i < kept + a.rest_cols; ++i) {
    uint16_t* const y = static_cast<uint16_t*>(a.y) + row * a.y_cols();
    if (i < kept) {
      const int64_t head = i / a.kept;
      const int64_t at = i % a.kept;
      y[head * (a.outputs + a.kept) + a.outputs + at] = static_cast<const uint16_t*>(
          a.x)[row * a.x_cols() + head * (a.inputs + a.kept) + a.inputs + at];
    } else {
      y[a.y_cols() - a.rest_cols + i - kept] =
          static_cast<const uint16_t*>(a.rest)[row * a.rest_cols + i - kept];
    }
  }
}

__global__ void __launch_bounds__(kThreads) copies(const __grid_constant__ HeadsLinearCall a) {
  begin_operation();
  copy_row(a, blockIdx.y, static_cast<int>(blockIdx.x));
}

/// kTokens tokens from blockIdx.y * kTokens on. kAligned: rows of weights and inputs of heads begin
/// at multiples of 16 bytes and have a multiple of 8 numbers.
template <int kTokens, bool kAligned>
__device__ void multiply(const HeadsLinearCall& a, int head, int output, int64_t token) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  float sums[kRows][kTokens] = {};
  for (int k = lane * kEight; k < a.inputs; k += kLanes * kEight) {
    float w[kRows][kEight];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t at = (int64_t{head} * a.outputs + min(output + r, a.outputs - 1)) * a.inputs;
      load_8_of<kAligned>(a.weights_element, a.weights, at + k, at + a.inputs, w[r]);
    }
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      const int64_t at = min(token + t, a.m - 1) * a.x_cols() + head * (a.inputs + a.kept);
      float x[kEight];
      load_8_of<kAligned>(a.element, a.x, at + k, at + a.inputs, x);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int i = 0; i < kEight; ++i) sums[r][t] = fmaf(w[r][i], x[i], sums[r][t]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      const float sum = sum_of_warp(sums[r][t]);
      if (lane != 0 || output + r >= a.outputs || token + t >= a.m) continue;
      const int64_t at = (token + t) * a.y_cols() + head * (a.outputs + a.kept) + output + r;
      store_element(a.element, a.y, at, sum);
    }
  }
}

__host__ __device__ int warps_of_head(const HeadsLinearCall& a) {
  return (a.outputs + kRows - 1) / kRows;
}

/// The first CTAs multiply, those after them copy.
template <int kTokens, bool kAligned>
__global__ void __launch_bounds__(kThreads) gemv(const __grid_constant__ HeadsLinearCall a) {
  begin_operation();
  const int warps = a.heads * warps_of_head(a);
  const int ctas = (warps + kWarps - 1) / kWarps;
  const int64_t token = int64_t{blockIdx.y} * kTokens;
  if (static_cast<int>(blockIdx.x) >= ctas) {
    for (int64_t t = token; t < token + kTokens && t < a.m; ++t) {
      copy_row(a, t, static_cast<int>(blockIdx.x) - ctas);
    }
    return;
  }
  const int warp = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / kLanes;
  if (warp >= warps) return;
  multiply<kTokens, kAligned>(a, warp / warps_of_head(a), warp % warps_of_head(a) * kRows, token);
}

bool is_aligned(const HeadsLinearCall& call) {
  const auto addresses =
      reinterpret_cast<uintptr_t>(call.weights) | reinterpret_cast<uintptr_t>(call.x);
  return addresses % 16 == 0 && call.inputs % kEight == 0 && call.kept % kEight == 0;
}

template <int kTokens>
void launch_gemv(const HeadsLinearCall& call, Stream stream) {
  const int ctas = (call.heads * warps_of_head(call) + kWarps - 1) / kWarps + copy_ctas(call);
  const dim3 grid(static_cast<unsigned>(ctas),
                  static_cast<unsigned>((call.m + kTokens - 1) / kTokens));
  launch(is_aligned(call) ? gemv<kTokens, true> : gemv<kTokens, false>, {grid, kThreads}, stream,
         call);
}

DenseCall tiles_of(const HeadsLinearCall& call) {
  DenseCall dense;
  dense.weights = call.weights;
  dense.weights_element = call.weights_element;
  dense.x = call.x;
  dense.x_element = call.element;
  dense.y = call.y;
  dense.y_element = call.element;
  dense.m = call.m;
  dense.rows = call.outputs;
  dense.cols = call.inputs;
  dense.x_stride = call.x_cols();
  dense.y_stride = call.y_cols();
  return dense;
}

}  // namespace

void run_heads_linear(const HeadsLinearCall& call, Stream stream) {
  const DenseCall dense = tiles_of(call);
  const bool is_many = call.m > kMostGemvTokens || call.batch_invariant;
  if (!is_many || !is_aligned(call) || !serves_16bit_dense(dense)) {
    if (call.m == 1) return launch_gemv<1>(call, stream);
    return launch_gemv<kMostGemvTokens>(call, stream);
  }
  run_dense_16bit_of_heads(dense, {call.heads, call.inputs + call.kept, call.outputs + call.kept},
                           stream);
  const int ctas = copy_ctas(call);
  if (ctas == 0) return;
  const dim3 grid(static_cast<unsigned>(ctas), static_cast<unsigned>(call.m));
  launch(copies, {grid, kThreads}, stream, call);
}

}  // namespace subbyte::cuda
