#pragma once
// The inputs of a product on their way to shared memory: rows of numbers as they are, or rows of
// the residual stream normalised; zeros follow the last column, to full units. Every CTA does it
// for itself. What other CTAs wrote is loaded past the L1 cache.
//
// With them the sums of the inputs of each group, which zero points are multiplied by: neighbouring
// lanes have the inputs of a group and add what they have.

#include "kernels/cuda/common/pair_mma.cuh"
#include "kernels/cuda/ops/elements.cuh"
#include "kernels/cuda/step/grid_barrier.cuh"
#include "kernels/cuda/step/program.h"

namespace subbyte::cuda {

/// All threads of a CTA; they synchronise before they use the inputs. kHasSums: there are sums.
template <class Number, bool kHasSums>
class StepInputs {
 public:
  __device__ StepInputs(const StepProgram& p, const StepProduct& product,
                        const StepWeights& weights, uint8_t* shared)
      : p_(p),
        product_(product),
        weights_(product.linear.weights),
        padded_cols_(weights.units * kUnitCols),
        shared_(shared) {}

  /// What does not depend on other CTAs: before the barrier.
  __device__ void begin() {
    if (product_.stream == nullptr) return;
    const Share share(p_.m);
    if (is_fast(share)) load_fours(product_.norm, share, norm_);
  }

  __device__ void load() const {
    if (product_.stream != nullptr) {
      normalise();
    } else if (product_.linear.is_aligned) {
      copy_eights();
    } else {
      copy_numbers();
    }
  }

 private:
  static constexpr int kRuns = 4;  // of four elements, which a thread keeps

  __device__ uint8_t* row(int token) const {
    return shared_ + p_.shared.x + token * p_.shared.x_stride;
  }
  __device__ int input(int col) const {
    return weights_.gather != nullptr ? static_cast<int>(weights_.gather[col]) : col;
  }

  // --- sums

  static __device__ float sum_of(uint32_t pair) {
    return Number::to_float(static_cast<uint16_t>(pair)) +
           Number::to_float(static_cast<uint16_t>(pair >> 16));
  }

  /// Adds what the lanes of a group have, each kCols inputs of the same token, the first at `col`.
  template <int kCols>
  __device__ void add_sums(int token, int col, float sum) const {
    if constexpr (kHasSums) {
      const int cols = product_.sum_cols;
      for (int distance = 1; distance * kCols < cols; distance *= 2) {
        sum += __shfl_xor_sync(~0u, sum, distance);
      }
      float* const sums = reinterpret_cast<float*>(shared_ + p_.shared.x_sums);
      if (col % cols == 0) sums[col / cols * kStepTokens + token] = sum;
    }
  }

  __device__ void put_four(int token, int four, uint2 v) const {
    reinterpret_cast<uint2*>(row(token))[four] = v;
    add_sums<4>(token, four * 4, sum_of(v.x) + sum_of(v.y));
  }

  // --- numbers as they are

  __device__ void copy_eights() const {
    constexpr int kBatch = 4;  // loads in flight
    const int eights = padded_cols_ / 8;
    for (int i = threadIdx.x; i < p_.m * eights; i += kBatch * kStepThreads) {
      uint4 v[kBatch];
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        const int at = i + j * kStepThreads;
        v[j] = at < p_.m * eights ? load_eight(at, eights) : uint4{};
      }
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        const int at = i + j * kStepThreads;
        if (at >= p_.m * eights) break;
        const int token = p_.m == 1 ? 0 : at / eights;
        const int eight = at - token * eights;
        reinterpret_cast<uint4*>(row(token))[eight] = v[j];
        add_sums<8>(token, eight * 8,
                    (sum_of(v[j].x) + sum_of(v[j].y)) + (sum_of(v[j].z) + sum_of(v[j].w)));
      }
    }
  }

  __device__ uint4 load_eight(int at, int eights) const {
    const int token = p_.m == 1 ? 0 : at / eights;
    const int eight = at - token * eights;
    if (eight * 8 >= weights_.cols) return {};
    const auto* const x = static_cast<const uint16_t*>(product_.linear.x);
    return __ldcg(reinterpret_cast<const uint4*>(x + token * product_.linear.x_stride) + eight);
  }

  /// At any address, in any order.
  __device__ void copy_numbers() const {
    const int fours = padded_cols_ / 4;
#pragma unroll 1
    for (int i = threadIdx.x; i < p_.m * fours; i += kStepThreads) {
      const int token = i / fours;
      const int four = i - token * fours;
      const auto* const x =
          static_cast<const uint16_t*>(product_.linear.x) + token * product_.linear.x_stride;
      uint32_t v[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int col = four * 4 + j;
        v[j] = col < weights_.cols ? __ldcg(x + input(col)) : 0;
      }
      put_four(token, four, {v[0] | v[1] << 16, v[2] | v[3] << 16});
    }
  }

  // --- the residual stream, normalised

  /// A group of warps for each token, all of which sum their squares before the one barrier.
  struct Share {
    int token;
    int warps;
    int threads;
    int thread;  // of those

    __device__ explicit Share(int m)
        : warps(kStepWarps / (m == 1   ? 1
                              : m == 2 ? 2
                              : m <= 4 ? 4
                                       : 8)) {
      threads = warps * kLanes;
      token = static_cast<int>(threadIdx.x) / threads;
      thread = static_cast<int>(threadIdx.x) - token * threads;
    }
  };

  __device__ void normalise() const {
    const Share share(p_.m);
    const float* const x = product_.stream + int64_t{share.token} * weights_.cols;
    const bool is_there = share.token < p_.m;
    if (is_fast(share)) {
      float4 kept[kRuns] = {};
      if (is_there) load_fours(x, share, kept);
      const float factor = factor_of(squares_of(kept), share);
      if (is_there) put_fours(share, kept, factor);
    } else {
      const float factor = factor_of(is_there ? sum_squares(x, share) : 0, share);
      if (is_there) put_numbers(x, share, factor);
    }
  }

  /// Of the token: one over the root of the mean of all squares. In float32: few additions in a
  /// row, so some 2^-21 of the sum.
  __device__ float factor_of(float squares, const Share& share) const {
    float* const sums = reinterpret_cast<float*>(shared_ + p_.shared.sums);
    squares = sum_of_warp(squares);
    if (threadIdx.x % kLanes == 0) sums[threadIdx.x / kLanes] = squares;
    step_sync();
    float total = 0;
    for (int i = 0; i < share.warps; ++i) {
      total += sums[min(share.token, p_.m - 1) * share.warps + i];
    }
    return rsqrtf(fmaf(total, product_.per_col, product_.eps));
  }

  __device__ void put_norm(int token, int i, float4 v, float4 w, float factor) const {
    put_four(token, i,
             {Number::pack_x2(v.x * (factor * w.x), v.y * (factor * w.y)),
              Number::pack_x2(v.z * (factor * w.z), v.w * (factor * w.w))});
  }

  // Rows that a thread holds, in their order, four elements at a time.

  __device__ bool is_fast(const Share& share) const {
    return weights_.cols % 4 == 0 && weights_.gather == nullptr &&
           padded_cols_ <= 4 * kRuns * share.threads;
  }

  __device__ void load_fours(const float* from, const Share& share, float4 (&to)[kRuns]) const {
    const int fours = weights_.cols / 4;
#pragma unroll
    for (int r = 0; r < kRuns; ++r) {
      const int i = share.thread + r * share.threads;
      if (i < fours) to[r] = __ldcg(reinterpret_cast<const float4*>(from) + i);
    }
  }

  static __device__ float squares_of(const float4 (&v)[kRuns]) {
    float squares = 0;
#pragma unroll
    for (int r = 0; r < kRuns; ++r) {
      squares += fmaf(v[r].x, v[r].x, v[r].y * v[r].y) + fmaf(v[r].z, v[r].z, v[r].w * v[r].w);
    }
    return squares;
  }

  __device__ void put_fours(const Share& share, const float4 (&v)[kRuns], float factor) const {
#pragma unroll
    for (int r = 0; r < kRuns; ++r) {
      const int i = share.thread + r * share.threads;
      if (i < padded_cols_ / 4) put_norm(share.token, i, v[r], norm_[r], factor);
    }
  }

  // Rows of any length and order.

  __device__ float sum_squares(const float* x, const Share& share) const {
    float squares = 0;
    for (int i = share.thread; i < weights_.cols; i += share.threads) {
      const float value = __ldcg(x + i);
      squares = fmaf(value, value, squares);
    }
    return squares;
  }

  __device__ float4 gather_four(const float* from, int i) const {
    float v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      v[j] = i * 4 + j < weights_.cols ? __ldcg(from + input(i * 4 + j)) : 0;
    }
    return {v[0], v[1], v[2], v[3]};
  }

  __device__ void put_numbers(const float* x, const Share& share, float factor) const {
#pragma unroll 1
    for (int i = share.thread; i < padded_cols_ / 4; i += share.threads) {
      put_norm(share.token, i, gather_four(x, i), gather_four(product_.norm, i), factor);
    }
  }

  const StepProgram& p_;
  const StepProduct& product_;
  const WeightArguments& weights_;
  const int padded_cols_;
  uint8_t* const shared_;
  float4 norm_[kRuns] = {};
};

}  // namespace subbyte::cuda
