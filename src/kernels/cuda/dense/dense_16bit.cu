// A CTA has 128 outputs by kTokens tokens, and tiles of 64 inputs of both on their way to shared
// memory. CTAs of the same outputs are neighbours in the grid, so weights are read once from
// memory.
//
// Where one operand is f16 and the other bf16, mma takes bf16, and each number of the f16 one is
// the sum of two: h = bf16(x), l = bf16(x - h). f16 has 11 significant bits and bf16 8, so that sum
// is exact, and w x = w h + w l.

#include "kernels/cuda/dense/dense_16bit.h"

#include <algorithm>

#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/dense/dense_hopper.h"
#include "kernels/cuda/dense/token_tiles.h"
#include "kernels/cuda/linear.h"

namespace subbyte::cuda {
namespace {

constexpr int kRows = kDenseRows;
constexpr int kInputs = 64;  // of a tile: rows of 128 bytes
constexpr int kRowBytes = 2 * kInputs;
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kLanes;
constexpr int kMostSplits = 8;
constexpr int kMultiprocessors = 132;   // of an H100
constexpr int kSumsStride = kRows + 4;  // floats of a token, so that stores differ in their banks

/// How the warps share a tile of kTokens tokens.
template <int kTokens>
struct TileShape {
  static constexpr int kWarpTokens = kTokens == 16 ? 16 : kTokens / 2;
  static constexpr int kWarpRows = kRows * kTokens / kWarpTokens / kWarps;
  static constexpr int kStages = kTokens == 16 ? 6 : kTokens == 64 ? 4 : 3;
  static constexpr int kStageBytes = (kRows + kTokens) * kRowBytes;
};

/// Where 16 bytes of a row of a tile lie: rows of 128 bytes, of which eight differ in their banks.
__device__ uint32_t chunk_at(int row, int chunk) {
  return row * kRowBytes + (chunk ^ row % 8) * 16;
}

/// Begins to copy rows [first, first + kCount) and inputs [k, k + kInputs) of a matrix; what is not
/// there is zero.
template <int kCount>
__device__ void copy_tile(uint32_t to, const void* from, int64_t stride, int64_t first,
                          int64_t rows, int64_t k, int64_t cols) {
  constexpr int kChunks = kInputs / 8;
#pragma unroll
  for (int j = 0; j < (kCount * kChunks + kThreads - 1) / kThreads; ++j) {
    const int i = j * kThreads + static_cast<int>(threadIdx.x);
    if (kCount * kChunks % kThreads != 0 && i >= kCount * kChunks) break;
    const int row = i / kChunks;
    const int chunk = i % kChunks;
    const bool there = first + row < rows && k + chunk * 8 < cols;
    const int64_t at = there ? (first + row) * stride + k + chunk * 8 : 0;
    cp_async_zfill<16>(to + chunk_at(row, chunk), static_cast<const uint16_t*>(from) + at, there);
  }
}

/// Operand registers, two numbers in each: as they are, or f16 numbers as two of bf16.
template <int kCount, bool kSplits>
struct Operand {
  uint32_t high[kCount];
  uint32_t low[kSplits ? kCount : 1];

  __device__ void split() {
    if constexpr (kSplits) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const float a = gpu::F16::to_float(static_cast<uint16_t>(high[i]));
        const float b = gpu::F16::to_float(static_cast<uint16_t>(high[i] >> 16));
        high[i] = gpu::BF16::pack_x2(a, b);
        low[i] = gpu::BF16::pack_x2(a - gpu::BF16::to_float(static_cast<uint16_t>(high[i])),
                                    b - gpu::BF16::to_float(static_cast<uint16_t>(high[i] >> 16)));
      }
    }
  }
};

template <Element kW, Element kX, int kTokens>
class Tile {
 public:
  using Shape = TileShape<kTokens>;
  static constexpr bool kMixed = kW != kX;
  using Number = std::conditional_t<kW == Element::kF16 && !kMixed, gpu::F16, gpu::BF16>;

  __device__ Tile()
      : lane_(static_cast<int>(threadIdx.x) % kLanes),
        row_(static_cast<int>(threadIdx.x) / kLanes % kRowWarps * Shape::kWarpRows),
        token_(static_cast<int>(threadIdx.x) / kLanes / kRowWarps * Shape::kWarpTokens) {}

  __device__ void add(uint32_t weights, uint32_t inputs) {
#pragma unroll kTokens == 128 ? 1 : 4  // registers
    for (int k = 0; k < kInputs / 16; ++k) {
      Operand<4, kMixed && kX == Element::kF16> x[Shape::kWarpTokens / 16];
#pragma unroll
      for (int j = 0; j < Shape::kWarpTokens / 16; ++j) load(x[j], inputs, token_ + 16 * j, k);
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        Operand<4, kMixed && kW == Element::kF16> w;
        load(w, weights, row_ + 16 * i, k);
#pragma unroll
        for (int j = 0; j < Shape::kWarpTokens / 16; ++j) multiply(i, j, w, x[j]);
      }
    }
  }

  /// Leaves the sums in shared memory, for store_split_sums().
  __device__ void leave(float* to) const {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = row_ + 16 * i + lane_ / 4 + e / 2 * 8;
#pragma unroll
        for (int j = 0; j < kTokenTiles; ++j) {
          const int token = token_ + 8 * j + lane_ % 4 * 2 + e % 2;
          to[token * kSumsStride + row] = sums_[i][j][e];
        }
      }
    }
  }

  __device__ void store(const DenseCall& a, int64_t first_row, int64_t first_token) const {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int64_t row = first_row + row_ + 16 * i + lane_ / 4 + e / 2 * 8;
        if (row >= a.rows) continue;
        const float bias = a.bias != nullptr ? a.bias[row] : 0;
#pragma unroll
        for (int j = 0; j < kTokenTiles; ++j) {
          const int64_t token = first_token + token_ + 8 * j + lane_ % 4 * 2 + e % 2;
          if (token >= a.m) continue;
          store_element(a.y_element, a.y, token * a.y_stride + row, sums_[i][j][e] + bias);
        }
      }
    }
  }

 private:
  static constexpr int kRowWarps = kRows / Shape::kWarpRows;
  static constexpr int kRowTiles = Shape::kWarpRows / 16;
  static constexpr int kTokenTiles = Shape::kWarpTokens / 8;

  /// Rows [row, row + 16) and inputs [16 k, 16 k + 16): 8 x 8 matrices (rows, inputs) (low, low),
  /// (high, low), (low, high), (high, high).
  template <class O>
  __device__ void load(O& operand, uint32_t tile, int row, int k) const {
    ldmatrix_x4(operand.high, tile + chunk_at(row + lane_ % 16, 2 * k + lane_ / 16));
    operand.split();
  }

  template <class W, class X>
  __device__ void multiply(int i, int j, const W& w, const X& x) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float(&sums)[4] = sums_[i][2 * j + h];
      if constexpr (kMixed && kX == Element::kF16) {
        mma<Number>(sums, w.high, x.low[h], x.low[2 + h]);
      } else if constexpr (kMixed) {
        mma<Number>(sums, w.low, x.high[h], x.high[2 + h]);
      }
      mma<Number>(sums, w.high, x.high[h], x.high[2 + h]);
    }
  }

  int lane_;
  int row_;    // of the warp's tile, in the CTA's
  int token_;  // likewise
  float sums_[kRowTiles][kTokenTiles][4] = {};
};

/// The part of the inputs that a CTA of a cluster has; the sums of all are added in its order.
struct Split {
  int count = 1;
  int rank = 0;

  __device__ int64_t begin(int64_t cols, int which) const {
    return (cols + kInputs - 1) / kInputs * which / count * kInputs;
  }
};

/// Rows that a thread adds at once.
constexpr int kAtOnce = 4;

/// Stores the sums of the CTAs of a cluster, each CTA some of them.
template <int kTokens>
__device__ void store_split_sums(const DenseCall& a, const Split& split, const float* sums,
                                 int64_t first_row, int64_t first_token) {
  constexpr int kRuns = kRows / kAtOnce;
  cluster_sync();
  const int begin = split.rank * kThreads + static_cast<int>(threadIdx.x);
  for (int i = begin; i < kTokens * kRuns; i += split.count * kThreads) {
    const int64_t token = first_token + i / kRuns;
    if (token >= a.m) break;
    const uint32_t from = shared_address(sums + i / kRuns * kSumsStride + i % kRuns * kAtOnce);
    float parts[kMostSplits][kAtOnce];  // all on their way at once
#if __CUDA_ARCH__ >= 900
#pragma unroll
    for (int rank = 0; rank < kMostSplits; ++rank) {
      if (rank < split.count) ld_dsmem_v4(parts[rank], from, rank);
    }
#endif
    float values[kAtOnce] = {};
#pragma unroll
    for (int rank = 0; rank < kMostSplits; ++rank) {
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) values[r] += rank < split.count ? parts[rank][r] : 0;
    }
#pragma unroll
    for (int r = 0; r < kAtOnce; ++r) {
      const int64_t row = first_row + i % kRuns * kAtOnce + r;
      if (row >= a.rows) break;
      if (a.bias != nullptr) values[r] += a.bias[row];
      store_element(a.y_element, a.y, token * a.y_stride + row, values[r]);
    }
  }
  cluster_sync();  // a CTA must not leave while others read its sums
}

template <Element kW, Element kX, int kTokens>
__device__ void multiply_tiles(const DenseCall& a, const Split& split, int tile_index) {
  using Shape = TileShape<kTokens>;
  extern __shared__ uint4 shared_memory[];
  const uint32_t shared = shared_address(shared_memory);
  const int token_tiles = static_cast<int>((a.m + kTokens - 1) / kTokens);
  const int64_t first_row = int64_t{tile_index / token_tiles} * kRows;
  const int64_t first_token = int64_t{tile_index % token_tiles} * kTokens;
  const int64_t begin = split.begin(a.cols, split.rank);
  const int64_t end = min(a.cols, split.begin(a.cols, split.rank + 1));
  const auto copy_weights = [&](int stage, int64_t k) {
    if (k >= end) return;
    copy_tile<kRows>(shared + stage * Shape::kStageBytes, a.weights, a.cols, first_row, a.rows, k,
                     a.cols);
  };
  const auto copy_inputs = [&](int stage, int64_t k) {
    if (k < end) {
      copy_tile<kTokens>(shared + stage * Shape::kStageBytes + kRows * kRowBytes, a.x, a.x_stride,
                         first_token, a.m, k, a.cols);
    }
    cp_async_commit();
  };
  const auto copy_first_weights = [&] {
#pragma unroll
    for (int i = 0; i < Shape::kStages - 1; ++i) copy_weights(i, begin + i * kInputs);
  };
  if (!a.are_weights_made) copy_first_weights();
  begin_operation();
  if (a.are_weights_made) copy_first_weights();
#pragma unroll
  for (int i = 0; i < Shape::kStages - 1; ++i) copy_inputs(i, begin + i * kInputs);
  Tile<kW, kX, kTokens> tile;
  int from = 0;
  int to = Shape::kStages - 1;
  for (int64_t k = begin; k < end; k += kInputs) {
    cp_async_wait<Shape::kStages - 2>();
    __syncthreads();  // the tile has arrived, and the one before has been read
    copy_weights(to, k + (Shape::kStages - 1) * kInputs);
    copy_inputs(to, k + (Shape::kStages - 1) * kInputs);
    to = to + 1 == Shape::kStages ? 0 : to + 1;
    const uint32_t stage = shared + from * Shape::kStageBytes;
    tile.add(stage, stage + kRows * kRowBytes);
    from = from + 1 == Shape::kStages ? 0 : from + 1;
  }
  if (split.count == 1) return tile.store(a, first_row, first_token);
  cp_async_wait<0>();
  __syncthreads();  // all tiles have been read
  auto* const sums = reinterpret_cast<float*>(shared_memory);
  tile.leave(sums);
  store_split_sums<kTokens>(a, split, sums, first_row, first_token);
}

template <Element kW, Element kX, int kTokens>
__global__ void __launch_bounds__(kThreads, 2)
    gemm_16bit(const __grid_constant__ DenseCall a, int splits) {
  const auto cta = static_cast<int>(blockIdx.x);
  multiply_tiles<kW, kX, kTokens>(a, {splits, cta % splits}, cta / splits);
}

/// A layer of the grid for each head.
template <Element kW, Element kX, int kTokens>
__global__ void __launch_bounds__(kThreads, 2)
    gemm_16bit_of_heads(const __grid_constant__ DenseCall all,
                        const __grid_constant__ DenseHeads heads) {
  const int64_t head = blockIdx.y;
  DenseCall a = all;
  a.weights = static_cast<const uint16_t*>(a.weights) + head * a.rows * a.cols;
  a.x = static_cast<const uint16_t*>(a.x) + head * heads.x_step;
  a.y = static_cast<uint16_t*>(a.y) + head * heads.y_step;
  multiply_tiles<kW, kX, kTokens>(a, {}, static_cast<int>(blockIdx.x));
}

/// Of the current device, or `otherwise` where the driver does not say it.
int attribute(cudaDeviceAttr which, int otherwise) {
  int device = 0;
  int found = 0;
  const bool is_known = cudaGetDevice(&device) == cudaSuccess &&
                        cudaDeviceGetAttribute(&found, which, device) == cudaSuccess;
  return is_known ? found : otherwise;
}

/// Says whether the kernels that the current device runs are those of Hopper.
bool has_clusters() {
  int index = 0;
  if (cudaGetDevice(&index) != cudaSuccess) return false;
  const auto device = query_device(index);
  return device.ok() && device->compute_capability == 90;
}

/// Into how many parts a product may divide its inputs. Not in batch-invariant mode, as there are
/// more tiles of more tokens, and not where kernels know no clusters.
int most_splits(const DenseCall& call) {
  constexpr int64_t kLeastSteps = 4;
  if (call.batch_invariant || !has_clusters()) return 1;
  return static_cast<int>(std::clamp<int64_t>(call.cols / kInputs / kLeastSteps, 1, kMostSplits));
}

/// A cluster for each tile. Errors are left to cudaGetLastError().
template <auto* kKernel>
void launch_splits(int64_t tiles, int shared_bytes, Stream stream, const DenseCall& call) {
  const int splits = dense_splits(tiles, most_splits(call),
                                  attribute(cudaDevAttrMultiProcessorCount, kMultiprocessors));
  const dim3 grid(static_cast<unsigned>(tiles * splits));
  launch_large<kKernel>({grid, kThreads, shared_bytes, splits}, stream, call, splits);
}

/// nullptr: there are no heads.
template <Element kW, Element kX, int kTokens>
void launch_tile(const DenseCall& call, const DenseHeads* heads, Stream stream) {
  using Shape = TileShape<kTokens>;
  constexpr int kBytes = Shape::kStages * Shape::kStageBytes;
  const int64_t tiles = (call.rows + kRows - 1) / kRows * ((call.m + kTokens - 1) / kTokens);
  if (heads == nullptr) {
    return launch_splits<gemm_16bit<kW, kX, kTokens>>(tiles, kBytes, stream, call);
  }
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(heads->count));
  launch_large<gemm_16bit_of_heads<kW, kX, kTokens>>({grid, kThreads, kBytes}, stream, call,
                                                     *heads);
}

/// Tiles of 16 tokens have the longest ring: more than the 99 KiB of some GPUs.
bool has_room_for_16() {
  constexpr int kBytes = TileShape<16>::kStages * TileShape<16>::kStageBytes;
  return attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, 0) >= kBytes;
}

template <Element kW, Element kX>
void launch_for_tokens(const DenseCall& call, const DenseHeads* heads, Stream stream) {
  const int64_t matrices = heads == nullptr ? 1 : heads->count;
  const int multiprocessors = attribute(cudaDevAttrMultiProcessorCount, kMultiprocessors);
  const int splits = heads == nullptr ? most_splits(call) : 1;
  const int tokens =
      dense_token_tile(call.rows, call.m, matrices, kW != kX, multiprocessors, splits);
  if (tokens == 16 && has_room_for_16()) return launch_tile<kW, kX, 16>(call, heads, stream);
  if (tokens <= 64) return launch_tile<kW, kX, 64>(call, heads, stream);
  launch_tile<kW, kX, 128>(call, heads, stream);
}

template <Element kW>
void launch_for_inputs(const DenseCall& call, const DenseHeads* heads, Stream stream) {
  if (call.x_element == Element::kF16) {
    return launch_for_tokens<kW, Element::kF16>(call, heads, stream);
  }
  launch_for_tokens<kW, Element::kBF16>(call, heads, stream);
}

void launch_for_weights(const DenseCall& call, const DenseHeads* heads, Stream stream) {
  if (call.weights_element == Element::kF16) {
    launch_for_inputs<Element::kF16>(call, heads, stream);
  } else {
    launch_for_inputs<Element::kBF16>(call, heads, stream);
  }
}

bool is_16bit(Element element) {
  return element == Element::kF16 || element == Element::kBF16;
}

}  // namespace

bool serves_16bit_dense(const DenseCall& call) {
  return is_16bit(call.weights_element) && is_16bit(call.x_element) && has_aligned_rows(call);
}

void run_dense_16bit(const DenseCall& call, Stream stream) {
  const int multiprocessors = attribute(cudaDevAttrMultiProcessorCount, kMultiprocessors);
  if (serves_dense_hopper(call, multiprocessors) && has_clusters() &&
      run_dense_hopper(call, multiprocessors, stream)) {
    return;
  }
  launch_for_weights(call, nullptr, stream);
}

void run_dense_16bit_of_heads(const DenseCall& call, const DenseHeads& heads, Stream stream) {
  launch_for_weights(call, &heads, stream);
}

}  // namespace subbyte::cuda
