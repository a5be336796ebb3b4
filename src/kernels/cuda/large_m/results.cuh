#pragma once
// From the accumulators of large_m to results, through shared memory, so that neighbours in device
// memory are written together.
//
// Where a call asks for factors and a bias alone, a warp applies them to its accumulators, rounds
// to 16 bits and stores 16 outputs of 16 tokens at a time, transposed by stmatrix. When all warps
// of the warpgroup have, its threads write whole rows, 16 bytes each:
//
//   staged   [token] [piece 0 .. 7], eight outputs each: 128 bytes of a row of y. Piece i lies at
//            i ^ token % 8, so that eight tokens of a piece and eight pieces of a token are in
//            banks of their own.
//
// For a gate, an activation or a residual the sums are staged in float32, and a thread finishes
// eight outputs of a token (finish_pieces).
//
// With split-K the CTAs of a cluster have partials of the same outputs and tokens. Each puts its
// own where its ring of activations was, and finishes every splits-th 16 tokens: it loads their
// partials of all parts through DSMEM and adds them in the order of the parts.
//
//             tokens  0        16       32       48
//   part 0          | adds   |        | adds   |        |
//   part 1          |        | adds   |        | adds   |
//
// A thread has the same rows and tokens in every part, so it reads what the thread of its number
// has written: 16 bytes each, neighbours by neighbours.
//
// The exchange has two cluster barriers, in which the producers take part (wait_for_exchange()):
// the first when all partials are put, the second when all have been loaded; then the rings may be
// filled again. Between generic writes and TMA, fence.proxy.async.

#include <cstdint>

#include "kernels/cuda/common/prologue_epilogue.cuh"
#include "kernels/cuda/common/ptx.cuh"
#include "kernels/cuda/common/rows.cuh"
#include "kernels/cuda/large_m/partition.h"

namespace subbyte::cuda {

/// Tokens of which a thread has 8 accumulators of a strip, and which one part finishes.
inline constexpr int kExchangeTokens = 16;

/// The 128 threads of a consumer warpgroup: named barrier 1 or 2.
__device__ __forceinline__ void sync_warpgroup() {
  asm volatile("bar.sync %0, 128;" ::"r"(threadIdx.x / 128) : "memory");
}

/// What producers do in an exchange: its two barriers.
__device__ __forceinline__ void wait_for_exchange() {
  __syncwarp();
  cluster_sync_relaxed();
  cluster_sync_relaxed();
  fence_proxy_async();
}

/// The partials of one output tile, of a consumer thread.
class Exchange {
 public:
  /// Of part `part`, in row `row` of the cluster. `ring`: of activations.
  __device__ Exchange(const LargeMPartition& p, int part, int row, uint32_t ring)
      : p_(p), part_(part), row_(row), at_(ring + (threadIdx.x - 128) * 16) {}

  /// When the products of this CTA are done. Afterwards all parts have put theirs.
  template <int kCount>
  __device__ void put_partials(const float (&partials)[kCount]) const {
    asm volatile("bar.sync 3, 256;" ::: "memory");  // both consumer warpgroups have read the ring
#pragma unroll
    for (int i = 0; i < kCount; i += 4) st_shared_v4(at_ + i / 4 * kSlice, &partials[i]);
    fence_proxy_async();
    __syncwarp();
    cluster_sync();
  }

  /// Parts whose partials a thread loads before it adds them.
  static constexpr int kPartsAtOnce = 4;
  /// Its partials of 16 tokens, of such parts.
  struct Loaded {
    float of_part[kPartsAtOnce][8];
  };

  /// Starts the loads of the partials of tokens 16 i to 16 i + 15, of parts from `first` on.
  __device__ void load_partials(Loaded& to, int i, int first) const {
#pragma unroll
    for (int j = 0; j < kPartsAtOnce; ++j) {
      if (first + j >= p_.splits) break;
      const int rank = (first + j) * p_.multicast + row_;
      ld_dsmem_v4(to.of_part[j], at_ + 2 * i * kSlice, rank);
      ld_dsmem_v4(to.of_part[j] + 4, at_ + (2 * i + 1) * kSlice, rank);
    }
  }

  /// Adds all parts of tokens 16 i to 16 i + 15 in their order. `loaded`: the first of them.
  __device__ void add_partials(float (&sums)[8], Loaded& loaded, int i) const {
#pragma unroll
    for (int e = 0; e < 8; ++e) sums[e] = loaded.of_part[0][e];
    add<1>(sums, loaded, 0);
    for (int first = kPartsAtOnce; first < p_.splits; first += kPartsAtOnce) {
      load_partials(loaded, i, first);
      add<0>(sums, loaded, first);
    }
  }

  /// This CTA has what it has loaded and loads no more; end() waits until that is true of all.
  __device__ void end_loads() const {
    __syncwarp();
    cluster_arrive_relaxed();
  }
  __device__ void end() const {
    __syncwarp();
    cluster_wait();
  }

  __device__ int part() const {
    return part_;
  }
  __device__ int splits() const {
    return p_.splits;
  }

 private:
  static constexpr int kSlice = 256 * 16;  // 16 bytes of each consumer thread

  /// Parts `first` + kBegin and on, as far as they are loaded.
  template <int kBegin>
  __device__ void add(float (&sums)[8], const Loaded& loaded, int first) const {
#pragma unroll
    for (int j = kBegin; j < kPartsAtOnce; ++j) {
      if (first + j >= p_.splits) break;
#pragma unroll
      for (int e = 0; e < 8; ++e) sums[e] += loaded.of_part[j][e];
    }
  }

  const LargeMPartition& p_;
  const int part_;
  const int row_;
  const uint32_t at_;  // of this thread's first 16 bytes
};

/// 1 / `power`, whose exponent is not the largest, without what a division does for other numbers.
__device__ __forceinline__ float inverse_of_power_of_two(float power) {
  constexpr uint32_t kOneSquared = 0x7f000000;  // bits of 1, twice
  return __uint_as_float(kOneSquared - __float_as_uint(power));
}

/// An activation of gate and up: one formula for all of them, in which each has constants.
struct Gate {
  float limit;   // of gate and up
  float slope;   // of what the sigmoid is of
  float cubic;   // of its third power, or 0
  float offset;  // of up

  __device__ __forceinline__ float operator()(float gate, float up) const {
    gate = gate > limit ? limit : gate;  // NaN stays
    up = up > limit ? limit : up < -limit ? -limit : up;
    const float inner = cubic != 0 ? slope * gate * fmaf(cubic * gate, gate, 1.0f) : slope * gate;
    return gate / (1.0f + expf(-inner)) * (up + offset);
  }
};

/// As gated() has it. What one of them lacks changes no number.
__device__ __forceinline__ Gate gate_of(const LinearArguments& a) {
  const float none = __uint_as_float(0x7f800000u);
  if (a.activation == Activation::kClampedSwiGLU) {
    return {a.swiglu.limit, a.swiglu.alpha, 0, a.swiglu.up_offset};
  }
  if (a.activation == Activation::kSwiGLU) return {none, 1, 0, -0.0f};
  return {none, 1.5957691216f, 0.044715f, -0.0f};  // and Unary::kGelu, whose up is 1
}

/// All outputs of a warpgroup are in the matrix, in the order of y, and in y, in the residual and
/// in the bias eight neighbours are 16 bytes at a multiple of 16.
__device__ __forceinline__ bool has_pieces(const LinearArguments& a, int first_strip) {
  const bool is_gated = a.activation != Activation::kNone;
  const int places = static_cast<int>(reinterpret_cast<uintptr_t>(a.y)) |
                     static_cast<int>(reinterpret_cast<uintptr_t>(a.residual)) |
                     static_cast<int>(reinterpret_cast<uintptr_t>(a.bias));
  const int strides = static_cast<int>(a.y_stride) |
                      (a.residual != nullptr ? static_cast<int>(a.residual_stride) : 0);
  return (is_gated || a.weights.row_order == RowOrder::kNatural) && places % 16 == 0 &&
         strides % 8 == 0 && a.weights.rows % 16 == 0 &&
         (first_strip + 4) * kStripRows <= a.weights.rows;
}

/// Results of a warpgroup that has_pieces() from staged sums: `tokens` rows from that of token0 on,
/// whatever is to be done to them. A thread has the same eight outputs of some tokens, those of a
/// strip or, without a gate, of half of one. Not inlined: one copy serves all tokens.
template <class Number, class Rows>
__device__ __noinline__ void finish_pieces(const LinearArguments& a, Rows rows, uint32_t staged,
                                           int first_strip, int64_t token0, int tokens) {
  const bool is_gated = a.activation != Activation::kNone;
  const int pieces_log2 = is_gated ? 2 : 3;
  const int piece = threadIdx.x & ((1 << pieces_log2) - 1);
  const int first = (first_strip * kStripRows >> (is_gated ? 1 : 0)) + piece * 8;
  const float factor = inverse_of_power_of_two(a.weights.scale_factor);
  const float gain = is_gated || piece % 2 == 0 ? a.weights.gain : a.weights.up_gain;
  const int count = static_cast<int>(min(int64_t{tokens}, a.m - token0));
#pragma unroll 1
  for (int i = threadIdx.x % 128 >> pieces_log2; i < count; i += 128 >> pieces_log2) {
    const uint32_t from = staged + (i * kStagedStride + (piece * 64 >> pieces_log2)) * 4;
    float v[kStripRows];  // gates and ups, or outputs and ones
    ld_shared<8>(reinterpret_cast<uint32_t*>(v), from);
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] *= factor * gain;
    if (is_gated) {
      ld_shared<8>(reinterpret_cast<uint32_t*>(v + 8), from + 32);
#pragma unroll
      for (int j = 8; j < 16; ++j) v[j] *= factor * a.weights.up_gain;
      if (a.bias != nullptr) add_bias<Number>(a, first_strip + piece, v);
    } else {
#pragma unroll
      for (int j = 8; j < 16; ++j) v[j] = 1;
      if (a.bias != nullptr) add_numbers<Number>(a.bias, first, v);
    }
    if (is_gated || a.unary == Unary::kGelu) {
      const Gate gate = gate_of(a);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = gate(v[j], v[j + 8]);
    } else if (a.unary == Unary::kRelu) {
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = activated(Unary::kRelu, v[j]);
    }
    store_outputs<Number>(a, rows.of_y(token0 + i), first, v);
  }
}

/// The same of any warpgroup, one number at a time.
template <class Number, class Rows>
__device__ __noinline__ void finish_numbers(const LinearArguments& a, Rows rows,
                                            const float* staged, int first_strip, int64_t token0,
                                            int tokens) {
  const float factor = inverse_of_power_of_two(a.weights.scale_factor);
  const int count = static_cast<int>(min(int64_t{tokens}, a.m - token0));
#pragma unroll 1
  for (int i = threadIdx.x % 128; i < count * 32; i += 128) {
    const int strip = i / 8 % 4;
    const float* const from = staged + i / 32 * kStagedStride + strip * kStripRows + i % 8;
    if (first_strip + strip >= a.weights.strips) continue;
    finish<Number>(a, first_strip + strip, i % 8, rows.of_y(token0 + i / 32), from[0] * factor,
                   from[8] * factor);
  }
}

/// What a thread does to the sums of its two rows of a strip before they are rounded, where there
/// is no more to do than that.
struct Ending {
  float factors[2];
  float biases[2];

  /// `strip`: of the warp.
  template <class Number>
  static __device__ __forceinline__ Ending of(const LinearArguments& a, int strip) {
    const WeightArguments& w = a.weights;
    const float factor = inverse_of_power_of_two(w.scale_factor);
    Ending ending = {{w.gain * factor, w.up_gain * factor}, {0, 0}};
    if (a.bias == nullptr) return ending;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = strip * kStripRows + threadIdx.x % kLanes / 4 + 8 * i;
      if (row < w.rows) ending.biases[i] = load_number<Number>(a.bias, row);
    }
    return ending;
  }
  static __device__ __forceinline__ bool is_all(const LinearArguments& a) {
    return a.weights.row_order == RowOrder::kNatural && a.activation == Activation::kNone &&
           a.unary == Unary::kNone && a.residual == nullptr;
  }
};

/// Results of one warpgroup.
template <int kTokens>
class Results {
 public:
  using Shape = LargeMShape<kTokens>;

  /// `staged`: of both consumer warpgroups; `warpgroup`: which of them this is.
  __device__ Results(uint8_t* staged, int warpgroup)
      : staged_(staged + warpgroup * (Shape::kStagedBytes / 2)) {}

  /// Of the output tile with these first strip of the warpgroup and first token.
  template <class Number, class Rows>
  __device__ void store(const LinearArguments& a, const Rows& rows,
                        const float (&accumulators)[kTokens / 2], int first_strip,
                        int64_t first_token) const {
    if (Ending::is_all(a)) {
      const Ending ending = Ending::of<Number>(a, first_strip + warp());
      for_tokens<Shape::kStagedTokens>(
          a, first_token, accumulators, [&](int64_t token, const float* sums) {
            sync_warpgroup();  // what was staged before has been written
#pragma unroll
            for (int i = 0; i < Shape::kStagedTokens; i += kExchangeTokens) {
              stage_numbers<Number>(a, ending, sums + i / 2, i);
            }
            sync_warpgroup();
            store_numbers(a, rows, first_strip, token, Shape::kStagedTokens);
          });
      return;
    }
    for_tokens<Shape::kStagedSums>(
        a, first_token, accumulators, [&](int64_t token, const float* sums) {
          sync_warpgroup();
#pragma unroll
          for (int i = 0; i < Shape::kStagedSums; i += kExchangeTokens) stage_sums(sums + i / 2, i);
          sync_warpgroup();
          finish_staged<Number>(a, rows, first_strip, token, Shape::kStagedSums);
        });
  }

  /// The same, of the partials of several CTAs.
  template <class Number, class Rows>
  __device__ void store_reduced(const LinearArguments& a, const Rows& rows,
                                const Exchange& exchange, int first_strip,
                                int64_t first_token) const {
    const Ending ending = Ending::of<Number>(a, first_strip + warp());
    const int64_t tokens = min(int64_t{kTokens}, a.m - first_token);
    const int parts = static_cast<int>((tokens + kExchangeTokens - 1) / kExchangeTokens);
    constexpr bool kPrefetches = kTokens > 64;  // for fewer there are no registers for it
    Exchange::Loaded loaded = {};
    int i = exchange.part();
    if (kPrefetches && i < parts) exchange.load_partials(loaded, i, 0);
#pragma unroll 1
    while (i < parts) {
      if (!kPrefetches) exchange.load_partials(loaded, i, 0);
      float sums[8];
      exchange.add_partials(sums, loaded, i);
      const int next = i + exchange.splits();
      if (kPrefetches && next < parts) exchange.load_partials(loaded, next, 0);
      const int64_t token = first_token + i * kExchangeTokens;
      sync_warpgroup();
      if (Ending::is_all(a)) {
        stage_numbers<Number>(a, ending, sums, 0);
        sync_warpgroup();
        store_numbers(a, rows, first_strip, token, kExchangeTokens);
      } else {
        stage_sums(sums, 0);
        sync_warpgroup();
        finish_staged<Number>(a, rows, first_strip, token, kExchangeTokens);
      }
      i = next;
    }
    exchange.end_loads();
    exchange.end();
  }

 private:
  static __device__ int warp() {
    return threadIdx.x % 128 / kLanes;
  }

  /// Calls store(first token, sums) for kAtOnce tokens at a time, as far as there are any.
  template <int kAtOnce, class Store>
  __device__ __forceinline__ void for_tokens(const LinearArguments& a, int64_t first_token,
                                             const float (&accumulators)[kTokens / 2],
                                             const Store& store) const {
#pragma unroll
    for (int token = 0; token < kTokens; token += kAtOnce) {
      if (first_token + token >= a.m) break;
      store(first_token + token, &accumulators[token / 2]);
    }
  }

  /// kExchangeTokens tokens of the warp's strip, rounded.
  template <class Number>
  __device__ __forceinline__ void stage_numbers(const LinearArguments& a, const Ending& ending,
                                                const float* sums, int first_token) const {
    const int lane = threadIdx.x % kLanes;
    const int row = (lane / 16 * 8 + lane % 8 + first_token) * kStagedRowBytes;
    const int piece = (2 * warp() + lane / 8 % 2) ^ lane % 8;
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float low = sums[2 * i] * ending.factors[i % 2] + ending.biases[i % 2];
      const float high = sums[2 * i + 1] * ending.factors[i % 2] + ending.biases[i % 2];
      words[i] =
          a.y_is_other ? OtherOf<Number>::Type::pack_x2(low, high) : Number::pack_x2(low, high);
    }
    stmatrix_x4_trans(shared_address(staged_) + row + piece * 16, words);
  }

  /// Writes what stage_numbers() of all warps has staged, `tokens` rows from that of token0 on. A
  /// thread has the same eight outputs of each.
  template <class Rows>
  __device__ __forceinline__ void store_numbers(const LinearArguments& a, const Rows& rows,
                                                int first_strip, int64_t token0, int tokens) const {
    const int piece = threadIdx.x % 8;
    const int first = first_strip * kStripRows + piece * 8;
    const int outputs = min(a.weights.rows - first, 8);
    const bool is_aligned = reinterpret_cast<uintptr_t>(a.y) % 16 == 0 && a.y_stride % 8 == 0;
    const int count = static_cast<int>(min(int64_t{tokens}, a.m - token0));
    const uint32_t staged = shared_address(staged_);
#pragma unroll 1
    for (int i = threadIdx.x % 128 / 8; i < count; i += 16) {
      uint16_t* const to = static_cast<uint16_t*>(a.y) + rows.of_y(token0 + i) * a.y_stride + first;
      uint32_t words[4];
      ld_shared<4>(words, staged + i * kStagedRowBytes + (piece ^ i % 8) * 16);
      if (outputs == 8 && is_aligned) {
        *reinterpret_cast<uint4*>(to) = {words[0], words[1], words[2], words[3]};
        continue;
      }
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        if (j < outputs) to[j] = static_cast<uint16_t>(words[j / 2] >> 16 * (j % 2));
      }
    }
  }

  template <class Number, class Rows>
  __device__ __forceinline__ void finish_staged(const LinearArguments& a, const Rows& rows,
                                                int first_strip, int64_t token0, int tokens) const {
    if (has_pieces(a, first_strip)) {
      finish_pieces<Number>(a, rows, shared_address(staged_), first_strip, token0, tokens);
    } else {
      finish_numbers<Number>(a, rows, reinterpret_cast<const float*>(staged_), first_strip, token0,
                             tokens);
    }
  }

  /// kExchangeTokens tokens of the warp's strip.
  __device__ __forceinline__ void stage_sums(const float* sums, int first_token) const {
    const int lane = threadIdx.x % kLanes;
    const int row = warp() * kStripRows + lane / 4;
    float* const to = reinterpret_cast<float*>(staged_);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int token = first_token + i / 4 * 8 + lane % 4 * 2 + i % 2;
      to[token * kStagedStride + row + i % 4 / 2 * 8] = sums[i];
    }
  }

  uint8_t* const staged_;
};

}  // namespace subbyte::cuda
