#include "kernels/cuda/dense/dense.h"

#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/tf32.cuh"
#include "kernels/cuda/dense/dense_16bit.h"

namespace subbyte::cuda {
namespace {

// --- few tokens ---

constexpr int kGemvThreads = 128;
constexpr int kGemvRows = 4;  // of a warp
constexpr int kGemvCtaRows = kGemvThreads / kLanes * kGemvRows;
constexpr int kEight = 8;  // inputs that a lane loads at once

/// Rows begin at multiples of 16 bytes.
bool is_aligned(const void* p, int64_t stride, Element element) {
  return (reinterpret_cast<uintptr_t>(p) | stride * element_bytes(element)) % 16 == 0;
}

/// kAligned: weights of f32 (gemv_ahead has those of 16 bits), all rows at multiples of 16 bytes;
/// else of every type, at any address. Of kSplit warps each adds its part of the inputs.
template <int kTokens, bool kAligned, int kSplit>
__device__ void gemv_sums(float (&sums)[kGemvRows][kTokens], const DenseCall& a, int64_t row,
                          int64_t token) {
#pragma unroll kTokens == 1 ? 2 : 1
  for (int64_t k = threadIdx.x % (kSplit * kLanes) * kEight; k < a.cols;
       k += kSplit * kLanes * kEight) {
    float w[kGemvRows][kEight];
#pragma unroll
    for (int r = 0; r < kGemvRows; ++r) {
      const int64_t at = min(row + r, a.rows - 1) * a.cols;  // the last row again, not stored
      const Element element = kAligned ? Element::kF32 : a.weights_element;
      load_8_of<kAligned>(element, a.weights, at + k, at + a.cols, w[r]);
    }
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      const int64_t at = min(token + t, a.m - 1) * a.x_stride;
      float x[kEight];
      load_8_of<kAligned>(a.x_element, a.x, at + k, at + a.cols, x);
#pragma unroll
      for (int r = 0; r < kGemvRows; ++r) {
#pragma unroll
        for (int i = 0; i < kEight; ++i) sums[r][t] = fmaf(w[r][i], x[i], sums[r][t]);
      }
    }
  }
}

/// Tiles of kDenseGemvTokens tokens. They are neighbours in the grid, which read the same weights.
__host__ __device__ unsigned tiles_of(int64_t tokens) {
  return static_cast<unsigned>((tokens + kDenseGemvTokens - 1) / kDenseGemvTokens);
}

/// A lane adds every 32nd run of eight products, then the lanes are added, then the kSplit warps
/// that share rows.
template <int kTokens, bool kAligned, int kSplit>
__global__ void __launch_bounds__(kGemvThreads) gemv(const __grid_constant__ DenseCall a) {
  begin_operation();
  __shared__ float partials[kSplit][kGemvRows][kTokens];
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const unsigned token_tiles = kTokens < kDenseGemvTokens ? 1 : tiles_of(a.m);
  const int64_t row =
      int64_t{blockIdx.x / token_tiles} * (kGemvCtaRows / kSplit) + warp / kSplit * kGemvRows;
  const int64_t token = int64_t{blockIdx.x % token_tiles} * kTokens;
  if (kSplit == 1 && row >= a.rows) return;
  float sums[kGemvRows][kTokens] = {};
  gemv_sums<kTokens, kAligned, kSplit>(sums, a, row, token);
#pragma unroll
  for (int r = 0; r < kGemvRows; ++r) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      sums[r][t] = sum_of_warp(sums[r][t]);
      if (kSplit > 1 && threadIdx.x % kLanes == 0) partials[warp][r][t] = sums[r][t];
    }
  }
  if (kSplit > 1) __syncthreads();
  if (threadIdx.x % kLanes != 0 || warp % kSplit != 0) return;
#pragma unroll
  for (int r = 0; r < kGemvRows; ++r) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      if (row + r >= a.rows || token + t >= a.m) continue;
      float sum = sums[r][t];
#pragma unroll
      for (int part = 1; part < kSplit; ++part) sum += partials[part][r][t];
      const float bias = a.bias != nullptr ? a.bias[row + r] : 0;
      store_element(a.y_element, a.y, (token + t) * a.y_stride + row + r, sum + bias);
    }
  }
}

template <int kTokens, int kSplit = 1>
void launch_gemv(const DenseCall& call, Stream stream) {
  constexpr int64_t kRows = kGemvCtaRows / kSplit;
  const auto ctas = static_cast<unsigned>((call.rows + kRows - 1) / kRows);
  const unsigned token_tiles = kTokens < kDenseGemvTokens ? 1 : tiles_of(call.m);
  const auto kernel = has_aligned_rows(call) && call.weights_element == Element::kF32
                          ? gemv<kTokens, true, kSplit>
                          : gemv<kTokens, false, kSplit>;
  launch(kernel, {dim3(ctas * token_tiles), kGemvThreads}, stream, call);
}

// --- one or two tokens, weights of 16 bits ---

constexpr int kAheadWarps = 4;
constexpr int kAhead = 3;  // runs of eight that a lane has of each row at a time
constexpr int64_t kSplitRows = int64_t{1} << 15;  // fewer leave lanes without work: K is split

/// kSplit warps share their rows, each with its part of the inputs. The first weights are on their
/// way before the kernel waits for the one that writes its inputs.
template <class Weight, class Input, int kTokens, int kSplit>
class GemvAhead {
 public:
  __device__ explicit GemvAhead(const DenseCall& a)
      : a_(a),
        warp_(static_cast<int>(threadIdx.x) / kLanes),
        row_((int64_t{blockIdx.x} * (kAheadWarps / kSplit) + warp_ / kSplit) * kGemvRows),
        first_((warp_ % kSplit * kLanes + static_cast<int>(threadIdx.x) % kLanes) * kEight) {}

  __device__ void run() {
#pragma unroll
    for (int j = 0; j < kAhead; ++j) fetch(j, first_ + j * kStep);
    begin_operation();
#pragma unroll 1
    for (int64_t k = first_; k < a_.cols; k += kAhead * kStep) {
      uint4 x[kAhead][kTokens];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
#pragma unroll
        for (int t = 0; t < kTokens; ++t) x[j][t] = load(a_.x, t * a_.x_stride, k + j * kStep);
      }
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        add(w_[j], x[j]);
        fetch(j, k + (kAhead + j) * kStep);
      }
    }
    store();
  }

 private:
  static constexpr int kStep = kSplit * kLanes * kEight;

  __device__ uint4 load(const void* p, int64_t row, int64_t k) const {
    if (k >= a_.cols) return {};
    return *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(p) + row + k);
  }
  __device__ void fetch(int j, int64_t k) {
#pragma unroll
    for (int r = 0; r < kGemvRows; ++r) {
      w_[j][r] = load(a_.weights, min(row_ + r, a_.rows - 1) * a_.cols, k);
    }
  }

  template <class Number>
  static __device__ float2 pair(const uint4& v, int i) {
    const uint32_t word = i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
    return {Number::to_float(static_cast<uint16_t>(word)),
            Number::to_float(static_cast<uint16_t>(word >> 16))};
  }
  __device__ void add(const uint4 (&w)[kGemvRows], const uint4 (&x)[kTokens]) {
#pragma unroll
    for (int i = 0; i < kEight / 2; ++i) {
#pragma unroll
      for (int r = 0; r < kGemvRows; ++r) {
        const float2 of_row = pair<Weight>(w[r], i);
#pragma unroll
        for (int t = 0; t < kTokens; ++t) {
          const float2 of_token = pair<Input>(x[t], i);
          sums_[r][t] = fmaf(of_row.x, of_token.x, sums_[r][t]);
          sums_[r][t] = fmaf(of_row.y, of_token.y, sums_[r][t]);
        }
      }
    }
  }

  /// A lane has added its runs of eight; then the lanes are added, then the warps that share rows.
  __device__ void store() const {
    __shared__ float partials[kAheadWarps][kGemvRows][kTokens];
    const int lane = static_cast<int>(threadIdx.x) % kLanes;
#pragma unroll
    for (int r = 0; r < kGemvRows; ++r) {
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        const float sum = sum_of_warp(sums_[r][t]);
        if (lane == 0) partials[warp_][r][t] = sum;
      }
    }
    if constexpr (kSplit > 1) __syncthreads();
    __syncwarp();
    const int r = lane / kTokens;
    const int t = lane % kTokens;
    if (warp_ % kSplit != 0 || r >= kGemvRows || row_ + r >= a_.rows) return;
    float sum = a_.bias != nullptr ? a_.bias[row_ + r] : 0;
#pragma unroll
    for (int part = 0; part < kSplit; ++part) sum += partials[warp_ + part][r][t];
    store_element(a_.y_element, a_.y, t * a_.y_stride + row_ + r, sum);
  }

  const DenseCall& a_;
  const int warp_;
  const int64_t row_;
  const int first_;  // input
  uint4 w_[kAhead][kGemvRows];
  float sums_[kGemvRows][kTokens] = {};
};

template <class Weight, class Input, int kTokens, int kSplit>
__global__ void __launch_bounds__(kAheadWarps* kLanes)
    gemv_ahead(const __grid_constant__ DenseCall a) {
  GemvAhead<Weight, Input, kTokens, kSplit>(a).run();
}

bool serves_gemv_ahead(const DenseCall& call) {
  return has_aligned_rows(call) && !call.are_weights_made && call.m <= 2 &&
         call.weights_element != Element::kF32 && call.x_element != Element::kF32;
}

template <class Weight, class Input, int kTokens>
void launch_gemv_ahead(const DenseCall& call, Stream stream) {
  const bool splits = call.rows < kSplitRows;
  const int64_t rows = kGemvRows * (splits ? 1 : kAheadWarps);
  const auto kernel = splits ? gemv_ahead<Weight, Input, kTokens, kAheadWarps>
                             : gemv_ahead<Weight, Input, kTokens, 1>;
  const auto ctas = static_cast<unsigned>((call.rows + rows - 1) / rows);
  launch(kernel, {dim3(ctas), kAheadWarps * kLanes}, stream, call);
}

template <class Weight, class Input>
void launch_gemv_ahead(const DenseCall& call, Stream stream) {
  if (call.m == 1) {
    launch_gemv_ahead<Weight, Input, 1>(call, stream);
  } else {
    launch_gemv_ahead<Weight, Input, 2>(call, stream);
  }
}

void run_gemv_ahead(const DenseCall& call, Stream stream) {
  using gpu::BF16;
  using gpu::F16;
  if (call.weights_element == Element::kF16) {
    call.x_element == Element::kF16 ? launch_gemv_ahead<F16, F16>(call, stream)
                                    : launch_gemv_ahead<F16, BF16>(call, stream);
  } else {
    call.x_element == Element::kF16 ? launch_gemv_ahead<BF16, F16>(call, stream)
                                    : launch_gemv_ahead<BF16, BF16>(call, stream);
  }
}

// --- many tokens ---

constexpr int kTile = kDenseTile;
constexpr int kInputs = 32;           // of a tile in shared memory
constexpr int kStride = kInputs + 4;  // fragments of mma read all banks once
constexpr int kTileThreads = 128;

/// Rows [first, first + kTile) and inputs [k, k + kInputs) of a matrix, rounded to tf32.
__device__ void load_tile(float* to, Element element, const void* from, int64_t first, int64_t rows,
                          int64_t k, int64_t cols, int64_t stride, bool aligned) {
#pragma unroll
  for (int j = 0; j < kTile * kInputs / kEight / kTileThreads; ++j) {
    const int i = j * kTileThreads + static_cast<int>(threadIdx.x);
    const int row = i / (kInputs / kEight);
    const int col = i % (kInputs / kEight) * kEight;
    float values[kEight] = {};
    const int64_t at = (first + row) * stride;
    if (first + row < rows && k + col < cols) {
      if (aligned) {
        load_8(element, from, at + k + col, values);
      } else {
        load_8_of(element, from, at + k + col, at + cols, values);
      }
    }
#pragma unroll
    for (int e = 0; e < kEight; ++e) to[row * kStride + col + e] = to_tf32(values[e]);
  }
}

/// Four warps, each with 32 outputs by 32 tokens: 2 x 4 products of 16 by 8.
struct TileSums {
  float sums[2][4][4] = {};

  __device__ void add(const float* w, const float* x, int warp, int lane) {
    const int g = lane / 4;
    const int t = lane % 4;
    const float* const w_of_warp = w + (warp % 2 * 32 + g) * kStride + t;
    const float* const x_of_warp = x + (warp / 2 * 32 + g) * kStride + t;
#pragma unroll
    for (int k = 0; k < kInputs; k += 8) {
      uint32_t a[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float* const p = w_of_warp + i * 16 * kStride + k;
        a[i][0] = __float_as_uint(p[0]);
        a[i][1] = __float_as_uint(p[8 * kStride]);
        a[i][2] = __float_as_uint(p[4]);
        a[i][3] = __float_as_uint(p[8 * kStride + 4]);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float* const p = x_of_warp + j * 8 * kStride + k;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          mma_tf32(sums[i][j], a[i], __float_as_uint(p[0]), __float_as_uint(p[4]));
        }
      }
    }
  }

  __device__ void store(const DenseCall& a, int64_t first_row, int64_t first_token, int warp,
                        int lane) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int64_t row = first_row + warp % 2 * 32 + i * 16 + lane / 4 + e / 2 * 8;
          const int64_t token = first_token + warp / 2 * 32 + j * 8 + lane % 4 * 2 + e % 2;
          if (row >= a.rows || token >= a.m) continue;
          const float bias = a.bias != nullptr ? a.bias[row] : 0;
          store_element(a.y_element, a.y, token * a.y_stride + row, sums[i][j][e] + bias);
        }
      }
    }
  }
};

__global__ void __launch_bounds__(kTileThreads)
    gemm(const __grid_constant__ DenseCall a, bool w_aligned, bool x_aligned) {
  begin_operation();
  __shared__ float w[kTile * kStride];
  __shared__ float x[kTile * kStride];
  const int64_t first_row = int64_t{blockIdx.x} * kTile;
  const int64_t first_token = int64_t{blockIdx.y} * kTile;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  TileSums sums;
  for (int64_t k = 0; k < a.cols; k += kInputs) {
    __syncthreads();
    load_tile(w, a.weights_element, a.weights, first_row, a.rows, k, a.cols, a.cols, w_aligned);
    load_tile(x, a.x_element, a.x, first_token, a.m, k, a.cols, a.x_stride, x_aligned);
    __syncthreads();
    sums.add(w, x, warp, lane);
  }
  sums.store(a, first_row, first_token, warp, lane);
}

}  // namespace

bool has_aligned_rows(const DenseCall& call) {
  return call.cols % kEight == 0 && is_aligned(call.weights, call.cols, call.weights_element) &&
         is_aligned(call.x, call.x_stride, call.x_element);
}

void run_dense(const DenseCall& call, Stream stream) {
  const bool is_exact = call.x_element == Element::kF32;  // tensor cores would round it
  const bool is_many = call.m >= kDense16bitTokens || call.batch_invariant;
  if (!is_exact && is_many && serves_16bit_dense(call)) {
    return run_dense_16bit(call, stream);
  }
  if (!is_exact && serves_gemv_ahead(call)) return run_gemv_ahead(call, stream);
  if (call.m == 1) return launch_gemv<1>(call, stream);
  if (call.m == 2) return launch_gemv<2>(call, stream);
  if (call.m <= 4) return launch_gemv<4>(call, stream);
  if (call.m <= kDenseGemvTokens || call.batch_invariant || is_exact) {
    return launch_gemv<kDenseGemvTokens>(call, stream);
  }
  if (are_few_tiles(call.rows, call.m)) {
    return launch_gemv<kDenseGemvTokens, kGemvThreads / kLanes>(call, stream);
  }
  const dim3 grid(static_cast<unsigned>((call.rows + kTile - 1) / kTile),
                  static_cast<unsigned>((call.m + kTile - 1) / kTile));
  const bool whole = call.cols % kEight == 0;
  launch(gemm, {grid, kTileThreads}, stream, call,
         whole && is_aligned(call.weights, call.cols, call.weights_element),
         whole && is_aligned(call.x, call.x_stride, call.x_element));
}

}  // namespace subbyte::cuda
