// The sum of the results of all ranks, what is added to it and the norm after it, in one kernel.

#include <iterator>

#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/exchange/peer_sum.h"
#include "kernels/cuda/exchange/peer_words.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kColumns = 8;  // of a thread
constexpr int kMaxThreads = 1024;
constexpr int kMaxCols = kColumns * kMaxThreads;
constexpr int kUnits = PeerRows::kRowBytes / 16;
static_assert(kMaxCols * 2 == PeerRows::kRowBytes);

/// The sum over a CTA of up to 32 warps, the same in every thread.
__device__ double sum_of_row(double value, double (&partials)[kLanes]) {
  value = sum_of_warp(value);
  const int warps = static_cast<int>(blockDim.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  if (lane == 0) partials[threadIdx.x / kLanes] = value;
  __syncthreads();
  return sum_of_warp(lane < warps ? partials[lane] : 0);
}

/// A CTA for a row, eight columns in each thread; the last threads may have none.
template <int kRanks>
__global__ void __launch_bounds__(kMaxThreads)
    sum_norm(const __grid_constant__ AddNormCall a, const __grid_constant__ PeerGroup group) {
  __shared__ double partials[kLanes];
  const auto cta = static_cast<int>(blockIdx.x);
  const auto unit = static_cast<int>(threadIdx.x);
  const int64_t col = int64_t{unit} * kColumns;
  const bool is_there = col < a.cols;
  float weights[kColumns] = {};
  if (is_there) load_8(Element::kF32, a.weight, col, weights);
  begin_operation();
  PeerRounds rounds(group, PeerRows::counter(cta, kRanks));
  const RowExchange<kRanks> exchange{group, cta, rounds.next()};
  const int64_t at = (a.rows != nullptr ? a.rows[cta] : cta) * a.cols + col;
  float x[kColumns] = {};
  uint4 numbers[kRanks];
  if (is_there) {
    const uint4 own = *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(a.delta) + at);
    exchange.send(unit, own);
#pragma unroll
    for (int rank = 0; rank < kRanks; ++rank) numbers[rank] = own;
    load_8(Element::kF32, a.x, at, x);
  }
  // Rows of the round before may have been longer.
  for (int i = unit; i < kUnits; i += static_cast<int>(blockDim.x)) exchange.clear(i);
  const float scale = a.scale != nullptr ? *a.scale : 1.0f;
  double squares = 0;
  if (is_there) {
    exchange.receive(rounds, unit, numbers);
    const uint4 sums = sum_of_ranks(a.element, numbers);
    const uint32_t pairs[4] = {sums.x, sums.y, sums.z, sums.w};
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const float delta = to_float(a.element, static_cast<uint16_t>(pairs[i / 2] >> 16 * (i % 2)));
      x[i] = scale * fmaf(a.factor, delta, x[i]);
      squares = fma(static_cast<double>(x[i]), static_cast<double>(x[i]), squares);
    }
    store_8(Element::kF32, a.x, at, x);
  }
  const float mean =
      static_cast<float>(sum_of_row(squares, partials) / static_cast<double>(a.cols));
  if (is_there) {
    const float factor = 1.0f / sqrtf(mean + a.eps);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) x[i] *= factor * weights[i];
    store_8(a.element, a.y, cta * a.cols + col, x);
  }
  if (threadIdx.x == 0) rounds.keep();
}

// By the number of ranks, from two on.
constexpr void (*kSumNorms[])(AddNormCall, PeerGroup) = {
    sum_norm<2>, sum_norm<3>, sum_norm<4>, sum_norm<5>, sum_norm<6>, sum_norm<7>, sum_norm<8>};
static_assert(std::size(kSumNorms) == PeerGroup::kMaxRanks - 1);

}  // namespace

bool serves_peer_sum_norm(const AddNormCall& call) {
  const bool adds_numbers = call.delta != nullptr && call.routes.top_k == 0;
  const bool is_plain = call.bias == nullptr && !call.is_centred && call.element != Element::kF32;
  return adds_numbers && is_plain && call.num_rows <= PeerRows::kCtas &&
         call.cols % kColumns == 0 && call.cols <= kMaxCols && is_aligned(call.y) &&
         is_aligned(call.x) && is_aligned(call.delta) && is_aligned(call.weight);
}

void run_peer_sum_norm(const AddNormCall& call, const PeerGroup& group, Stream stream) {
  if (call.num_rows == 0) return;
  const auto threads = static_cast<int>((call.cols / kColumns + kLanes - 1) / kLanes * kLanes);
  const Grid grid{dim3(static_cast<unsigned>(call.num_rows)), threads};
  launch(kSumNorms[group.ranks - 2], grid, stream, call, group);
}

}  // namespace subbyte::cuda
