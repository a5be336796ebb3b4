// A group has as many neighbouring lanes as it has eights of weights, from 1 to 32, and they take
// eight neighbours at a time. Where two scales are tried, a thread has a group, as errors are added
// in the order of the weights. FP8 has a CTA for a block of 128 x 128.

#include "kernels/cuda/quantize/quantize_weights.h"

#include <algorithm>
#include <bit>
#include <string>

#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/weight_codes.h"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kChunk = 8;
constexpr uint32_t kInfinity = blocks::kInfinity;

struct Arguments : WeightBuffers {
  int64_t group = 0;   // weights
  int64_t groups = 0;  // of a row
  int64_t row_bytes = 0;
  int bits = 0;  // of a code where it is stored
  int scale_bytes = 1;
  int zero_bytes = 0;
  int lanes = 1;  // of a group, a power of two
  bool has_factor = false;
};

/// Quicker where 32 bits are enough.
__device__ __forceinline__ int64_t quotient(int64_t a, int64_t b) {
  if (((a | b) >> 32) == 0) return static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
  return a / b;
}

/// Up to eight weights from `i` on; zero beyond `end`.
__device__ __forceinline__ void load_chunk(const Arguments& a, int64_t i, int64_t end,
                                           float (&x)[kChunk]) {
  const int width = a.element == Element::kF32 ? 4 : 2;
  const bool is_aligned = (reinterpret_cast<uintptr_t>(a.weights) + i * width) % 16 == 0;
  if (is_aligned && i + kChunk <= end) return load_8(a.element, a.weights, i, x);
  load_8_of(a.element, a.weights, i, end, x);
}

/// Stores `bytes` bytes of a word, from 1 to 8.
__device__ __forceinline__ void store_bytes(uint8_t* to, uint64_t word, int bytes) {
  const auto address = reinterpret_cast<uintptr_t>(to);
  if (bytes == 8 && address % 8 == 0) {
    *reinterpret_cast<uint64_t*>(to) = word;
  } else if (bytes == 4 && address % 4 == 0) {
    *reinterpret_cast<uint32_t*>(to) = static_cast<uint32_t>(word);
  } else {
    for (int i = 0; i < bytes; ++i) to[i] = static_cast<uint8_t>(word >> 8 * i);
  }
}

__device__ __forceinline__ void store_small(uint8_t* to, int64_t i, uint32_t value, int bytes) {
  if (bytes == 1) to[i] = static_cast<uint8_t>(value);
  if (bytes == 2) reinterpret_cast<uint16_t*>(to)[i] = static_cast<uint16_t>(value);
  if (bytes == 4) reinterpret_cast<uint32_t*>(to)[i] = value;
}

/// The range of weights, with 0 in it, and whether one is not finite.
struct Seen {
  weights::Range range;
  bool is_bad = false;

  __device__ __forceinline__ void add(const float (&x)[kChunk]) {
#pragma unroll
    for (const float weight : x) {
      range.low = fminf(range.low, weight);
      range.high = fmaxf(range.high, weight);
      is_bad = is_bad || (__float_as_uint(weight) & kInfinity) == kInfinity;
    }
  }
};

template <class Rule>
__device__ __forceinline__ double factor_of(const Rule& rule, const Arguments& a) {
  if constexpr (requires { rule.factor(0.0f); }) {
    return rule.factor(__uint_as_float(a.state[0]));
  }
  return 1;
}

/// Of two scales the one with the smaller error, by a thread that has the group.
template <class Rule>
__device__ __forceinline__ weights::Group better(const Rule& rule, const weights::Group& group,
                                                 const weights::Range& range, double factor,
                                                 const Arguments& a, int64_t from, int64_t end) {
  const weights::Group other = rule.other(group, range, factor);
  if (group.step == 0) return group;
  double errors[2] = {};
  for (int64_t i = from; i < end; i += kChunk) {
    float x[kChunk];
    load_chunk(a, i, end, x);
#pragma unroll
    for (const float weight : x) {
      errors[0] = rule.add_error(errors[0], group, weight);
      errors[1] = rule.add_error(errors[1], other, weight);
    }
  }
  return rule.is_better(other, errors[1], group, errors[0]) ? other : group;
}

template <class Rule>
__global__ void __launch_bounds__(kThreads)
    quantize_groups(const __grid_constant__ Rule rule, const __grid_constant__ Arguments a) {
  begin_operation();
  const double factor = factor_of(rule, a);
  if (a.has_factor && blockIdx.x == 0 && threadIdx.x == 0) *a.factor = factor;
  const int64_t all = a.rows * a.groups;
  const int stride = a.lanes * kChunk;
  const int lane = static_cast<int>(threadIdx.x) % a.lanes;
  const int64_t step = int64_t{gridDim.x} * kThreads / a.lanes;
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t of_warp = thread / kLanes * kLanes / a.lanes;  // the first, as all take part
  for (int64_t skipped = 0; of_warp + skipped < all; skipped += step) {
    const int64_t index = thread / a.lanes + skipped;
    const bool is_there = index < all;
    const int64_t row = quotient(index, a.groups);
    const int64_t begin = row * a.cols + (index - row * a.groups) * a.group;
    const int64_t end = is_there ? begin + a.group : begin;
    const int64_t first = begin + lane * kChunk;
    float x[kChunk] = {};
    Seen seen;
    int64_t i = first;
    for (; i < end; i += stride) {
      load_chunk(a, i, end, x);
      seen.add(x);
    }
    for (int distance = 1; distance < a.lanes; distance *= 2) {
      seen.range.low = fminf(seen.range.low, __shfl_xor_sync(~0u, seen.range.low, distance));
      seen.range.high = fmaxf(seen.range.high, __shfl_xor_sync(~0u, seen.range.high, distance));
    }
    if (!is_there) continue;
    weights::Group group = rule.group(seen.range, factor);
    if constexpr (Rule::kSearches) group = better(rule, group, seen.range, factor, a, begin, end);
    if (lane == 0) {
      store_small(a.scales, index, group.scale, a.scale_bytes);
      store_small(a.zeros, index, group.zero, a.zero_bytes);
    }
    if (seen.is_bad || rule.overflows(group)) a.state[1] = 1;
    // Back from the last chunk, which is still here.
    uint8_t* const to = a.codes + row * a.row_bytes;
    for (i -= stride; i >= first; i -= stride) {
      if (i + stride < end) load_chunk(a, i, end, x);
      const int count = static_cast<int>(min(int64_t{kChunk}, end - i));
      uint64_t word = 0;
#pragma unroll
      for (int j = 0; j < kChunk; ++j) {
        if (j < count) word |= uint64_t{rule.code(group, x[j])} << j * a.bits;
      }
      store_bytes(to + (i - row * a.cols) * a.bits / 8, word, (count * a.bits + 7) / 8);
    }
  }
}

/// Codes of a byte each to `bits` bits, eight at a time.
__global__ void __launch_bounds__(kThreads)
    pack_bytes(uint8_t* to, const uint8_t* codes, int64_t rows, int64_t cols, int bits) {
  begin_operation();
  const int64_t chunks = (cols + kChunk - 1) / kChunk;
  const int64_t row_bytes = (cols * bits + 7) / 8;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < rows * chunks; i += step) {
    const int64_t row = i / chunks;
    const int64_t first = i % chunks * kChunk;
    const int count = static_cast<int>(min(int64_t{kChunk}, cols - first));
    uint64_t word = 0;
    for (int j = 0; j < count; ++j) word |= uint64_t{codes[row * cols + first + j]} << j * bits;
    store_bytes(to + row * row_bytes + first * bits / 8, word, (count * bits + 7) / 8);
  }
}

/// The largest magnitude of all weights as the bits of a float, which rise with it.
__global__ void __launch_bounds__(kThreads) find_largest(const __grid_constant__ Arguments a) {
  begin_operation();
  const int64_t count = a.rows * a.cols;
  const int64_t step = int64_t{gridDim.x} * kThreads * kChunk;
  Seen seen;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kChunk; i < count; i += step) {
    float x[kChunk];
    load_chunk(a, i, count, x);
    seen.add(x);
  }
  const uint32_t largest = __reduce_max_sync(~0u, __float_as_uint(weights::largest_of(seen.range)));
  if (threadIdx.x % kLanes == 0 && largest > 0) atomicMax(a.state, largest);
}

constexpr int kBlock = 128;
constexpr int kRowsAtOnce = kThreads / (kBlock / kChunk);
constexpr int kPasses = kBlock / kRowsAtOnce;

__global__ void __launch_bounds__(kThreads) quantize_fp8(const __grid_constant__ Arguments a) {
  __shared__ float of_warp[kThreads / kLanes];
  begin_operation();
  const int64_t row0 = blockIdx.x / a.groups * kBlock + threadIdx.x / (kBlock / kChunk);
  const int64_t group = blockIdx.x % a.groups;
  const int64_t col = group * kBlock + threadIdx.x % (kBlock / kChunk) * kChunk;
  const int count = static_cast<int>(max(min(int64_t{kChunk}, a.cols - col), int64_t{0}));
  float x[kPasses][kChunk] = {};
  Seen seen;
#pragma unroll
  for (int i = 0; i < kPasses; ++i) {
    const int64_t row = row0 + i * kRowsAtOnce;
    if (row < a.rows && count > 0) {
      load_chunk(a, row * a.cols + col, row * a.cols + col + count, x[i]);
    }
    seen.add(x[i]);
  }
  float largest = weights::largest_of(seen.range);
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, distance));
  }
  if (threadIdx.x % kLanes == 0) of_warp[threadIdx.x / kLanes] = largest;
  __syncthreads();
  for (const float other : of_warp) largest = fmaxf(largest, other);
  const float factor = weights::Fp8::factor_of(largest);
  const double inverse = 1 / double{factor};
  if (seen.is_bad) a.state[1] = 1;
#pragma unroll
  for (int i = 0; i < kPasses; ++i) {
    const int64_t row = row0 + i * kRowsAtOnce;
    if (row >= a.rows || count == 0) continue;
    if (threadIdx.x % (kBlock / kChunk) == 0) {
      store_small(a.scales, row * a.groups + group, __float_as_uint(factor), 4);
    }
    uint64_t word = 0;
#pragma unroll
    for (int j = 0; j < kChunk; ++j)
      word |= uint64_t{weights::Fp8::code(factor, inverse, x[i][j])} << 8 * j;
    store_bytes(a.codes + row * a.cols + col, word, count);
  }
}

int bits_of(const WeightRounding& how) {
  return info(how.format.element).bits;
}

template <class Rule>
void launch_groups(const Rule& rule, const Arguments& given, Stream stream) {
  Arguments a = given;
  const auto chunks = static_cast<uint64_t>((a.group + kChunk - 1) / kChunk);
  if (!Rule::kSearches)
    a.lanes = static_cast<int>(std::min<uint64_t>(std::bit_ceil(chunks), kLanes));
  launch(quantize_groups<Rule>, grid_for(a.rows * a.groups * a.lanes), stream, rule, a);
}

weights::Nf4 nf4_rule() {
  const FormatInfo& element = info(Format::kNF4);
  weights::Nf4 rule;
  for (uint32_t i = 0; i < 15; ++i) {
    rule.bounds[i] = (element.decode(i) + element.decode(i + 1)) / 2;
  }
  return rule;
}

weights::Nfl nfl_rule(const WeightRounding& how) {
  weights::Nfl rule;
  rule.num_thresholds = (1 << bits_of(how)) - 1;
  std::ranges::copy(how.thresholds, rule.thresholds);
  return rule;
}

void launch_rule(const WeightRounding& how, const Arguments& a, Stream stream) {
  const int q_max = (1 << bits_of(how)) - 1;
  const uint32_t threshold =
      blocks::scale_threshold<blocks::E2M1>(static_cast<int>(how.scale_rule));
  switch (how.rule) {
    case WeightRule::kMinMax:
      return launch_groups(weights::Integers<false>{q_max}, a, stream);
    case WeightRule::kSymmetric:
      return launch_groups(weights::Integers<true>{q_max}, a, stream);
    case WeightRule::kMxfp4:
      if (how.searches) return launch_groups(weights::Mxfp4<true>{{}, threshold}, a, stream);
      return launch_groups(weights::Mxfp4<false>{{}, threshold}, a, stream);
    case WeightRule::kNvfp4:
      if (how.searches) return launch_groups(weights::Nvfp4<true>{}, a, stream);
      return launch_groups(weights::Nvfp4<false>{}, a, stream);
    case WeightRule::kNf4:
      return launch_groups(nf4_rule(), a, stream);
    case WeightRule::kNfl:
      return launch_groups(nfl_rule(how), a, stream);
    case WeightRule::kFp8: {
      const int64_t ctas = (a.rows + kBlock - 1) / kBlock * a.groups;
      launch(quantize_fp8, {dim3(static_cast<unsigned>(ctas)), kThreads}, stream, a);
    }
  }
}

}  // namespace

bool needs_byte_codes(const WeightRounding& how, int64_t cols) {
  const int64_t group = how.format.group_size;
  return bits_of(how) != 8 && group != 0 && group != cols && group % kChunk != 0;
}

Status quantize_weights(const WeightRounding& how, const WeightBuffers& buffers, Stream stream) {
  Arguments a = {buffers};
  a.group = how.format.group_size == 0 ? a.cols : how.format.group_size;
  a.groups = (a.cols + a.group - 1) / a.group;
  a.bits = bits_of(how);
  a.row_bytes = (a.cols * a.bits + 7) / 8;
  a.scale_bytes = info(how.format.scale).bits / 8;
  a.zero_bytes = static_cast<int>(zero_bytes(how.format.zero));
  a.has_factor = how.rule == WeightRule::kNvfp4 || how.rule == WeightRule::kNfl;
  const bool as_bytes = needs_byte_codes(how, a.cols);
  if (as_bytes) {
    a.codes = buffers.byte_codes;
    a.row_bytes = a.cols;
    a.bits = 8;
  }
  cudaMemsetAsync(a.state, 0, 2 * sizeof *a.state, stream);
  if (a.has_factor) {
    constexpr int64_t kOfThread = 8 * kChunk;
    launch(find_largest, grid_for((a.rows * a.cols + kOfThread - 1) / kOfThread), stream, a);
  }
  launch_rule(how, a, stream);
  if (as_bytes) {
    launch(pack_bytes, grid_for(a.rows * ((a.cols + kChunk - 1) / kChunk)), stream, buffers.codes,
           a.codes, a.rows, a.cols, bits_of(how));
  }
  return launched("quantize weights");
}

}  // namespace subbyte::cuda
