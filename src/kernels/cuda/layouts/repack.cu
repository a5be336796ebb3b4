// A thread has a word of Marlin, or a canonical byte.

#include "kernels/cuda/layouts/repack.h"

#include <algorithm>
#include <string>

#include "kernels/cuda/common/launch.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;

/// The code of input k and output n.
__device__ __forceinline__ uint32_t code_at(const MarlinRepack& a, int64_t k, int64_t n) {
  const int in_word = 32 / a.bits;
  const uint32_t mask = (1u << a.bits) - 1;
  if (!a.is_awq) {
    return a.words[k / in_word * a.rows + n] >> (k % in_word * a.bits) & mask;
  }
  const int i = static_cast<int>(n % in_word);  // even ones in the low half, then odd ones
  const int place = i / 2 + i % 2 * in_word / 2;
  return a.words[k * (a.rows / in_word) + n / in_word] >> (place * a.bits) & mask;
}

__device__ __forceinline__ int64_t input_of(const MarlinRepack& a, int64_t k) {
  if (a.order == nullptr) return k;
  const int32_t input = a.order[k];
  if (input >= 0 && input < a.cols) return input;
  *a.fault = 1;
  return 0;
}

__global__ void __launch_bounds__(kThreads) to_marlin(const __grid_constant__ MarlinRepack a) {
  begin_operation();
  const int in_word = 32 / a.bits;
  const int words_of_lane = a.bits;  // of a tile of 16 inputs and 64 outputs: 4 or 8
  const int64_t words = a.rows * a.cols / in_word;
  const int64_t tiles_n = a.rows / 64;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < words; i += step) {
    const int w = static_cast<int>(i % words_of_lane);
    const int lane = static_cast<int>(i / words_of_lane % 32);
    const int64_t tile = i / words_of_lane / 32;
    const int64_t n0 = tile % tiles_n * 64 + w * (64 / words_of_lane) + lane / 4;
    const int64_t k0 = tile / tiles_n * 16 + lane % 4 * 2;
    uint32_t word = 0;
    for (int j = 0; j < in_word; ++j) {
      // 4 bits: nibbles 2 and 3 of each four are of the output 8 further on.
      const int64_t n = n0 + (a.bits == 4 ? j / 2 % 2 * 8 : 0);
      const int64_t k = k0 + j / (in_word / 2) + j % 2 * 8;
      word |= code_at(a, input_of(a, k), n) << j * a.bits;
    }
    a.to[i] = word;
  }
}

__global__ void __launch_bounds__(kThreads) narrow(const __grid_constant__ NibbleCodes a) {
  begin_operation();
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < a.count; i += step) {
    if (a.bytes != nullptr) {
      a.to[i] = static_cast<uint8_t>(a.bytes[i] << 4 | a.bytes[i] >> 4);
      continue;
    }
    const auto low = static_cast<uint32_t>(a.words[2 * i]);
    const auto high = static_cast<uint32_t>(a.words[2 * i + 1]);
    if ((low | high) > 15) *a.fault = 1;
    a.to[i] = static_cast<uint8_t>((low & 15) | high << 4);
  }
}

}  // namespace

Status repack_marlin(const MarlinRepack& repack, Stream stream) {
  if (repack.fault != nullptr) cudaMemsetAsync(repack.fault, 0, sizeof *repack.fault, stream);
  launch(to_marlin, grid_for(repack.rows * repack.cols * repack.bits / 32), stream, repack);
  return launched("repack");
}

Status narrow_nibbles(const NibbleCodes& codes, Stream stream) {
  if (codes.count == 0) return {};
  if (codes.fault != nullptr) cudaMemsetAsync(codes.fault, 0, sizeof *codes.fault, stream);
  launch(narrow, grid_for(codes.count), stream, codes);
  return launched("codes of 4 bits");
}

}  // namespace subbyte::cuda
