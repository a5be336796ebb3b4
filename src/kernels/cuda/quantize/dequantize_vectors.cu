// A warp has 256 inputs of a packed row, the longest rotation, of which each lane has eight. Bytes
// of codes are loaded one by one: this is no part of a step, and products read them otherwise.

#include "kernels/cuda/quantize/dequantize_vectors.h"

#include <string>

#include "formats/rotation.h"
#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/rotate.cuh"
#include "kernels/cuda/quantize/packed_vectors.cuh"
#include "kernels/cuda/weight_arguments.h"

namespace subbyte::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kOfLane = kRotatedOfLane;
constexpr int kOfWarp = kOfLane * kLanes;

struct VectorArguments {
  WeightArguments weights;
  void* out;
  int64_t warps;
  int32_t warps_of_row;
  int32_t rotation;
  float factor;  // of the rotation
  float tensor_scale;
  Element number;
};

template <int kBits>
__global__ void __launch_bounds__(kWarps* kLanes)
    dequantize(const __grid_constant__ VectorArguments a) {
  begin_operation();
  const WeightArguments& w = a.weights;
  const int64_t warp = int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  if (warp >= a.warps) return;
  const int lane = threadIdx.x % kLanes;
  const int64_t packed_row = warp / a.warps_of_row;
  const int64_t strip = packed_row / kStripRows;
  const int row = static_cast<int>(packed_row % kStripRows);
  const int64_t source = source_row(w.row_order, strip, row, w.rows);
  if (source >= w.rows) return;
  const int col = static_cast<int>(warp % a.warps_of_row) * kOfWarp + lane * kOfLane;
  const bool is_there = col < w.cols;
  float weights[kOfLane] = {};
  if (is_there) load_vectors<kBits>(w, strip, row, col, weights);
  rotate_in_warp(weights, lane, a.rotation, a.factor);
  if (!is_there) return;
#pragma unroll
  for (float& weight : weights) weight *= a.tensor_scale;
  store_8(a.number, a.out, source * w.cols + col, weights);
}

}  // namespace

Status dequantize_vectors(const std::byte* packed, const gpu::PackedFormat& format,
                          double tensor_scale, Element number, void* out, Stream stream) {
  if (number == Element::kE4M3) {
    return Error{"cuda.format", "dequantize: expected a buffer of f32, f16 or bf16, found e4m3"};
  }
  VectorArguments a = {};
  a.weights = weight_arguments(packed, format, tensor_scale, Number::kBF16);
  a.out = out;
  a.warps_of_row = static_cast<int32_t>((format.cols + kOfWarp - 1) / kOfWarp);
  a.warps = format.strips * kStripRows * a.warps_of_row;
  a.rotation = static_cast<int32_t>(format.source.rotation);
  a.factor = a.rotation == 0 ? 1 : static_cast<float>(rotation_factor(a.rotation));
  a.tensor_scale = static_cast<float>(tensor_scale);
  a.number = number;
  const int64_t ctas = (a.warps + kWarps - 1) / kWarps;
  if (ctas > INT32_MAX || reinterpret_cast<uintptr_t>(out) % 16 != 0) {
    return Error{
        "cuda.shape",
        "dequantize: expected out at a multiple of 16 bytes and at most 2^31 parts, found " +
            std::to_string(ctas) + " parts"};
  }
  launch(format.bits == 2 ? dequantize<2> : dequantize<4>,
         {dim3(static_cast<unsigned>(ctas)), kWarps * kLanes}, stream, a);
  return launched("dequantize");
}

}  // namespace subbyte::cuda
