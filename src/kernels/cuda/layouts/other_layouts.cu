// A thread has eight neighbours, or one scale; a warp has a block that is quantized, which it reads
// twice.

#include <algorithm>
#include <string>

#include "kernels/block_codes.h"
#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/layouts/other_layouts.h"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kChunk = 8;  // numbers, of four bytes

struct Values {
  float of_code[16];
};

__global__ void __launch_bounds__(kThreads)
    from_nibbles(const __grid_constant__ NibbleBlocks a, const __grid_constant__ Values values,
                 bool is_aligned) {
  __shared__ float shared[16];
  begin_operation();
  if (threadIdx.x < 16) shared[threadIdx.x] = values.of_code[threadIdx.x];
  __syncthreads();
  const int64_t step = int64_t{gridDim.x} * kThreads * kChunk;
  for (int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kChunk; first < a.count;
       first += step) {
    const float scale = a.absmax[first / a.blocksize];
    const int count = static_cast<int>(min(int64_t{kChunk}, a.count - first));
    float numbers[kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; i += 2) {
      const uint32_t byte = i < count ? a.packed[(first + i) / 2] : 0;
      numbers[i] = __fmul_rn(shared[byte >> 4], scale);
      numbers[i + 1] = __fmul_rn(shared[byte & 15], scale);
    }
    if (is_aligned && count == kChunk) {
      store_8(a.element, a.numbers, first, numbers);
      continue;
    }
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (i < count) store_element(a.element, a.numbers, first + i, numbers[i]);
    }
  }
}

struct Rising {
  float middles[15];
  uint8_t codes[16];
};

__device__ __forceinline__ uint32_t code_of(const Rising& rising, const uint8_t* codes, float x) {
  int below = 0;
#pragma unroll
  for (int i = 0; i < 15; ++i) below += x <= rising.middles[i] ? 0 : 1;
  return codes[below];
}

__global__ void __launch_bounds__(kThreads)
    to_nibbles(const __grid_constant__ NibbleBlocks a, const __grid_constant__ Rising rising) {
  constexpr float kLeastScale = 1e-38f;
  __shared__ uint8_t codes[16];
  begin_operation();
  if (threadIdx.x < 16) codes[threadIdx.x] = rising.codes[threadIdx.x];
  __syncthreads();
  const int lane = threadIdx.x % kLanes;
  const int64_t blocks = (a.count + a.blocksize - 1) / a.blocksize;
  const int64_t step = int64_t{gridDim.x} * (kThreads / kLanes);
  for (int64_t block = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanes; block < blocks;
       block += step) {
    const int64_t first = block * a.blocksize;
    const int count = static_cast<int>(min(a.blocksize, a.count - first));
    float largest = 0;
    for (int i = lane; i < count; i += kLanes) {
      largest = larger_magnitude(largest, load_element(a.element, a.numbers, first + i));
    }
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      largest = larger_magnitude(largest, __shfl_xor_sync(~0u, largest, distance));
    }
    const bool is_whole = count == a.blocksize;
    const float scale = largest < kLeastScale ? kLeastScale : largest;
    const float inverse = __fdiv_rn(1.0f, scale);
    if (lane == 0) a.absmax[block] = is_whole ? largest : scale;
    const auto code = [&](int i) {
      const float x = i < count ? load_element(a.element, a.numbers, first + i) : 0.0f;
      const float scaled = i >= count ? 0.0f
                           : is_whole ? __fmul_rn(x, inverse)
                                      : __fdiv_rn(x, scale);
      return code_of(rising, codes, scaled);
    };
    for (int byte = lane; byte < (count + 1) / 2; byte += kLanes) {
      a.packed[first / 2 + byte] = static_cast<uint8_t>(code(2 * byte) << 4 | code(2 * byte + 1));
    }
  }
}

template <class Scale>
__global__ void __launch_bounds__(kThreads) move_each(const __grid_constant__ ScaleMove a) {
  begin_operation();
  const auto* const from = reinterpret_cast<const Scale*>(a.from);
  auto* const to = reinterpret_cast<Scale*>(a.to);
  const int64_t rows = a.to_rows ? a.rows : a.padded_rows;
  const int64_t cols = a.to_rows ? a.cols : a.padded_cols;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < a.matrices * rows * cols;
       i += step) {
    const int64_t matrix = i / (rows * cols);
    const int64_t row = i / cols % rows;
    const int64_t col = i % cols;
    const int64_t atom = matrix * a.padded_rows * a.padded_cols +
                         blocks::scale_place(a.layout, row, col, a.padded_cols);
    if (a.to_rows) {
      to[i] = from[atom];
    } else {
      const bool is_there = row < a.rows && col < a.cols;
      to[atom] = is_there ? from[(matrix * a.rows + row) * a.cols + col] : Scale{0};
    }
  }
}

/// A thread has the eight outputs of a word: even ones in the low half, then odd ones.
__global__ void __launch_bounds__(kThreads) from_awq(const __grid_constant__ AwqWords a) {
  begin_operation();
  const int64_t words = a.rows / 8;
  const int64_t in_group = a.cols / a.groups;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < a.cols * words; i += step) {
    const int64_t group = i / words / in_group;
    const int64_t word = i % words;
    const uint32_t codes = a.words[i];
    const uint32_t zeros = a.zeros[group * words + word];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int bit = (j / 2 + j % 2 * 4) * 4;
      const float value = static_cast<float>(static_cast<int>(codes >> bit & 15) -
                                             static_cast<int>(zeros >> bit & 15));
      const float scale = load_element(a.element, a.scales, group * a.rows + word * 8 + j);
      store_element(a.element, a.out, i * 8 + j, __fmul_rn(value, scale));
    }
  }
}

}  // namespace

Status dequantize_nibbles(const NibbleBlocks& blocks, const std::array<float, 16>& values,
                          Stream stream) {
  if (blocks.count == 0) return {};
  Values of_codes;
  std::copy(values.begin(), values.end(), of_codes.of_code);
  const bool is_aligned = reinterpret_cast<uintptr_t>(blocks.numbers) % 16 == 0;
  launch(from_nibbles, grid_for((blocks.count + kChunk - 1) / kChunk), stream, blocks, of_codes,
         is_aligned);
  return launched("dequantize_4bit");
}

Status quantize_nibbles(const NibbleBlocks& blocks, const RisingCodes& rising, Stream stream) {
  if (blocks.count == 0) return {};
  Rising given;
  std::copy(rising.middles.begin(), rising.middles.end(), given.middles);
  std::copy(rising.codes.begin(), rising.codes.end(), given.codes);
  const int64_t count = (blocks.count + blocks.blocksize - 1) / blocks.blocksize;
  launch(to_nibbles, grid_for(count * kLanes), stream, blocks, given);
  return launched("quantize_4bit");
}

Status move_scales(const ScaleMove& call, Stream stream) {
  const int64_t scales =
      call.matrices * (call.to_rows ? call.rows * call.cols : call.padded_rows * call.padded_cols);
  if (scales == 0) return {};
  launch(call.width == 1 ? move_each<uint8_t> : move_each<uint16_t>, grid_for(scales), stream,
         call);
  return launched("scales");
}

Status dequantize_awq(const AwqWords& awq, Stream stream) {
  if (awq.rows == 0 || awq.cols == 0) return {};
  launch(from_awq, grid_for(awq.cols * (awq.rows / 8)), stream, awq);
  return launched("awq_dequantize");
}

}  // namespace subbyte::cuda
