#include "kernels/cuda/dense/dense_hopper.h"

#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/wgmma_heads.cuh"
#include "kernels/cuda/tensor_map.h"

namespace subbyte::cuda {
namespace {

constexpr int kWarpgroup = 128;
constexpr int kThreads = 3 * kWarpgroup;
constexpr int kConsumerWarps = 8;
constexpr int kOutputs = 128;
constexpr int kBoxTokens = 128;
constexpr int kChunk = 64;  // inputs of a box
constexpr int kRowBytes = 2 * kChunk;
constexpr int kSteps = kChunk / 16;

template <int kOfTokens>
struct HopperTile {
  static constexpr int kTokens = kOfTokens;
  static constexpr int kBoxes = kTokens / kBoxTokens;
  static constexpr int kWeightBytes = kOutputs * kRowBytes;
  static constexpr int kBoxBytes = kBoxTokens * kRowBytes;
  static constexpr int kStageBytes = kWeightBytes + kBoxes * kBoxBytes;
  static constexpr int kStages = kTokens == 256 ? 4 : 6;
  static constexpr int kBytes = kStages * (kStageBytes + 16) + 1024;  // for alignment
};

struct DenseMaps {
  CUtensorMap weights, inputs;
};

/// The stages in shared memory, one after the other.
template <class Tile>
struct DenseRing {
  uint32_t shared;
  int stage = 0;
  int phase = 0;

  __device__ uint32_t at() const { return shared + stage * Tile::kStageBytes; }
  __device__ uint32_t full() const {
    return shared + Tile::kStages * Tile::kStageBytes + 8 * stage;
  }
  __device__ uint32_t empty() const { return full() + 8 * Tile::kStages; }
  __device__ void next() {
    if (++stage < Tile::kStages) return;
    stage = 0;
    phase ^= 1;
  }
  __device__ void init() const {
    for (DenseRing ring = *this; ring.phase == 0; ring.next()) {
      mbarrier_init(ring.full(), 1);
      mbarrier_init(ring.empty(), kConsumerWarps);
    }
    fence_mbarrier_init();
  }
};

/// By one thread. The first weights come before what gives the inputs has ended.
template <class Tile>
__device__ void copy_operands(const DenseCall& a, const DenseMaps& maps, DenseRing<Tile> ring,
                              int steps) {
  const int first_row = static_cast<int>(blockIdx.x) * kOutputs;
  const int first_token = static_cast<int>(blockIdx.y) * Tile::kTokens;
  const auto copy_weights = [&](const DenseRing<Tile>& to, int step) {
    mbarrier_arrive_expect_tx(to.full(), Tile::kStageBytes);
    tma_load_2d(to.at(), maps.weights, step * kChunk, first_row, to.full(), 0, false);
  };
  const int ahead = a.are_weights_made ? 0 : min(steps, Tile::kStages);
  DenseRing<Tile> first = ring;
  for (int step = 0; step < ahead; ++step, first.next()) copy_weights(first, step);
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  for (int step = 0; step < steps; ++step, ring.next()) {
    if (step >= Tile::kStages) mbarrier_wait(ring.empty(), ring.phase ^ 1);
    if (step >= ahead) copy_weights(ring, step);
#pragma unroll
    for (int box = 0; box < Tile::kBoxes; ++box) {
      tma_load_2d(ring.at() + Tile::kWeightBytes + box * Tile::kBoxBytes, maps.inputs,
                  step * kChunk, first_token + box * kBoxTokens, ring.full(), 0, false);
    }
  }
}

template <class Number, class Tile>
__device__ void multiply_stages(float (&sums)[Tile::kBoxes][kBoxTokens / 8][4],
                                DenseRing<Tile> ring, int warpgroup, int steps) {
  uint32_t before = 0;
  for (int step = 0; step < steps; ++step, ring.next()) {
    const uint64_t weights = wgmma_descriptor(ring.at() + warpgroup * 64 * kRowBytes);
    mbarrier_wait(ring.full(), ring.phase);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
#pragma unroll
      for (int box = 0; box < Tile::kBoxes; ++box) {
        const uint64_t inputs =
            wgmma_descriptor(ring.at() + Tile::kWeightBytes + box * Tile::kBoxBytes);
        wgmma_scores<Number>(sums[box], weights + 2 * k, inputs + 2 * k, step > 0 || k > 0);
      }
    }
    wgmma_commit();
    wgmma_wait<1>();  // the stage before has been read
    if (step > 0 && threadIdx.x % kLanes == 0) mbarrier_arrive(before);
    before = ring.empty();
  }
  wgmma_wait<0>();
#pragma unroll
  for (int box = 0; box < Tile::kBoxes; ++box) wgmma_arrived(sums[box]);
}

/// Lanes have outputs g and g + 8 of their warp's 16, and tokens 2t and 2t + 1 of each eight.
template <class Tile>
__device__ void store_sums(const DenseCall& a, const float (&sums)[Tile::kBoxes][kBoxTokens / 8][4],
                           int warpgroup) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int warp = static_cast<int>(threadIdx.x) % kWarpgroup / kLanes;
  const int64_t first_row = int64_t{blockIdx.x} * kOutputs + warpgroup * 64 + warp * 16 + lane / 4;
  const int64_t first_token = int64_t{blockIdx.y} * Tile::kTokens + lane % 4 * 2;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int64_t row = first_row + 8 * h;
    if (row >= a.rows) continue;
    const float bias = a.bias != nullptr ? a.bias[row] : 0;
#pragma unroll
    for (int box = 0; box < Tile::kBoxes; ++box) {
#pragma unroll
      for (int j = 0; j < kBoxTokens / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int64_t token = first_token + box * kBoxTokens + 8 * j + e;
          if (token >= a.m) continue;
          store_element(a.y_element, a.y, token * a.y_stride + row, sums[box][j][2 * h + e] + bias);
        }
      }
    }
  }
}

template <class Number, class Tile>
__global__ void __launch_bounds__(kThreads, 1)
    dense_hopper(const __grid_constant__ DenseCall a, const __grid_constant__ DenseMaps maps) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other GPUs have no wgmma, and the host does not choose this
  extern __shared__ uint8_t unaligned[];
  const DenseRing<Tile> ring = {(shared_address(unaligned) + 1023) / 1024 * 1024};
  const int steps = static_cast<int>((a.cols + kChunk - 1) / kChunk);
  if (threadIdx.x == 0) ring.init();
  __syncthreads();
  if (threadIdx.x < kWarpgroup) {
    setmaxnreg_dec<40>();
    if (threadIdx.x == 0) copy_operands(a, maps, ring, steps);
  } else {
    setmaxnreg_inc<232>();
    const int warpgroup = static_cast<int>(threadIdx.x) / kWarpgroup - 1;
    float sums[Tile::kBoxes][kBoxTokens / 8][4];
    multiply_stages<Number>(sums, ring, warpgroup, steps);
    griddepcontrol_wait();  // y may be read so far
    store_sums<Tile>(a, sums, warpgroup);
  }
#endif
}

template <class Number, int kTokens>
bool launch_tokens(const DenseCall& a, Stream stream) {
  using Tile = HopperTile<kTokens>;
  const cuda::Number number = Number::kIsF16 ? cuda::Number::kF16 : cuda::Number::kBF16;
  DenseMaps maps = {};
  const bool is_described =
      describe_activations(maps.weights, a.weights, a.rows, a.cols, a.cols, kOutputs, number)
          .ok() &&
      describe_activations(maps.inputs, a.x, a.m, a.cols, a.x_stride, kBoxTokens, number).ok();
  if (!is_described) return false;
  const dim3 grid(static_cast<unsigned>((a.rows + kOutputs - 1) / kOutputs),
                  static_cast<unsigned>((a.m + kTokens - 1) / kTokens));
  return launch_large<dense_hopper<Number, Tile>>({grid, kThreads, Tile::kBytes}, stream, a, maps);
}

int64_t ctas_of(const DenseCall& call, int64_t tokens) {
  return (call.rows + kOutputs - 1) / kOutputs * ((call.m + tokens - 1) / tokens);
}

/// Tiles of 256 tokens take 1.54 times as long as those of 128.
template <class Number>
bool launch_number(const DenseCall& call, int multiprocessors, Stream stream) {
  const auto waves = [&](int64_t tokens) {
    return (ctas_of(call, tokens) + multiprocessors - 1) / multiprocessors;
  };
  if (154 * waves(256) < 100 * waves(128)) return launch_tokens<Number, 256>(call, stream);
  return launch_tokens<Number, 128>(call, stream);
}

}  // namespace

bool serves_dense_hopper(const DenseCall& call, int multiprocessors) {
  return call.m > 64 && call.weights_element == call.x_element && !call.batch_invariant &&
         4 * ctas_of(call, kBoxTokens) >= multiprocessors;
}

bool run_dense_hopper(const DenseCall& call, int multiprocessors, Stream stream) {
  if (call.x_element == Element::kF16) {
    return launch_number<gpu::F16>(call, multiprocessors, stream);
  }
  return launch_number<gpu::BF16>(call, multiprocessors, stream);
}

}  // namespace subbyte::cuda
