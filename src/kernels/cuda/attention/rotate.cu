#include "kernels/cuda/attention/rotate.h"

#include "kernels/cuda/attention/head_quarters.cuh"
#include "kernels/cuda/attention/heads.cuh"
#include "kernels/cuda/attention/query_growth.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/kv_e4m3.h"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kLanes;

__global__ void __launch_bounds__(kThreads) angles(const __grid_constant__ AnglesCall a) {
  begin_operation();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t row = i / a.half;
  if (row >= a.num_rows) return;
  const bool is_long = a.are_long != nullptr && a.are_long[row] != 0;
  const double frequency = (is_long ? a.long_inv_freq : a.inv_freq)[i % a.half];
  double sine;
  double cosine;
  sincos(static_cast<double>(a.places[row].position) * frequency, &sine, &cosine);
  a.cos[i] = static_cast<float>(cosine * a.factor);
  a.sin[i] = static_cast<float>(sine * a.factor);
}

/// A head in e4m3 and its scale, into a run of the cache.
template <int kPairs>
__device__ void store_scaled(std::byte* run, int64_t position, const HeadPairs& pairs,
                             const HeadOfLaneOf<kPairs>& head) {
  const int head_dim = 2 * pairs.half;
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
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int i = j * kLanes + lane;
    if (i >= pairs.half) continue;
    store(pairs.low(i), head.low[j]);
    store(pairs.high(i), head.high[j]);
  }
}

template <int kPairs>
__device__ HeadOfLaneOf<kPairs> ones() {
  HeadOfLaneOf<kPairs> head;
#pragma unroll
  for (int j = 0; j < kPairs; ++j) head.low[j] = head.high[j] = 1;
  return head;
}

template <int kPairs>
__device__ void normalise(HeadOfLaneOf<kPairs>& x, const RotateCall& a, const float* weights,
                          const HeadPairs& pairs) {
  const HeadOfLaneOf<kPairs> factors =
      weights == nullptr ? ones<kPairs>() : load_head<kPairs>(Element::kF32, weights, 0, pairs);
  normalise(x, factors, a.eps, pairs.half);
}

template <int kPairs>
__device__ void scale_query(HeadOfLaneOf<kPairs>& x, const RotateCall& a, int position) {
  const float factor = query_factor(a.query_growth, position);
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    x.low[j] *= factor;
    x.high[j] *= factor;
  }
}

/// A warp for a head of at most 64 kPairs elements.
template <int kPairs>
__global__ void __launch_bounds__(kThreads) rotate(const __grid_constant__ RotateCall a) {
  begin_operation();
  const int heads_of_row = a.heads + 2 * a.kv_heads;
  const int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  if (i >= a.num_rows * heads_of_row) return;
  const int64_t row = i / heads_of_row;
  const int head = static_cast<int>(i % heads_of_row);
  const HeadPairs pairs = {a.head_dim / 2, a.turning / 2, a.are_neighbours};
  const bool is_query = head < a.heads;
  const bool is_value = head >= a.heads + a.kv_heads;
  const float* const norm = is_query ? a.q_norm : a.k_norm;
  HeadOfLaneOf<kPairs> x = load_head<kPairs>(a.element, a.qkv, i * a.head_dim, pairs);
  if (!is_value) {  // all is loaded before any of it is used
    const HeadOfLaneOf<kPairs> angle = load_angles<kPairs>(a.cos, a.sin, row, pairs);
    const bool has_norm = norm != nullptr || a.norms_by_ones;
    if (has_norm && !a.norms_after_turn) normalise(x, a, norm, pairs);
    turn(x, angle);
    if (has_norm && a.norms_after_turn) normalise(x, a, norm, pairs);
  } else if (a.normalises_values) {
    normalise(x, a, nullptr, pairs);
  }
  if (is_query && a.query_growth.beta != 0) scale_query(x, a, a.places[row].position);
  if (is_query) {
    store_head(a.element, a.qkv, i * a.head_dim, pairs, x);
    return;
  }
  const int kv_head = (head - a.heads) % a.kv_heads;
  const auto [position, page, pages_begin] = a.places[row];
  std::byte* const run = a.cache.pages + page * a.cache.page_bytes + a.cache.layer_begin +
                         (2 * kv_head + (is_value ? 1 : 0)) * a.cache.run_bytes;
  const int64_t in_page = position % kPagePositions;
  if (a.cache.element == Element::kE4M3) {
    store_scaled(run, in_page, pairs, x);
  } else {
    store_head(a.cache.element, run, in_page * a.head_dim, pairs, x);
  }
}

/// Some lanes of a warp for a head of kDim elements of 16 bits, all of which turn with the other
/// half: what most models have (turns_halves()).
template <int kDim>
__global__ void __launch_bounds__(kThreads) rotate_halves(const __grid_constant__ RotateCall a) {
  begin_operation();
  constexpr int kHalf = kDim / 2;
  constexpr int kLanesOfHead = kHalf / 4;
  const int heads_of_row = a.heads + 2 * a.kv_heads;
  const int64_t count = a.num_rows * heads_of_row;
  const int64_t of_thread = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanesOfHead;
  const int64_t i = min(of_thread, count - 1);  // the lanes of a warp stay together
  const int64_t row = i / heads_of_row;
  const int head = static_cast<int>(i - row * heads_of_row);
  const int element = static_cast<int>(threadIdx.x) % kLanesOfHead * 4;
  const bool is_query = head < a.heads;
  const bool is_value = head >= a.heads + a.kv_heads;
  Quarters x;
  x.load(a.element, a.qkv, i * kDim + element, kHalf);
  normalise_and_turn<kDim>(
      x, !is_value,
      {is_query ? a.q_norm : a.k_norm, a.eps, a.cos + row * kHalf, a.sin + row * kHalf});
  if (of_thread >= count) return;
  if (is_query) return x.store(a.element, a.qkv, i * kDim + element, kHalf);
  const int kv_head = (head - a.heads) % a.kv_heads;
  const auto [position, page, pages_begin] = a.places[row];
  std::byte* const run = a.cache.pages + page * a.cache.page_bytes + a.cache.layer_begin +
                         (2 * kv_head + (is_value ? 1 : 0)) * a.cache.run_bytes;
  x.store(a.cache.element, run, int64_t{position % kPagePositions} * kDim + element, kHalf);
}

}  // namespace

void run_angles(const AnglesCall& call, Stream stream) {
  const int64_t size = call.num_rows * call.half;
  launch(angles, {dim3(static_cast<unsigned>((size + kThreads - 1) / kThreads)), kThreads}, stream,
         call);
}

bool turns_halves(const RotateCall& call) {
  const bool turns_alone = !call.norms_by_ones && !call.norms_after_turn &&
                           !call.normalises_values && !call.are_neighbours &&
                           call.query_growth.beta == 0 && call.cos != nullptr;
  uintptr_t places = 0;
  for (const void* p : {static_cast<const void*>(call.qkv), static_cast<const void*>(call.q_norm),
                        static_cast<const void*>(call.k_norm), static_cast<const void*>(call.cos),
                        static_cast<const void*>(call.sin)}) {
    places |= reinterpret_cast<uintptr_t>(p);
  }
  return turns_alone && (call.head_dim == 64 || call.head_dim == 128) &&
         call.turning == call.head_dim && call.element != Element::kF32 &&
         (call.kv_heads == 0 || call.cache.element == Element::kF16 ||
          call.cache.element == Element::kBF16) &&
         places % 16 == 0;
}

void run_rotate(const RotateCall& call, Stream stream) {
  if (turns_halves(call)) {
    const int64_t lanes = call.num_rows * (call.heads + 2 * call.kv_heads) * call.head_dim / 8;
    const Grid grid = {dim3(static_cast<unsigned>((lanes + kThreads - 1) / kThreads)), kThreads};
    return launch(call.head_dim == 64 ? rotate_halves<64> : rotate_halves<128>, grid, stream, call);
  }
  const int64_t heads = call.num_rows * (call.heads + 2 * call.kv_heads);
  const Grid grid = {dim3(static_cast<unsigned>((heads + kWarps - 1) / kWarps)), kThreads};
  if (call.head_dim <= 2 * kLanes * kHeadPairs)
    return launch(rotate<kHeadPairs>, grid, stream, call);
  launch(rotate<2 * kHeadPairs>, grid, stream, call);
}

}  // namespace subbyte::cuda
