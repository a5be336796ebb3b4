#pragma once
// What a chunk has of its own, whatever the state before it: T, then W, T diag(beta) V and P
// (delta_net_chunks.h).

#include "kernels/cuda/delta_net/delta_net_chunks.cuh"

namespace subbyte::cuda {

/// Shared memory of `solve`, in bytes: keys, queries and then values, T times each factor, A.
template <int kKey>
struct SolveTile {
  static constexpr int kKeyStride = tile_stride(kKey);
  static constexpr int kValueStride = tile_stride(kChunkHead);
  static constexpr int kInverseStride = tile_stride(kChunk);
  static constexpr int kSystemStride = kChunk + 4;  // floats

  static constexpr int kQueries = kChunk * kKeyStride * 2;
  static constexpr int kWeighted = kQueries + kChunk * kValueStride * 2;
  static constexpr int kScaled = kWeighted + kChunk * kInverseStride * 2;
  static constexpr int kSystem = kScaled + kChunk * kInverseStride * 2;
  static constexpr int kGates = kSystem + kChunk * kSystemStride * 4;
  static constexpr int kBytes = kGates + 2 * kChunk * 4;
};

/// The first two warps: sums of logarithms of decays, and betas.
__device__ inline void load_gates(const float2* gates, int64_t stride, int count, float* sums,
                                  float* betas) {
  const int t = static_cast<int>(threadIdx.x);
  const int lane = t % kLanes;
  if (t >= kChunk) return;
  const float2 own = t < count ? gates[t * stride] : float2{0, 0};
  float sum = own.x;
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2) {
    const float before = __shfl_up_sync(~0u, sum, distance);
    if (lane >= distance) sum += before;
  }
  sums[t] = sum;
  betas[t] = own.y;
}

/// A thread for a column of T = (1 + A)^-1, row after row.
__device__ inline void invert(const float* system, int stride, float (&column)[kChunk]) {
  const int col = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int t = 0; t < kChunk; ++t) {
    float even = t == col ? 1.0f : 0.0f;
    float odd = 0;
#pragma unroll
    for (int s = 0; s < t; s += 4) {
      const float4 four = *reinterpret_cast<const float4*>(system + t * stride + s);
      even = fmaf(-four.x, column[s], even);
      if (s + 1 < t) odd = fmaf(-four.y, column[s + 1], odd);
      if (s + 2 < t) even = fmaf(-four.z, column[s + 2], even);
      if (s + 3 < t) odd = fmaf(-four.w, column[s + 3], odd);
    }
    column[t] = even + odd;
  }
}

/// A CTA for a value head of a chunk.
template <class Number, int kKey>
class ChunkSolver {
 public:
  using Tile = SolveTile<kKey>;

  __device__ ChunkSolver(const DeltaNetCall& a, const ChunkPlace& place, int chunk, int value_head,
                         std::byte* memory)
      : a_(a),
        scratch_(a),
        place_(place),
        value_head_(value_head),
        tile_((int64_t{chunk} * a.sizes.value_heads + value_head) * kChunk),
        first_(static_cast<int>(threadIdx.x) / kLanes * 16),
        keys_{shared_address(memory), Tile::kKeyStride},
        queries_{shared_address(memory + Tile::kQueries), Tile::kKeyStride},
        values_{shared_address(memory + Tile::kQueries), Tile::kValueStride},
        weighted_(reinterpret_cast<uint16_t*>(memory + Tile::kWeighted)),
        scaled_(reinterpret_cast<uint16_t*>(memory + Tile::kScaled)),
        system_(reinterpret_cast<float*>(memory + Tile::kSystem)),
        sums_(reinterpret_cast<float*>(memory + Tile::kGates)),
        betas_(sums_ + kChunk) {}

  /// Keys, queries and gates, whose sums are kept.
  __device__ void load() const {
    const DeltaNetSizes& s = a_.sizes;
    const int64_t at = (place_.row * s.key_heads + value_head_ / s.values_per_key) * scratch_.key;
    const int64_t stride = int64_t{s.key_heads} * scratch_.key;
    copy_rows<kKey, kChunkThreads>(keys_, numbers_at(a_, scratch_.k) + at, stride, place_.count);
    copy_rows<kKey, kChunkThreads>(queries_, numbers_at(a_, scratch_.q) + at, stride, place_.count);
    cp_async_commit();
    load_gates(reinterpret_cast<const float2*>(a_.scratch + scratch_.gates) +
                   place_.row * s.value_heads + value_head_,
               s.value_heads, place_.count, sums_, betas_);
    cp_async_wait<0>();
    __syncthreads();
    const int t = static_cast<int>(threadIdx.x);
    if (t >= kLanes && t < kChunk) sums_[t] += sums_[kLanes - 1];
    __syncthreads();
    if (t >= kChunk) return;
    reinterpret_cast<ChunkDecays*>(a_.scratch + scratch_.decays)[tile_ + t] = {
        expf(sums_[t]), expf(sums_[kChunk - 1] - sums_[t])};
  }

  /// P, which is stored, and A.
  __device__ void multiply() const {
    float of_keys[kChunk / 8][4] = {};
    float of_queries[kChunk / 8][4] = {};
#pragma unroll
    for (int k = 0; k < kKey; k += 16) {
      uint32_t key[4];
      uint32_t query[4];
      ldmatrix_x4(key, keys_.at(first_, k));
      ldmatrix_x4(query, queries_.at(first_, k));
#pragma unroll
      for (int j = 0; j < kChunk / 16; ++j) {
        if (16 * j > first_) continue;  // tokens after those of the warp
        uint32_t other[4];
        ldmatrix_x4(other, keys_.at(16 * j, k));
        mma_16x16<Number>(of_keys[2 * j], of_keys[2 * j + 1], key, other);
        mma_16x16<Number>(of_queries[2 * j], of_queries[2 * j + 1], query, other);
      }
    }
#pragma unroll
    for (int j = 0; j < kChunk / 8; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        weigh(first_ + fragment_row(half), 8 * j + fragment_col(), &of_keys[j][2 * half],
              &of_queries[j][2 * half]);
      }
    }
    __syncthreads();  // queries are read, A is written
  }

  /// T, once with the factors of keys and once with those of values, while values arrive.
  __device__ void invert_system() const {
    const DeltaNetSizes& s = a_.sizes;
    copy_rows<kChunkHead, kChunkThreads>(
        values_,
        numbers_at(a_, scratch_.v) + (place_.row * s.value_heads + value_head_) * scratch_.value,
        int64_t{s.value_heads} * scratch_.value, place_.count, scratch_.value);
    cp_async_commit();
    const int col = static_cast<int>(threadIdx.x);
    if (col < kChunk) {
      float column[kChunk];
      invert(system_, Tile::kSystemStride, column);
      const float beta = betas_[col];
      const float weight = beta * expf(sums_[col]);
#pragma unroll
      for (int t = 0; t < kChunk; ++t) {
        const uint32_t both = Number::pack_x2(column[t] * weight, column[t] * beta);
        weighted_[t * Tile::kInverseStride + col] = static_cast<uint16_t>(both);
        scaled_[t * Tile::kInverseStride + col] = static_cast<uint16_t>(both >> 16);
      }
    }
    cp_async_wait<0>();
    __syncthreads();
  }

  /// W, and what values give of U.
  __device__ void store_products() const {
    store_lower_product<Number, kChunk / 16>(
        numbers_at(a_, scratch_.w) + tile_ * scratch_.key, scratch_.key,
        {shared_address(weighted_), Tile::kInverseStride}, keys_, first_, scratch_.key);
    store_lower_product<Number, kChunk / 16>(
        numbers_at(a_, scratch_.u) + tile_ * scratch_.value, scratch_.value,
        {shared_address(scaled_), Tile::kInverseStride}, values_, first_, scratch_.value);
  }

 private:
  /// Products of token t with tokens `other` and the one after it.
  __device__ void weigh(int t, int other, const float* of_keys, const float* of_queries) const {
    float weights[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float decay = other + e <= t ? expf(sums_[t] - sums_[other + e]) : 0.0f;
      weights[e] = decay * of_queries[e];
      system_[t * Tile::kSystemStride + other + e] =
          other + e < t ? betas_[t] * decay * of_keys[e] : 0.0f;
    }
    uint16_t* const p = numbers_at(a_, scratch_.p) + (tile_ + t) * kChunk + other;
    *reinterpret_cast<uint32_t*>(p) = Number::pack_x2(weights[0], weights[1]);
  }

  const DeltaNetCall& a_;
  ChunkScratch scratch_;
  ChunkPlace place_;
  int value_head_;
  int64_t tile_;  // rows of the matrices of chunks before its own
  int first_;     // token of the warp's rows
  SharedTile keys_, queries_, values_;
  uint16_t* weighted_;
  uint16_t* scaled_;
  float* system_;
  float* sums_;
  float* betas_;
};

template <class Number, int kKey>
__global__ void __launch_bounds__(kChunkThreads) solve(const __grid_constant__ DeltaNetCall a) {
  extern __shared__ uint4 shared_memory[];
  begin_operation();
  const int chunk = static_cast<int>(blockIdx.x);
  const ChunkPlace place = place_of(a, chunk);
  if (place.count == 0) return;
  const ChunkSolver<Number, kKey> solver(a, place, chunk, static_cast<int>(blockIdx.y),
                                         reinterpret_cast<std::byte*>(shared_memory));
  solver.load();
  solver.multiply();
  solver.invert_system();
  solver.store_products();
}

}  // namespace subbyte::cuda
