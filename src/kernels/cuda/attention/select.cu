#include "kernels/cuda/attention/select.h"

#include <algorithm>

#include "kernels/cuda/attention/attention_tiles.cuh"
#include "kernels/cuda/common/launch.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kScoreThreads = 128;
constexpr int kScoreRows = 8;  // of a CTA, which reads a page once for those of one sequence
constexpr int kKeysOfWarp = kPagePositions / (kScoreThreads / kLanes);
constexpr int kSelectThreads = 512;
constexpr int kSelectWarps = kSelectThreads / kLanes;

__host__ __device__ int heads_in_tiles(int heads) {
  return (heads + 15) / 16 * 16;
}

__host__ __device__ int score_bytes(const SelectCall& a) {
  const int heads = heads_in_tiles(a.heads);
  return (kPagePositions + heads) * tile_stride(a.head_dim) * 2 + heads * 4;
}

__device__ float key_number(const KvLayer& cache, const std::byte* run, int dim, int position,
                            int i) {
  const int64_t at = int64_t{position} * dim + i;
  if (cache.element != Element::kE4M3) return load_element(cache.element, run, at);
  const auto code = static_cast<uint8_t>(run[at]);
  const auto scale = static_cast<uint32_t>(run[int64_t{kPagePositions} * dim + position]);
  return gpu::F16::to_float(e4m3::f16_bits(code)) * __uint_as_float(e4m3::factor_bits(scale));
}

/// Numbers in shared memory: keys [kPagePositions], then queries [heads in tiles], in rows of
/// tile_stride(), then weights.
template <class Number>
class ScoreTiles {
 public:
  __device__ ScoreTiles(const SelectCall& a, void* shared)
      : a_(a),
        stride_(tile_stride(a.head_dim)),
        heads_(heads_in_tiles(a.heads)),
        keys_(static_cast<uint16_t*>(shared)),
        queries_(keys_ + kPagePositions * stride_),
        weights_(reinterpret_cast<float*>(queries_ + heads_ * stride_)) {}

  __device__ void stage_keys(int page) {
    const std::byte* const run = a_.cache.pages + page * a_.cache.page_bytes + a_.cache.layer_begin;
    const int pairs = a_.head_dim / 2;
    for (int i = threadIdx.x; i < kPagePositions * pairs; i += kScoreThreads) {
      const int position = i / pairs;
      const int at = 2 * (i % pairs);
      put(keys_ + position * stride_ + at, key_number(a_.cache, run, a_.head_dim, position, at),
          key_number(a_.cache, run, a_.head_dim, position, at + 1));
    }
  }

  __device__ void stage_queries(int64_t row) {
    const int pairs = a_.head_dim / 2;
    for (int i = threadIdx.x; i < heads_ * pairs; i += kScoreThreads) {
      const int head = i / pairs;
      const int at = 2 * (i % pairs);
      const int64_t from = (row * a_.heads + head) * a_.head_dim + at;
      const bool exists = head < a_.heads;
      put(queries_ + head * stride_ + at, exists ? load_element(a_.element, a_.q, from) : 0,
          exists ? load_element(a_.element, a_.q, from + 1) : 0);
    }
    for (int head = threadIdx.x; head < heads_; head += kScoreThreads) {
      weights_[head] = head < a_.heads ? a_.weights[row * a_.heads + head] : 0;
    }
  }

  /// The scores of this warp's keys, to `to` [kPagePositions].
  __device__ void score(float* to) const {
    const int lane = static_cast<int>(threadIdx.x) % kLanes;
    const int first_key = static_cast<int>(threadIdx.x) / kLanes * kKeysOfWarp;
    float sums[kKeysOfWarp / 8][2] = {};
    for (int head = 0; head < heads_; head += 16) {
      float products[kKeysOfWarp / 8][4] = {};
      multiply(products, head, first_key);
      const float low = weights_[head + lane / 4];
      const float high = weights_[head + lane / 4 + 8];
#pragma unroll
      for (int j = 0; j < kKeysOfWarp / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          sums[j][e] += low * positive(products[j][e]) + high * positive(products[j][2 + e]);
        }
      }
    }
#pragma unroll
    for (int j = 0; j < kKeysOfWarp / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
#pragma unroll
        for (int distance = 4; distance < kLanes; distance *= 2) {
          sums[j][e] += __shfl_xor_sync(~0u, sums[j][e], distance);
        }
        if (lane < 4) to[first_key + 8 * j + 2 * lane + e] = sums[j][e];
      }
    }
  }

 private:
  /// NaN stays, other than in fmaxf().
  __device__ static float positive(float product) {
    return product < 0 ? 0 : product;
  }

  __device__ static void put(uint16_t* to, float low, float high) {
    *reinterpret_cast<uint32_t*>(to) = Number::pack_x2(low, high);
  }

  __device__ void multiply(float (&products)[kKeysOfWarp / 8][4], int head, int first_key) const {
    const uint32_t a_at = tile_16x16(shared_address(queries_ + head * stride_), stride_, 0, 0);
    const uint32_t b_at = tile_16x16(shared_address(keys_ + first_key * stride_), stride_, 0, 0);
    for (int d = 0; d < a_.head_dim / 16; ++d) {
      uint32_t a[4];
      ldmatrix_x4(a, a_at + 16 * d * 2);
#pragma unroll
      for (int j = 0; j < kKeysOfWarp / 16; ++j) {
        uint32_t b[4];
        ldmatrix_x4(b, b_at + (16 * j * stride_ + 16 * d) * 2);
        mma_16x16<Number>(products[2 * j], products[2 * j + 1], a, b);
      }
    }
  }

  const SelectCall& a_;
  int stride_;
  int heads_;
  uint16_t* keys_;
  uint16_t* queries_;
  float* weights_;
};

/// A CTA for a page of some rows. Rows that see no more than they select have no scores.
template <class Number>
__global__ void __launch_bounds__(kScoreThreads)
    index_scores(const __grid_constant__ SelectCall a) {
  begin_operation();
  extern __shared__ uint4 shared_memory[];
  ScoreTiles<Number> tiles(a, shared_memory);
  const int first_position = static_cast<int>(blockIdx.x) * kPagePositions;
  int staged = -1;
  for (int i = 0; i < kScoreRows; ++i) {
    const int64_t of_block = int64_t{blockIdx.y} * kScoreRows + i;
    const int64_t row = a.first_row + of_block;
    if (of_block >= a.rows_at_a_time || row >= a.num_rows) break;
    const RowPlace place = a.places[row];
    if (place.position < a.top || place.position < first_position) continue;
    const int page = a.pages[place.pages_begin + static_cast<int>(blockIdx.x)];
    __syncthreads();  // others may still read what was there
    if (page != staged) tiles.stage_keys(page);
    staged = page;
    tiles.stage_queries(row);
    __syncthreads();
    tiles.score(a.scores + of_block * a.positions + first_position);
  }
}

/// In the order of scores; NaN comes first.
__device__ uint32_t order_of(float score) {
  if (isnan(score)) return 0;
  const uint32_t bits = __float_as_uint(score);
  return (bits & 0x80000000) != 0 ? ~bits : bits | 0x80000000;
}

/// How many threads of the CTA before this one have a flag; `total`: how many there are.
__device__ int rank_in_cta(bool flag, int* counts, int& total) {
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const uint32_t votes = __ballot_sync(~0u, flag);
  __syncthreads();  // others may still read the last counts
  if (lane == 0) counts[warp] = __popc(votes);
  __syncthreads();
  int before = 0;
  total = 0;
  for (int i = 0; i < kSelectWarps; ++i) {
    if (i < warp) before += counts[i];
    total += counts[i];
  }
  return before + __popc(votes & ((1u << lane) - 1));
}

/// The order of the score that is the last one to be selected, and how many of that order are.
struct Threshold {
  uint32_t order;
  int equals;
};

/// Byte after byte from the highest on.
__device__ Threshold find_threshold(const float* scores, int count, int top) {
  __shared__ int histogram[256];
  __shared__ int digit;
  __shared__ int left;
  Threshold found = {0, top};
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = threadIdx.x; i < 256; i += kSelectThreads) histogram[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += kSelectThreads) {
      const uint32_t order = order_of(scores[i]);
      if (shift < 24 && (order ^ found.order) >> (shift + 8) != 0) continue;
      atomicAdd(&histogram[order >> shift & 255], 1);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int rest = found.equals;
      int at = 255;
      while (at > 0 && histogram[at] < rest) rest -= histogram[at--];
      digit = at;
      left = rest;
    }
    __syncthreads();
    found.order |= static_cast<uint32_t>(digit) << shift;
    found.equals = left;
  }
  return found;
}

/// A CTA for a row.
__global__ void __launch_bounds__(kSelectThreads)
    select_positions(const __grid_constant__ SelectCall a) {
  begin_operation();
  __shared__ int counts[kSelectWarps];
  const int64_t row = a.first_row + blockIdx.x;
  const int count = a.places[row].position + 1;
  float* const out = a.out + row * a.top;
  if (count <= a.top) {
    for (int i = threadIdx.x; i < count; i += kSelectThreads) out[i] = static_cast<float>(i);
    return;
  }
  const float* const scores = a.scores + int64_t{blockIdx.x} * a.positions;
  const Threshold threshold = find_threshold(scores, count, a.top);
  int equals = 0;
  int taken = 0;
  for (int base = 0; base < count; base += kSelectThreads) {
    const int i = base + static_cast<int>(threadIdx.x);
    const uint32_t order = i < count ? order_of(scores[i]) : 0;
    const bool is_equal = i < count && order == threshold.order;
    int total = 0;
    const int equal_rank = equals + rank_in_cta(is_equal, counts, total);
    equals += total;
    const bool is_more = i < count && order > threshold.order;
    const bool is_taken = is_more || (is_equal && equal_rank < threshold.equals);
    const int rank = taken + rank_in_cta(is_taken, counts, total);
    taken += total;
    if (is_taken) out[rank] = static_cast<float>(i);
  }
}

template <class Number>
void launch_scores(const SelectCall& call, int64_t rows, Stream stream) {
  const dim3 grid(static_cast<unsigned>(call.positions / kPagePositions),
                  static_cast<unsigned>((rows + kScoreRows - 1) / kScoreRows));
  launch_large<index_scores<Number>>({grid, kScoreThreads, score_bytes(call)}, stream, call);
}

}  // namespace

void run_select(const SelectCall& call, Stream stream) {
  SelectCall block = call;
  for (; block.first_row < call.num_rows; block.first_row += call.rows_at_a_time) {
    const int64_t rows = std::min(call.rows_at_a_time, call.num_rows - block.first_row);
    if (call.element == Element::kF16) {
      launch_scores<gpu::F16>(block, rows, stream);
    } else {
      launch_scores<gpu::BF16>(block, rows, stream);
    }
    launch(select_positions, {dim3(static_cast<unsigned>(rows)), kSelectThreads}, stream, block);
  }
}

}  // namespace subbyte::cuda
