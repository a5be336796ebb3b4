// The sum of the results of all ranks, what is added to it and the norm after it, in one kernel.

#include <algorithm>
#include <iterator>

#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/exchange/peer_sum.h"
#include "kernels/cuda/exchange/peer_words.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kRowWords = 4;  // of a thread
constexpr int kMaxCols = 4 * kRowWords * kThreads;
static_assert(kRowWords * kThreads == PeerLayout::kCtaWords);

/// Four columns of a row.
struct Columns4 {
  int64_t first;
  bool is_there;

  __device__ Columns4(int word, int64_t cols)
      : first((int64_t{word} * kThreads + threadIdx.x) * 4), is_there(first < cols) {}
};

__device__ float4 load_4(const float* from, bool is_there) {
  return is_there ? *reinterpret_cast<const float4*>(from) : float4{};
}

/// delta and x of a row, from the numbers that ranks have.
template <int kRanks>
__device__ void add_row(const AddNormCall& a, const PeerGroup& group, PeerRounds& rounds,
                        int64_t row, float4 (&x)[kRowWords]) {
  const WordExchange<kRanks> exchange{group, static_cast<int>(blockIdx.x), rounds.next()};
  const int64_t begin = row * a.cols;
  Numbers8 own[kRowWords];
#pragma unroll
  for (int word = 0; word < kRowWords; ++word) {
    const Columns4 cols(word, a.cols);
    own[word] = {};
    if (cols.is_there) {
      own[word] = *reinterpret_cast<const Numbers8*>(static_cast<const uint16_t*>(a.delta) + begin +
                                                     cols.first);
    } else if (!exchange.renews()) {
      continue;
    }
    exchange.send(word * kThreads + static_cast<int>(threadIdx.x), own[word]);
  }
  const float scale = a.scale != nullptr ? *a.scale : 1.0f;
#pragma unroll
  for (int word = 0; word < kRowWords; ++word) {
    const Columns4 cols(word, a.cols);
    x[word] = load_4(a.x + begin + cols.first, cols.is_there);
  }
#pragma unroll
  for (int word = 0; word < kRowWords; ++word) {
    const Columns4 cols(word, a.cols);
    if (!cols.is_there) continue;
    Numbers8 numbers[kRanks];
#pragma unroll
    for (int rank = 0; rank < kRanks; ++rank) numbers[rank] = own[word];
    exchange.receive(rounds, word * kThreads + static_cast<int>(threadIdx.x), numbers);
    float delta[4];
    add_numbers(a.element, sum_of_ranks(a.element, numbers), true, delta);
    x[word] = {
        scale * fmaf(a.factor, delta[0], x[word].x), scale * fmaf(a.factor, delta[1], x[word].y),
        scale * fmaf(a.factor, delta[2], x[word].z), scale * fmaf(a.factor, delta[3], x[word].w)};
    *reinterpret_cast<float4*>(a.x + begin + cols.first) = x[word];
  }
}

__device__ double squares_of(const float4 (&x)[kRowWords]) {
  double squares = 0;
#pragma unroll
  for (const float4& v : x) {
    for (const float value : {v.x, v.y, v.z, v.w}) {
      squares = fma(static_cast<double>(value), static_cast<double>(value), squares);
    }
  }
  return squares;
}

template <int kRanks>
__global__ void __launch_bounds__(kThreads)
    sum_norm(const __grid_constant__ AddNormCall a, const __grid_constant__ PeerGroup group) {
  __shared__ double partials[2][kThreads / kLanes];
  float4 weights[kRowWords];
#pragma unroll
  for (int word = 0; word < kRowWords; ++word) {
    const Columns4 cols(word, a.cols);
    weights[word] = load_4(a.weight + cols.first, cols.is_there);
  }
  begin_operation();
  PeerRounds rounds(group, static_cast<int>(blockIdx.x));
  for (int64_t at = blockIdx.x; at < a.num_rows; at += gridDim.x) {
    float4 x[kRowWords];
    add_row<kRanks>(a, group, rounds, a.rows != nullptr ? a.rows[at] : at, x);
    // Two places in turns: some threads may still read those of the row before.
    const double squares =
        sum_in_tree<kThreads / kLanes>(squares_of(x), partials[(at / gridDim.x) % 2]);
    const float mean = static_cast<float>(squares / static_cast<double>(a.cols));
    const float factor = 1.0f / sqrtf(mean + a.eps);
#pragma unroll
    for (int word = 0; word < kRowWords; ++word) {
      const Columns4 cols(word, a.cols);
      if (!cols.is_there) continue;
      const float4& w = weights[word];
      const float y[4] = {x[word].x * (factor * w.x), x[word].y * (factor * w.y),
                          x[word].z * (factor * w.z), x[word].w * (factor * w.w)};
      *reinterpret_cast<Numbers8*>(static_cast<uint16_t*>(a.y) + at * a.cols + cols.first) =
          rounded_numbers(a.element, y);
    }
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
  return adds_numbers && is_plain && call.cols % 8 == 0 && call.cols <= kMaxCols &&
         is_aligned(call.y) && is_aligned(call.x) && is_aligned(call.delta) &&
         is_aligned(call.weight);
}

void run_peer_sum_norm(const AddNormCall& call, const PeerGroup& group, Stream stream) {
  const int64_t ctas = std::min<int64_t>(call.num_rows, PeerLayout::kWordCtas);
  if (ctas == 0) return;
  const Grid grid{dim3(static_cast<unsigned>(ctas)), kThreads};
  launch(kSumNorms[group.ranks - 2], grid, stream, call, group);
}

}  // namespace subbyte::cuda
