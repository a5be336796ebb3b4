// Vectors of 2 or 4 numbers, to bytes and back. Quantizing tries all 256 of them, in the order and
// the roundings of the host, so that it is bound by arithmetic.

#include <algorithm>

#include "kernels/cuda/codebook/kbit.h"
#include "kernels/cuda/codebook/kbit_blocks.cuh"
#include "kernels/cuda/common/launch.cuh"

namespace subbyte::cuda {
namespace {

using namespace kbit;

constexpr int kBlocksOfCta = kThreads / kLanesOfBlock;
constexpr int kVectors = 256;

/// As floats, by all threads.
template <int kP>
__device__ __forceinline__ void fill_vectors(float* shared, const uint16_t* values) {
  for (int i = threadIdx.x; i < kVectors * kP; i += kThreads) {
    shared[i] = gpu::F16::to_float(values[i]);
  }
  __syncthreads();
}

struct QuantizeArguments : QuantizedNumbers {
  uint8_t* codes = nullptr;
  Element number = {};
  uint16_t vectors[kVectors * 4] = {};
};

/// The first of the nearest vectors, of each of the lane's.
template <int kP>
__device__ __forceinline__ void find_nearest(uint32_t (&codes)[kNumbersOfLane / kP],
                                             const float (&x)[kNumbersOfLane],
                                             const float* vectors) {
  float least[kNumbersOfLane / kP];
#pragma unroll
  for (int i = 0; i < kNumbersOfLane / kP; ++i) {
    least[i] = __uint_as_float(0x7F800000);
    codes[i] = 0;
  }
#pragma unroll 4
  for (int code = 0; code < kVectors; ++code) {
#pragma unroll
    for (int i = 0; i < kNumbersOfLane / kP; ++i) {
      float distance = 0;
#pragma unroll
      for (int j = 0; j < kP; ++j) {
        const float difference = x[i * kP + j] - vectors[code * kP + j];
        distance = __fadd_rn(distance, __fmul_rn(difference, difference));
      }
      const bool is_nearer = distance < least[i];
      least[i] = is_nearer ? distance : least[i];
      codes[i] = is_nearer ? code : codes[i];
    }
  }
}

template <int kP>
__global__ void __launch_bounds__(kThreads) quantize(const __grid_constant__ QuantizeArguments a) {
  __shared__ __align__(16) float vectors[kVectors * kP];
  begin_operation();
  fill_vectors<kP>(vectors, a.vectors);
  const int64_t block = int64_t{blockIdx.x} * kBlocksOfCta + threadIdx.x / kLanesOfBlock;
  const int lane = threadIdx.x % kLanesOfBlock;
  float x[kNumbersOfLane];
  load_8_of(a.number, a.numbers, block * kBlock + lane * kNumbersOfLane, a.count, x);
  const float largest = largest_of_block(x);
  const float divisor = fmaxf(largest, kBitsandbytesFloor);
#pragma unroll
  for (float& number : x) number = __fdiv_rn(number, divisor);
  uint32_t codes[kNumbersOfLane / kP];
  find_nearest<kP>(codes, x, vectors);
  if (block >= a.blocks) return;
  if constexpr (kP == 2) {
    reinterpret_cast<uint32_t*>(a.codes)[block * 4 + lane] =
        codes[0] | codes[1] << 8 | codes[2] << 16 | codes[3] << 24;
  } else {
    reinterpret_cast<uint16_t*>(a.codes)[block * 4 + lane] =
        static_cast<uint16_t>(codes[0] | codes[1] << 8);
  }
  if (lane == 0) a.absmax[block] = static_cast<uint8_t>(e4m4_as_bitsandbytes(largest));
}

struct DequantizeArguments : DequantizedBlocks {
  const uint8_t* codes = nullptr;
  uint16_t vectors[kVectors * 4] = {};
};

/// Where the numbers of a block go, or -1 for padding.
__device__ __forceinline__ int64_t place_of(const DequantizeArguments& a, int64_t block) {
  if (block >= a.blocks) return -1;
  if (a.tiles_n == 0) return block * kBlock;
  const int64_t tile = block / 256;
  const int64_t row = tile % a.tiles_n * 128 + block % 256 / 2;
  const int64_t group = tile / a.tiles_n * 2 + block % 2;
  return group < a.groups ? row * a.cols + group * kBlock : -1;
}

template <int kP>
__global__ void __launch_bounds__(kThreads)
    dequantize(const __grid_constant__ DequantizeArguments a) {
  constexpr int kChunks = 4;
  __shared__ __align__(16) float vectors[kVectors * kP];
  begin_operation();
  const int lane = threadIdx.x % kLanesOfBlock;
  const int64_t first =
      int64_t{blockIdx.x} * (kBlocksOfCta * kChunks) + threadIdx.x / kLanesOfBlock;
  uint32_t codes[kChunks] = {};
  float scales[kChunks] = {};
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int64_t block = first + i * kBlocksOfCta;
    if (block >= a.blocks) break;
    const int64_t at = block * kLanesOfBlock + lane;
    codes[i] = kP == 2 ? reinterpret_cast<const uint32_t*>(a.codes)[at]
                       : reinterpret_cast<const uint16_t*>(a.codes)[at];
    scales[i] = scale_of(a.absmax, block, a.scale_bytes, a.rule);
  }
  fill_vectors<kP>(vectors, a.vectors);
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int64_t to = place_of(a, first + i * kBlocksOfCta);
    if (to < 0) continue;
    float weights[kNumbersOfLane];
#pragma unroll
    for (int j = 0; j < kNumbersOfLane; ++j) {
      const uint32_t code = codes[i] >> 8 * (j / kP) & 0xFF;
      weights[j] = vectors[code * kP + j % kP] * scales[i];
    }
    store_8(a.number, a.out, to + lane * kNumbersOfLane, weights);
  }
}

Status check_vectors(const char* what, const KbitBuffers& b, const VqVectors& vectors) {
  const bool is_p = vectors.p == 2 || vectors.p == 4;
  if (!is_p || b.k != 8 / vectors.p) return wrong_shape(what, "2 or 4 weights a byte", vectors.p);
  const int64_t values = std::ssize(vectors.values);
  if (values == kVectors * vectors.p) return {};
  return wrong_shape(what, std::to_string(kVectors * vectors.p) + " values of vectors", values);
}

}  // namespace

Status quantize_vq(const void* numbers, Format number, int64_t count, const VqVectors& vectors,
                   const KbitBuffers& to, Stream stream) {
  constexpr const char* kWhat = "quantize vq";
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  const int64_t ctas = (blocks + kBlocksOfCta - 1) / kBlocksOfCta;
  SUBBYTE_CHECK(check_vectors(kWhat, to, vectors));
  SUBBYTE_CHECK(check_buffers(kWhat, to, blocks));
  if (to.scale != Format::kE4M4) return Error{"cuda.shape", "quantize vq: expected E4M4 scales"};
  if (ctas > INT32_MAX) return wrong_shape(kWhat, "fewer than 2^42 numbers", count);
  QuantizeArguments a = {quantized_numbers(numbers, count, to)};
  a.codes = reinterpret_cast<uint8_t*>(to.packed);
  a.number = element_of_number(number);
  std::ranges::copy(vectors.values, a.vectors);
  if (ctas > 0) {
    launch(vectors.p == 2 ? quantize<2> : quantize<4>,
           {dim3(static_cast<unsigned>(ctas)), kThreads}, stream, a);
  }
  pad(to, blocks, stream);
  return launched(kWhat);
}

Status dequantize_vq(const KbitDequantization& call, const VqVectors& vectors, Stream stream) {
  constexpr const char* kWhat = "dequantize vq";
  SUBBYTE_CHECK(check_vectors(kWhat, call.from, vectors));
  SUBBYTE_TRY(const int64_t blocks, blocks_to_dequantize(kWhat, call));
  DequantizeArguments a = {dequantized_blocks(call, blocks)};
  a.codes = reinterpret_cast<const uint8_t*>(call.from.packed);
  std::ranges::copy(vectors.values, a.vectors);
  const int64_t ctas = (blocks + 4 * kBlocksOfCta - 1) / (4 * kBlocksOfCta);
  if (ctas == 0) return {};
  launch(vectors.p == 2 ? dequantize<2> : dequantize<4>,
         {dim3(static_cast<unsigned>(ctas)), kThreads}, stream, a);
  return launched(kWhat);
}

}  // namespace subbyte::cuda
