#include "kernels/cuda/layouts/recast.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <string>

#include "formats/format.h"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxCtas = 1 << 16;

unsigned ctas_for(int64_t count) {
  return static_cast<unsigned>(std::clamp<int64_t>((count + kThreads - 1) / kThreads, 1, kMaxCtas));
}

/// The elements of a thread of a grid.
struct Stride {
  int64_t first;
  int64_t step;
};
__device__ Stride stride_of_thread() {
  return {int64_t{blockIdx.x} * kThreads + threadIdx.x, int64_t{gridDim.x} * kThreads};
}

Status failure(const char* what, cudaError_t error) {
  if (error == cudaSuccess) return {};
  return Error{"cuda.launch", std::string(what) + ": " + cudaGetErrorString(error)};
}

/// What the sort finds; zero: nothing is wrong.
struct Sorted {
  unsigned long long bad_index;  // complement of the bits of an index that is no group
  unsigned long long bad_group;  // complement of a group times 2^32, and its count
  uint32_t is_unsorted;
  uint32_t unused;
};

struct SortArguments {
  const int32_t* indices;
  uint32_t* order;
  uint32_t* counts;  // [groups], from 0
  uint32_t* slots;   // [cols]: the inputs of a group in any order, group after group
  Sorted* found;
  uint32_t cols;
  uint32_t groups;
  uint32_t group_size;

  __device__ uint32_t end(uint32_t group) const { return min(cols, (group + 1) * group_size); }
};

__global__ void __launch_bounds__(kThreads) collect(const __grid_constant__ SortArguments a) {
  const Stride stride = stride_of_thread();
  for (int64_t k = stride.first; k < a.cols; k += stride.step) {
    const auto group = static_cast<uint32_t>(a.indices[k]);
    if (group >= a.groups) {
      atomicMax(&a.found->bad_index, ~static_cast<unsigned long long>(group));
      continue;
    }
    const uint32_t place = atomicAdd(&a.counts[group], 1u);
    const uint32_t begin = group * a.group_size;
    if (place < a.end(group) - begin) a.slots[begin + place] = static_cast<uint32_t>(k);
  }
}

/// Each input goes to its rank among those of its group, which costs a group's length: groups are
/// short.
__global__ void __launch_bounds__(kThreads) rank(const __grid_constant__ SortArguments a) {
  const Stride stride = stride_of_thread();
  for (int64_t i = stride.first; i < a.cols; i += stride.step) {
    const uint32_t group = static_cast<uint32_t>(i) / a.group_size;
    const uint32_t begin = group * a.group_size;
    const uint32_t end = a.end(group);
    if (i == begin && a.counts[group] != end - begin) {
      atomicMax(&a.found->bad_group,
                ~(static_cast<unsigned long long>(group) << 32 | a.counts[group]));
    }
    const uint32_t input = a.slots[i];
    uint32_t place = begin;
    for (uint32_t j = begin; j < end; ++j) place += a.slots[j] < input ? 1 : 0;
    if (place < end) a.order[place] = input;
    if (place != input) atomicOr(&a.found->is_unsorted, 1u);
  }
}

/// Codes of a row as a stream of bits.
struct Rows {
  const uint8_t* codes;
  int64_t rows;
  int64_t row_bytes;
  uint32_t cols;
  int bits;

  __device__ uint32_t code(int64_t row, uint32_t col) const {
    const int64_t bit = int64_t{col} * bits;
    const uint8_t* const from = codes + row * row_bytes + bit / 8;
    uint32_t both = from[0];
    if (bit % 8 + bits > 8) both |= from[1] << 8;
    return both >> bit % 8 & ((1u << bits) - 1);
  }
};

/// A thread has eight codes: whole bytes, but for the end of a row.
__global__ void __launch_bounds__(kThreads)
    reorder(uint8_t* to, const __grid_constant__ Rows rows, const uint32_t* order) {
  const Stride stride = stride_of_thread();
  const int64_t chunks = (rows.cols + 7) / 8;
  for (int64_t i = stride.first; i < rows.rows * chunks; i += stride.step) {
    const int64_t row = i / chunks;
    const auto first = static_cast<uint32_t>(i % chunks * 8);
    const uint32_t count = min(8u, rows.cols - first);
    uint64_t codes = 0;
    for (uint32_t j = 0; j < count; ++j) {
      codes |= uint64_t{rows.code(row, order[first + j])} << j * rows.bits;
    }
    uint8_t* const at = to + row * rows.row_bytes + int64_t{first} / 8 * rows.bits;
    for (uint32_t byte = 0; byte < (count * rows.bits + 7) / 8; ++byte) {
      at[byte] = static_cast<uint8_t>(codes >> 8 * byte);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    widen(uint8_t* to, const __grid_constant__ Rows rows, int added) {
  const Stride stride = stride_of_thread();
  for (int64_t i = stride.first; i < rows.rows * rows.cols; i += stride.step) {
    const int64_t row = i / rows.cols;
    const auto col = static_cast<uint32_t>(i - row * rows.cols);
    to[i] = static_cast<uint8_t>(rows.code(row, col) + added);
  }
}

struct RepeatArguments {
  uint8_t* to;
  const uint8_t* from;
  int64_t rows;
  int64_t to_groups;
  int64_t from_groups;
  int64_t times;
  int to_width;
  int from_width;
};

__global__ void __launch_bounds__(kThreads) repeat(const __grid_constant__ RepeatArguments a) {
  const Stride stride = stride_of_thread();
  for (int64_t i = stride.first; i < a.rows * a.to_groups; i += stride.step) {
    const int64_t group = i % a.to_groups / a.times;
    const uint8_t* const from = a.from + (i / a.to_groups * a.from_groups + group) * a.from_width;
    for (int byte = 0; byte < a.to_width; ++byte) {
      a.to[i * a.to_width + byte] = byte < a.from_width ? from[byte] : 0;
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    find_largest(uint32_t* to, const float* numbers, int64_t count) {
  constexpr uint32_t kInfinity = 0x7f800000;
  const Stride stride = stride_of_thread();
  uint32_t largest = 0;
  for (int64_t i = stride.first; i < count; i += stride.step) {
    const uint32_t bits = __float_as_uint(numbers[i]) & 0x7fffffff;
    largest = max(largest, bits <= kInfinity ? bits : 0);
  }
  __syncwarp();
  largest = __reduce_max_sync(~0u, largest);
  if (threadIdx.x % 32 == 0) atomicMax(to, largest);
}

Rows rows_of(const MatrixView& matrix) {
  return {reinterpret_cast<const uint8_t*>(matrix.codes.data()), matrix.rows, matrix.row_bytes(),
          static_cast<uint32_t>(matrix.cols), info(matrix.format.element).bits};
}

SortedInputs result_of(const Sorted& found) {
  SortedInputs sorted;
  sorted.is_identity = found.is_unsorted == 0;
  if (found.bad_index != 0) {
    sorted.bad_group = static_cast<int32_t>(~found.bad_index);
    sorted.count = -1;
  } else if (found.bad_group != 0) {
    sorted.bad_group = static_cast<int64_t>(~found.bad_group >> 32);
    sorted.count = static_cast<int64_t>(~found.bad_group & 0xffffffff);
  }
  return sorted;
}

}  // namespace

int64_t sort_bytes(int64_t cols, int64_t groups) {
  return static_cast<int64_t>(sizeof(Sorted)) + 4 * (groups + cols);
}

Result<SortedInputs> sort_by_group(uint32_t* order, const int32_t* indices, int64_t cols,
                                   int64_t group_size, std::byte* memory, Stream stream) {
  group_size = std::min(group_size, cols);
  const int64_t groups = (cols + group_size - 1) / group_size;
  SortArguments a = {};
  a.indices = indices;
  a.order = order;
  a.found = reinterpret_cast<Sorted*>(memory);
  a.counts = reinterpret_cast<uint32_t*>(memory + sizeof(Sorted));
  a.slots = a.counts + groups;
  a.cols = static_cast<uint32_t>(cols);
  a.groups = static_cast<uint32_t>(groups);
  a.group_size = static_cast<uint32_t>(group_size);
  Sorted found = {};
  cudaError_t error = cudaMemsetAsync(memory, 0, sort_bytes(cols, groups), stream);
  if (error == cudaSuccess) {
    collect<<<ctas_for(cols), kThreads, 0, stream>>>(a);
    // One group is in its order, and would be ranked for a square of its length.
    if (groups > 1) rank<<<ctas_for(cols), kThreads, 0, stream>>>(a);
    error = cudaGetLastError();
  }
  if (error == cudaSuccess) {
    error = cudaMemcpyAsync(&found, memory, sizeof found, cudaMemcpyDeviceToHost, stream);
  }
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  SUBBYTE_CHECK(failure("sorting the inputs by group", error));
  return result_of(found);
}

Status reorder_codes(std::byte* to, const MatrixView& matrix, const uint32_t* order,
                     Stream stream) {
  const Rows rows = rows_of(matrix);
  const int64_t chunks = matrix.rows * ((matrix.cols + 7) / 8);
  reorder<<<ctas_for(chunks), kThreads, 0, stream>>>(reinterpret_cast<uint8_t*>(to), rows, order);
  return failure("reordering codes", cudaGetLastError());
}

Status widen_codes(std::byte* to, const MatrixView& matrix, int added, Stream stream) {
  const Rows rows = rows_of(matrix);
  widen<<<ctas_for(matrix.rows * matrix.cols), kThreads, 0, stream>>>(
      reinterpret_cast<uint8_t*>(to), rows, added);
  return failure("widening codes", cudaGetLastError());
}

Status repeat_groups(std::byte* to, int to_width, int64_t to_groups, const std::byte* from,
                     int from_width, int64_t from_groups, int64_t times, int64_t rows,
                     Stream stream) {
  const RepeatArguments a = {reinterpret_cast<uint8_t*>(to),
                             reinterpret_cast<const uint8_t*>(from),
                             rows,
                             to_groups,
                             from_groups,
                             times,
                             to_width,
                             from_width};
  repeat<<<ctas_for(rows * to_groups), kThreads, 0, stream>>>(a);
  return failure("repeating scales", cudaGetLastError());
}

Result<float> largest_float(const float* numbers, int64_t count, std::byte* memory, Stream stream) {
  uint32_t bits = 0;
  auto* const to = reinterpret_cast<uint32_t*>(memory);
  cudaError_t error = cudaMemsetAsync(memory, 0, sizeof bits, stream);
  if (error == cudaSuccess) {
    find_largest<<<ctas_for(count), kThreads, 0, stream>>>(to, numbers, count);
    error = cudaGetLastError();
  }
  if (error == cudaSuccess) {
    error = cudaMemcpyAsync(&bits, memory, sizeof bits, cudaMemcpyDeviceToHost, stream);
  }
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  SUBBYTE_CHECK(failure("looking at weights", error));
  return std::bit_cast<float>(bits);
}

}  // namespace subbyte::cuda
