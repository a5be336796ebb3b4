#include "kernels/cuda/packed_facts.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>

#include "formats/format.h"
#include "kernels/cuda/common/elements.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxCtas = 1024;

/// What the kernel finds. All begins as zero: where the least is wanted, the largest complement is.
struct Found {
  uint32_t scales_seen[8];  // codes of a byte
  uint32_t largest_scale;   // the bits of the finite magnitude of wider ones
  uint32_t largest_offset;
  uint32_t largest_input;
  uint32_t unused;
  unsigned long long large_zero;  // complement of its index times 2^16, and it
  unsigned long long bad_input;   // complement of one
};
static_assert(sizeof(Found) == 64);

/// Numbers of one, two or four bytes at any address.
struct Codes {
  const uint8_t* at;
  int64_t count;
  int width;
  uint32_t infinity;  // of a magnitude

  __device__ uint32_t code(int64_t i) const {
    const uint8_t* const from = at + i * width;
    uint32_t code = from[0];
    if (width > 1) code |= from[1] << 8;
    if (width > 2) code |= from[2] << 16 | uint32_t{from[3]} << 24;
    return code;
  }
  /// Without the sign; 0 if it is not finite.
  __device__ uint32_t magnitude(int64_t i) const {
    const uint32_t bits = code(i) & (0xffffffffu >> (33 - 8 * width));
    return bits < infinity ? bits : 0;
  }
};

/// Numbers of two levels: of each row a byte for each group, then an f16 for each superblock.
struct LevelCodes {
  const uint8_t* at;
  int64_t groups;
  int64_t superblocks;
  int groups_of_superblock;
  int zero;       // of the integers
  int64_t count;  // superblocks of all rows; 0: there are none

  /// The bits of the largest magnitude of a superblock; 0 if it is not finite.
  __device__ uint32_t magnitude(int64_t i) const {
    const int64_t row = i / superblocks;
    const int64_t superblock = i - row * superblocks;
    const uint8_t* const integers = at + row * (groups + 2 * superblocks);
    const uint8_t* const factor = integers + groups + 2 * superblock;
    const int64_t begin = superblock * groups_of_superblock;
    const int64_t end = min(begin + groups_of_superblock, groups);
    int largest = 0;
    for (int64_t g = begin; g < end; ++g) largest = max(largest, abs(integers[g] - zero));
    const float scale = to_float(Element::kF16, static_cast<uint16_t>(factor[0] | factor[1] << 8));
    const uint32_t bits = __float_as_uint(fabsf(scale) * static_cast<float>(largest));
    return bits < 0x7f800000 ? bits : 0;
  }
};

struct FactsArguments {
  Codes scales;
  Codes zeros;
  LevelCodes scale_levels;  // or these, instead
  LevelCodes offset_levels;
  bool has_offsets;
  uint32_t most_zero;
  const uint32_t* order;
  uint32_t cols;
  uint32_t* inputs_seen;  // a bit each
  Found* found;
};

__device__ void keep_largest(uint32_t* to, uint32_t value) {
  const uint32_t largest = __reduce_max_sync(~0u, value);
  if (threadIdx.x % 32 == 0 && largest > 0) atomicMax(to, largest);
}

__device__ void look_at_input(const FactsArguments& a, uint32_t input) {
  const uint32_t bit = 1u << input % 32;
  if (input >= a.cols || (atomicOr(&a.inputs_seen[input / 32], bit) & bit) != 0) {
    atomicMax(&a.found->bad_input, ~static_cast<unsigned long long>(input));
  }
}

__device__ void look_at_zeros(const FactsArguments& a, int64_t first, int64_t step) {
  uint32_t largest_offset = 0;
  for (int64_t i = first; i < a.zeros.count; i += step) {
    if (a.has_offsets) {
      largest_offset = max(largest_offset, a.zeros.magnitude(i));
    } else if (const uint32_t zero = a.zeros.code(i); zero > a.most_zero) {
      atomicMax(&a.found->large_zero, ~(static_cast<unsigned long long>(i) << 16 | zero));
    }
  }
  __syncwarp();
  keep_largest(&a.found->largest_offset, largest_offset);
}

__device__ uint32_t largest_of(const LevelCodes& numbers, int64_t first, int64_t step) {
  uint32_t largest = 0;
  for (int64_t i = first; i < numbers.count; i += step) {
    largest = max(largest, numbers.magnitude(i));
  }
  __syncwarp();
  return largest;
}

__global__ void __launch_bounds__(kThreads) find(const __grid_constant__ FactsArguments a) {
  __shared__ uint32_t seen[8];
  if (threadIdx.x < 8) seen[threadIdx.x] = 0;
  __syncthreads();
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  uint32_t largest = 0;
  for (int64_t i = first; i < a.scales.count; i += step) {
    if (a.scales.width > 1) {
      largest = max(largest, a.scales.magnitude(i));
      continue;
    }
    const uint32_t code = a.scales.code(i);
    // Most codes have been seen before: then nothing waits.
    if ((*static_cast<volatile uint32_t*>(&seen[code / 32]) >> code % 32 & 1) == 0) {
      atomicOr(&seen[code / 32], 1u << code % 32);
    }
  }
  __syncwarp();
  keep_largest(&a.found->largest_scale, max(largest, largest_of(a.scale_levels, first, step)));
  keep_largest(&a.found->largest_offset, largest_of(a.offset_levels, first, step));
  look_at_zeros(a, first, step);
  uint32_t largest_input = 0;
  if (a.order != nullptr) {
    for (int64_t i = first; i < a.cols; i += step) {
      largest_input = max(largest_input, a.order[i]);
      look_at_input(a, a.order[i]);
    }
  }
  __syncwarp();
  keep_largest(&a.found->largest_input, largest_input);
  __syncthreads();
  if (threadIdx.x < 8 && seen[threadIdx.x] != 0) {
    atomicOr(&a.found->scales_seen[threadIdx.x], seen[threadIdx.x]);
  }
}

uint32_t infinity_of(const FormatInfo& type) {
  return static_cast<uint32_t>(type.encode(INFINITY, Rounding::kNearestEven));
}

LevelCodes levels_of(const MatrixView& matrix, std::span<const std::byte> numbers,
                     const FormatInfo& integer) {
  const int64_t superblocks = num_superblocks(matrix.cols);
  return {reinterpret_cast<const uint8_t*>(numbers.data()),
          matrix.groups(),
          superblocks,
          static_cast<int>(kSuperblock / matrix.group_size()),
          integer.min < 0 ? 1 << (integer.bits - 1) : 0,
          matrix.rows * superblocks};
}

FactsArguments arguments_of(const MatrixView& matrix, std::byte* memory) {
  FactsArguments a = {};
  const WeightFormat& format = matrix.format;
  const int64_t groups = matrix.rows * matrix.groups();
  const FormatInfo& scale = info(format.scale);
  if (has_two_levels(format.scale)) {
    a.scale_levels = levels_of(matrix, matrix.scales, scale);
  } else {
    a.scales = {reinterpret_cast<const uint8_t*>(matrix.scales.data()), groups, scale.bits / 8,
                scale.bits > 8 ? infinity_of(scale) : 0};
  }
  if (has_two_levels(format.zero)) {
    a.offset_levels = levels_of(matrix, matrix.zeros, info(offset_format(format.zero)));
  } else if (const int width = zero_bytes(format.zero); width > 0) {
    a.has_offsets = is_offset(format.zero);
    a.zeros = {reinterpret_cast<const uint8_t*>(matrix.zeros.data()), groups, width,
               a.has_offsets ? infinity_of(info(offset_format(format.zero))) : 0};
  }
  a.most_zero = 1u << info(format.element).bits;
  a.order = matrix.input_order.empty() ? nullptr : matrix.input_order.data();
  a.cols = static_cast<uint32_t>(matrix.cols);
  a.found = reinterpret_cast<Found*>(memory);
  a.inputs_seen = reinterpret_cast<uint32_t*>(memory + sizeof(Found));
  return a;
}

MatrixFacts facts_of(const Found& found, const MatrixView& matrix) {
  MatrixFacts facts;
  gpu::PackedFacts& packed = facts.packed;
  const FormatInfo& scale = info(matrix.format.scale);
  std::array<uint32_t, 8> seen{};
  std::copy(std::begin(found.scales_seen), std::end(found.scales_seen), seen.begin());
  if (has_two_levels(matrix.format.scale)) {
    packed.largest_scale = std::bit_cast<float>(found.largest_scale);
  } else {
    packed.largest_scale =
        scale.bits == 8 ? gpu::largest_seen(seen, scale) : scale.decode(found.largest_scale);
  }
  if (has_two_levels(matrix.format.zero)) {
    packed.largest_offset = std::bit_cast<float>(found.largest_offset);
  } else if (is_offset(matrix.format.zero)) {
    packed.largest_offset = info(offset_format(matrix.format.zero)).decode(found.largest_offset);
  }
  if (found.large_zero != 0) {
    packed.large_zero = static_cast<int64_t>(~found.large_zero >> 16);
    packed.large_zero_value = static_cast<uint32_t>(~found.large_zero & 0xffff);
  }
  packed.largest_input = found.largest_input;
  if (found.bad_input != 0) facts.bad_input = static_cast<int64_t>(~found.bad_input);
  return facts;
}

}  // namespace

int64_t facts_bytes(int64_t cols) {
  return static_cast<int64_t>(sizeof(Found)) + (cols + 31) / 32 * 4;
}

Result<MatrixFacts> find_facts(const MatrixView& matrix, std::byte* memory, Stream stream) {
  const FactsArguments a = arguments_of(matrix, memory);
  Found found = {};
  const int64_t size = std::max<int64_t>({matrix.rows * matrix.groups(), matrix.cols, 1});
  const auto ctas = static_cast<unsigned>(std::min((size + kThreads - 1) / kThreads, kMaxCtas));
  cudaError_t error = cudaMemsetAsync(memory, 0, facts_bytes(matrix.cols), stream);
  if (error == cudaSuccess) {
    find<<<ctas, kThreads, 0, stream>>>(a);
    error = cudaGetLastError();
  }
  if (error == cudaSuccess) {
    error = cudaMemcpyAsync(&found, memory, sizeof found, cudaMemcpyDeviceToHost, stream);
  }
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  if (error == cudaSuccess) return facts_of(found, matrix);
  return Error{"cuda.launch",
               std::string("looking at scales and zero points: ") + cudaGetErrorString(error)};
}

}  // namespace subbyte::cuda
