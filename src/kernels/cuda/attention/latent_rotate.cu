#include "kernels/cuda/attention/latent.h"
#include "kernels/cuda/attention/query_growth.cuh"
#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/kv_e4m3.h"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kLanes;
constexpr int kNumbers = kMaxLatentHead / kLanes;  // of a head, of a lane

/// A number of a head after the turn. Its partner is read from memory, which is not written yet.
__device__ float turned(const LatentRotateCall& a, int64_t head_at, int64_t row, int i) {
  const float own = load_element(a.element, a.qkv, head_at + i);
  const int at = i - a.first_turning;
  if (at < 0 || at >= a.turning) return own;
  const int half = a.turning / 2;
  const int pair = a.are_neighbours ? at / 2 : at % half;
  const bool is_low = a.are_neighbours ? at % 2 == 0 : at < half;
  const int step = a.are_neighbours ? 1 : half;
  const float other = load_element(a.element, a.qkv, head_at + (is_low ? i + step : i - step));
  const float cos = a.cos[row * half + pair];
  const float sin = a.sin[row * half + pair];
  return is_low ? fmaf(-other, sin, own * cos) : fmaf(other, sin, own * cos);
}

/// Numbers of a query from `first` on, `count` of them, turned and times a factor: kOfLane of a
/// lane at most.
template <int kOfLane>
__device__ void turn_numbers(const LatentRotateCall& a, int64_t query_at, int64_t row, int first,
                             int count, float factor) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  float numbers[kOfLane];
#pragma unroll
  for (int j = 0; j < kOfLane; ++j) {
    const int i = j * kLanes + lane;
    if (i < count) numbers[j] = turned(a, query_at, row, first + i) * factor;
  }
  __syncwarp();
#pragma unroll
  for (int j = 0; j < kOfLane; ++j) {
    const int i = j * kLanes + lane;
    if (i < count) store_element(a.element, a.qkv, query_at + first + i, numbers[j]);
  }
}

/// Only what turns is written, or all where queries are scaled.
__device__ void turn_query(const LatentRotateCall& a, int64_t query_at, int64_t row) {
  constexpr int kUsual = 2;  // 64 numbers turn
  if (a.query_growth.beta != 0) {
    const float factor = query_factor(a.query_growth, a.places[row].position);
    turn_numbers<kNumbers>(a, query_at, row, 0, a.head_dim, factor);
  } else if (a.turning <= kUsual * kLanes) {
    turn_numbers<kUsual>(a, query_at, row, a.first_turning, a.turning, 1);
  } else {
    turn_numbers<kNumbers>(a, query_at, row, a.first_turning, a.turning, 1);
  }
}

__device__ void store_key(const LatentRotateCall& a, int64_t head_at, int64_t row, int lane) {
  float numbers[kNumbers];
  uint32_t largest = 0;
#pragma unroll
  for (int j = 0; j < kNumbers; ++j) {
    const int i = j * kLanes + lane;
    numbers[j] = i < a.head_dim ? turned(a, head_at, row, i) : 0;
    largest = max(largest, __float_as_uint(numbers[j]) & 0x7FFFFFFF);
  }
  const auto [position, page, pages_begin] = a.places[row];
  std::byte* const run = a.cache.pages + page * a.cache.page_bytes + a.cache.layer_begin;
  const int64_t at = int64_t{position % kPagePositions} * a.head_dim;
  if (a.cache.element != Element::kE4M3) {
#pragma unroll
    for (int j = 0; j < kNumbers; ++j) {
      const int i = j * kLanes + lane;
      if (i < a.head_dim) store_element(a.cache.element, run, at + i, numbers[j]);
    }
    return;
  }
  const uint32_t scale = e4m3::scale_of(__reduce_max_sync(~0u, largest));
  const float inverse = __uint_as_float(e4m3::inverse_bits(scale));
  if (lane == 0) {
    run[kPagePositions * a.head_dim + position % kPagePositions] = static_cast<std::byte>(scale);
  }
#pragma unroll
  for (int j = 0; j < kNumbers; ++j) {
    const int i = j * kLanes + lane;
    if (i >= a.head_dim) continue;
    run[at + i] = static_cast<std::byte>(e4m3::encode(__float_as_uint(numbers[j] * inverse)));
  }
}

/// A warp for a head; the last of a row is the key.
__global__ void __launch_bounds__(kThreads)
    latent_rotate(const __grid_constant__ LatentRotateCall a) {
  begin_operation();
  const int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  if (i >= a.num_rows * (a.heads + 1)) return;
  const int64_t row = i / (a.heads + 1);
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  if (i % (a.heads + 1) < a.heads) {
    turn_query(a, i * a.head_dim, row);
  } else {
    store_key(a, i * a.head_dim, row, lane);
  }
}

}  // namespace

void run_latent_rotate(const LatentRotateCall& call, Stream stream) {
  const int64_t heads = call.num_rows * (call.heads + 1);
  launch(latent_rotate, {dim3(static_cast<unsigned>((heads + kWarps - 1) / kWarps)), kThreads},
         stream, call);
}

}  // namespace subbyte::cuda
