#include "kernels/cuda/ops/rotate.h"

#include "kernels/cuda/ops/elements.cuh"
#include "kernels/cuda/ops/launch.cuh"
#include "kernels/kv_e4m3.h"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kLanes;
constexpr int kPairs = 4;  // of a lane: heads of 256 elements

__global__ void __launch_bounds__(kThreads)
    angles(float* cos_out, float* sin_out, const RowPlace* places, const double* inv_freq,
           int64_t size, int64_t half, double factor) {
  begin_operation();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= size) return;
  double sine;
  double cosine;
  sincos(static_cast<double>(places[i / half].position) * inv_freq[i % half], &sine, &cosine);
  cos_out[i] = static_cast<float>(cosine * factor);
  sin_out[i] = static_cast<float>(sine * factor);
}

/// Elements i and i + half of a head, which turn together, kPairs of them for each lane.
struct HeadOfLane {
  float low[kPairs];
  float high[kPairs];
};

__device__ HeadOfLane load_head(Element element, const void* from, int64_t at, int half) {
  HeadOfLane head = {};
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = j * kLanes + static_cast<int>(threadIdx.x) % kLanes;
    if (i >= half) continue;
    head.low[j] = load_element(element, from, at + i);
    head.high[j] = load_element(element, from, at + half + i);
  }
  return head;
}

__device__ void store_head(Element element, void* to, int64_t at, int half,
                           const HeadOfLane& head) {
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = j * kLanes + static_cast<int>(threadIdx.x) % kLanes;
    if (i >= half) continue;
    store_element(element, to, at + i, head.low[j]);
    store_element(element, to, at + half + i, head.high[j]);
  }
}

__device__ void normalise(HeadOfLane& head, const HeadOfLane& weight, float eps, int half) {
  double squares = 0;
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    squares += static_cast<double>(head.low[j]) * head.low[j] +
               static_cast<double>(head.high[j]) * head.high[j];
  }
  const float mean = static_cast<float>(sum_of_warp(squares) / (2 * half));
  const float factor = 1.0f / sqrtf(mean + eps);
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    head.low[j] *= factor * weight.low[j];
    head.high[j] *= factor * weight.high[j];
  }
}

__device__ void turn(HeadOfLane& head, const HeadOfLane& angle) {
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const float low = head.low[j];
    const float high = head.high[j];
    head.low[j] = fmaf(-high, angle.high[j], low * angle.low[j]);
    head.high[j] = fmaf(low, angle.high[j], high * angle.low[j]);
  }
}

/// Cosines and sines of a row.
__device__ HeadOfLane load_angles(const RotateCall& a, int64_t row, int half) {
  HeadOfLane angle = {};
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = j * kLanes + static_cast<int>(threadIdx.x) % kLanes;
    if (i >= half) continue;
    angle.low[j] = a.cos[row * half + i];
    angle.high[j] = a.sin[row * half + i];
  }
  return angle;
}

/// A head in e4m3 and its scale, into a run of the cache.
__device__ void store_scaled(std::byte* run, int64_t position, int head_dim,
                             const HeadOfLane& head) {
  uint32_t largest = 0;
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    largest = max(largest, __float_as_uint(head.low[j]) & 0x7FFFFFFF);
    largest = max(largest, __float_as_uint(head.high[j]) & 0x7FFFFFFF);
  }
  const uint32_t scale = e4m3::scale_of(__reduce_max_sync(~0u, largest));
  const float inverse = __uint_as_float(e4m3::inverse_bits(scale));
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  if (lane == 0) run[kPagePositions * head_dim + position] = static_cast<std::byte>(scale);
  const auto store = [&](int i, float x) {
    run[position * head_dim + i] =
        static_cast<std::byte>(e4m3::encode(__float_as_uint(x * inverse)));
  };
  const int half = head_dim / 2;
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = j * kLanes + lane;
    if (i >= half) continue;
    store(i, head.low[j]);
    store(half + i, head.high[j]);
  }
}

/// A warp for a head.
__global__ void __launch_bounds__(kThreads) rotate(const __grid_constant__ RotateCall a) {
  begin_operation();
  const int heads_of_row = a.heads + 2 * a.kv_heads;
  const int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  if (i >= a.num_rows * heads_of_row) return;
  const int64_t row = i / heads_of_row;
  const int head = static_cast<int>(i % heads_of_row);
  const int half = a.head_dim / 2;
  const bool is_query = head < a.heads;
  const bool is_value = head >= a.heads + a.kv_heads;
  const float* const norm = is_query ? a.q_norm : a.k_norm;
  HeadOfLane x = load_head(a.element, a.qkv, i * a.head_dim, half);
  if (!is_value) {  // all is loaded before any of it is used
    const HeadOfLane angle = load_angles(a, row, half);
    if (norm != nullptr) normalise(x, load_head(Element::kF32, norm, 0, half), a.eps, half);
    turn(x, angle);
  }
  if (is_query) {
    store_head(a.element, a.qkv, i * a.head_dim, half, x);
    return;
  }
  const int kv_head = (head - a.heads) % a.kv_heads;
  const auto [position, page] = a.places[row];
  std::byte* const run = a.cache.pages + page * a.cache.page_bytes + a.cache.layer_begin +
                         (2 * kv_head + (is_value ? 1 : 0)) * a.cache.run_bytes;
  const int64_t in_page = position % kPagePositions;
  if (a.cache.element == Element::kE4M3) {
    store_scaled(run, in_page, a.head_dim, x);
  } else {
    store_head(a.cache.element, run, in_page * a.head_dim, half, x);
  }
}

}  // namespace

void run_angles(float* cos, float* sin, const RowPlace* places, const double* inv_freq,
                int64_t num_rows, int64_t half, double factor, Stream stream) {
  const int64_t size = num_rows * half;
  launch(angles, {dim3(static_cast<unsigned>((size + kThreads - 1) / kThreads)), kThreads}, stream,
         cos, sin, places, inv_freq, size, half, factor);
}

void run_rotate(const RotateCall& call, Stream stream) {
  const int64_t heads = call.num_rows * (call.heads + 2 * call.kv_heads);
  launch(rotate, {dim3(static_cast<unsigned>((heads + kWarps - 1) / kWarps)), kThreads}, stream,
         call);
}

}  // namespace subbyte::cuda
