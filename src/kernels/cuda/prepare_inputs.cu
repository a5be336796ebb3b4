#include "kernels/cuda/prepare_inputs.h"

#include <cuda_runtime.h>

#include <string>

#include "formats/rotation.h"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/rotate.cuh"
#include "kernels/cuda/planning.h"
#include "kernels/gpu/dialect.h"

namespace subbyte::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kOfLane = kRotatedOfLane;
constexpr int kOfWarp = kOfLane * kLanes;  // the longest rotation

struct PrepareArguments {
  const uint16_t* x;
  uint4* to;
  int64_t x_stride;
  int64_t warps;
  int32_t warps_of_row;
  int32_t cols;
  int32_t to_stride;  // of 16 bytes
  int32_t rotation;
  float factor;
  bool is_fours;
  bool is_aligned;
};

template <class Number>
__device__ __forceinline__ void load_inputs(const PrepareArguments& a, const uint16_t* from,
                                            int col, float (&x)[kOfLane]) {
  if (a.is_aligned && col + kOfLane <= a.cols) {
    const uint4 v = *reinterpret_cast<const uint4*>(from + col);
    const uint32_t pairs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      x[i] = Number::to_float(static_cast<uint16_t>(pairs[i / 2] >> 16 * (i % 2)));
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) x[i] = col + i < a.cols ? Number::to_float(from[col + i]) : 0;
}

/// Pairs of a step of 16 inputs, of which lane 2 i has the first eight: those of inputs 4t and
/// 4t + 1 come before those of 4t + 2 and 4t + 3.
__device__ __forceinline__ uint4 in_fours(const uint4& pairs, int lane) {
  const bool is_second = lane % 2 != 0;
  const uint32_t first = __shfl_xor_sync(~0u, is_second ? pairs.x : pairs.y, 1);
  const uint32_t second = __shfl_xor_sync(~0u, is_second ? pairs.z : pairs.w, 1);
  if (is_second) return {first, second, pairs.y, pairs.w};
  return {pairs.x, pairs.z, first, second};
}

template <class Number>
__global__ void __launch_bounds__(kWarps* kLanes)
    prepare(const __grid_constant__ PrepareArguments a) {
  griddepcontrol_wait();
  griddepcontrol_launch_dependents();
  const int lane = threadIdx.x % kLanes;
  const int64_t warp = int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  if (warp >= a.warps) return;
  const int64_t row = warp / a.warps_of_row;
  const int col = static_cast<int>(warp - row * a.warps_of_row) * kOfWarp + lane * kOfLane;
  float x[kOfLane];
  load_inputs<Number>(a, a.x + row * a.x_stride, col, x);
  rotate_in_warp(x, lane, a.rotation, a.factor);
  uint4 pairs = {Number::pack_x2(x[0], x[1]), Number::pack_x2(x[2], x[3]),
                 Number::pack_x2(x[4], x[5]), Number::pack_x2(x[6], x[7])};
  if (a.is_fours) pairs = in_fours(pairs, lane);
  if (col / kOfLane < a.to_stride) a.to[row * a.to_stride + col / kOfLane] = pairs;
}

}  // namespace

Status prepare_inputs(const PrepareInputsCall& call, CUstream_st* stream) {
  const gpu::PackedFormat& f = *call.format;
  PrepareArguments a = {};
  a.x = static_cast<const uint16_t*>(call.x);
  a.to = static_cast<uint4*>(call.to);
  a.x_stride = call.x_stride;
  a.cols = static_cast<int32_t>(f.cols);
  a.to_stride = static_cast<int32_t>(prepared_stride(f.cols) / kOfLane);
  a.warps_of_row = static_cast<int32_t>(divide_up(f.cols, kOfWarp));
  a.warps = call.m * a.warps_of_row;
  a.rotation = static_cast<int32_t>(f.source.rotation);
  a.factor = f.source.rotation == 0 ? 1 : static_cast<float>(rotation_factor(f.source.rotation));
  a.is_fours = gpu::code_order(f) == CodeOrder::kFours;
  a.is_aligned = reinterpret_cast<uintptr_t>(call.x) % 16 == 0 && call.x_stride % kOfLane == 0;
  const dim3 ctas(static_cast<unsigned>(divide_up(a.warps, kWarps)));
  const LaunchConfig config({ctas, kWarps * kLanes, 0, 1, call.dependent_launch}, stream);
  const auto kernel = call.number == gpu::Number::kF16 ? prepare<F16> : prepare<BF16>;
  const cudaError_t error = cudaLaunchKernelEx(config.get(), kernel, a);
  if (error == cudaSuccess) return {};
  return Error{"cuda.launch", std::string("linear: inputs: ") + cudaGetErrorString(error)};
}

}  // namespace subbyte::cuda
