#include "kernels/cuda/layouts/int4_operands.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "kernels/cuda/common/elements.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxCtas = 1 << 16;
constexpr int kMiddle = 8;
constexpr int kMaxZero = 16;

unsigned ctas_for(int64_t count) {
  return static_cast<unsigned>(std::clamp<int64_t>((count + kThreads - 1) / kThreads, 1, kMaxCtas));
}

/// The nibble, from the begin of the buffer, of output n and input k.
__device__ int64_t cpu_nibble(const Int4Codes& c, int64_t n, int64_t k, int full, bool halves) {
  const int64_t first = n / full * full;
  const int64_t width = min(static_cast<int64_t>(full), c.rows - first);
  const int64_t r = n - first;
  const int64_t row = 2 * (first * c.cols / 2 + k * width / 2);
  if (halves && width == full) return row + r % (width / 2) * 2 + r / (width / 2);
  return row + r;
}

__device__ int64_t tile_nibble(const Int4Codes& c, int64_t n, int64_t k, int tiles) {
  const int64_t inputs = 16 * tiles;
  const int64_t tile = n / 8 * (c.cols / inputs) + k / inputs;
  const int64_t lane = n % 8 * 4 + k % 8 / 2;
  const int64_t word = (tile * 32 + lane) * (tiles / 2) + k % inputs / 32;
  return word * 8 + k % 2 * 4 + k % 32 / 8;
}

__device__ int64_t nibble_of(const Int4Codes& c, int64_t n, int64_t k) {
  switch (c.order) {
    case Int4Order::kHalves64:
      return cpu_nibble(c, n, k, 64, true);
    case Int4Order::kHalves32:
      return cpu_nibble(c, n, k, 32, true);
    case Int4Order::kPairs32:
      return cpu_nibble(c, n, k, 32, false);
    case Int4Order::kPairs16:
      return cpu_nibble(c, n, k, 16, false);
    case Int4Order::kTiles2:
      return tile_nibble(c, n, k, 2);
    case Int4Order::kTiles4:
      return tile_nibble(c, n, k, 4);
    case Int4Order::kTiles8:
      return tile_nibble(c, n, k, 8);
    default:
      return n * c.cols + k;
  }
}

/// A thread has two codes, a canonical byte.
__global__ void __launch_bounds__(kThreads)
    gather(uint8_t* codes, const uint8_t* from, const __grid_constant__ Int4Codes c) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < c.rows * c.cols / 2;
       i += step) {
    const int64_t n = 2 * i / c.cols;
    const int64_t k = 2 * i - n * c.cols;
    const int64_t low = nibble_of(c, n, k);
    const int64_t high = nibble_of(c, n, k + 1);
    const uint32_t code = from[low / 2] >> low % 2 * 4 & 0xf;
    codes[i] = static_cast<uint8_t>(code | (from[high / 2] >> high % 2 * 4 & 0xf) << 4);
  }
}

/// The words of `to` are zero before.
__global__ void __launch_bounds__(kThreads)
    scatter(uint32_t* to, const uint8_t* codes, const __grid_constant__ Int4Codes c) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < c.rows * c.cols / 2;
       i += step) {
    const int64_t n = 2 * i / c.cols;
    const int64_t k = 2 * i - n * c.cols;
    for (int h = 0; h < 2; ++h) {
      const int64_t nibble = nibble_of(c, n, k + h);
      const uint32_t code = codes[i] >> 4 * h & 0xfu;
      atomicOr(&to[nibble / 8], code << nibble % 8 * 4);
    }
  }
}

/// Keeps the least index that is refused: the complement is the largest.
__device__ void refuse(unsigned long long* fault, int64_t index, bool is_zero) {
  atomicMax(fault, ~(static_cast<unsigned long long>(index) << 1 | (is_zero ? 1u : 0u)));
}

/// (8 - zero) s, whose product is exact in a double, rounded once: of f16 and bf16 it is exact
/// in a float, too. Adding 0 makes -0 a 0.
__device__ float offset_of(Element type, float scale, int zero) {
  return rounded(type, static_cast<float>(static_cast<double>(kMiddle - zero) * scale + 0.0));
}

/// The zero point whose offset is z, or -1.
__device__ int zero_of(Element type, float scale, float z) {
  if (scale == 0) return z == 0 ? kMiddle : -1;
  const double nearest = kMiddle - rint(static_cast<double>(z) / scale);
  if (!(nearest >= 0 && nearest <= kMaxZero)) return -1;
  const int zero = static_cast<int>(nearest);
  return offset_of(type, scale, zero) == z ? zero : -1;
}

__global__ void __launch_bounds__(kThreads)
    unpack(const __grid_constant__ CanonicalGroups to, const __grid_constant__ Int4Groups from,
           unsigned long long* fault) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < from.rows * from.groups;
       i += step) {
    const int64_t n = i / from.groups;
    const int64_t at = ((i - n * from.groups) * from.rows + n) * from.step;
    const float scale = load_element(from.type, from.scales, at);
    if (from.type == Element::kF32) {
      reinterpret_cast<uint32_t*>(to.scales)[i] = static_cast<const uint32_t*>(from.scales)[at];
    } else {
      reinterpret_cast<uint16_t*>(to.scales)[i] = static_cast<const uint16_t*>(from.scales)[at];
    }
    if (!from.has_offsets) {
      reinterpret_cast<uint8_t*>(to.zeros)[i] = static_cast<const uint8_t*>(from.zeros)[at];
      continue;
    }
    const int zero = zero_of(from.type, scale, load_element(from.type, from.zeros, at));
    if (zero < 0) refuse(fault, i, true);
    reinterpret_cast<uint8_t*>(to.zeros)[i] = static_cast<uint8_t>(max(zero, 0));
    if (to.offsets != nullptr) {
      reinterpret_cast<uint16_t*>(to.offsets)[i] = static_cast<const uint16_t*>(from.zeros)[at];
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    pack(const __grid_constant__ Int4Groups to, const __grid_constant__ CanonicalGroups from,
         int max_zero, unsigned long long* fault) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < to.rows * to.groups;
       i += step) {
    const int64_t n = i / to.groups;
    const int64_t at = ((i - n * to.groups) * to.rows + n) * to.step;
    const float scale = rounded(to.type, load_element(from.type, from.scales, i));
    store_element(to.type, to.scales, at, scale);
    if (from.offsets != nullptr) {  // of the same type
      static_cast<uint16_t*>(to.zeros)[at] = reinterpret_cast<const uint16_t*>(from.offsets)[i];
      continue;
    }
    const int zero =
        from.zeros == nullptr ? kMiddle : reinterpret_cast<const uint8_t*>(from.zeros)[i];
    if (zero > max_zero) refuse(fault, i, true);
    if (!to.has_offsets) {
      static_cast<uint8_t*>(to.zeros)[at] = static_cast<uint8_t>(zero);
      if (!isfinite(scale)) refuse(fault, i, false);
      continue;
    }
    const float z = offset_of(to.type, scale, zero);
    if (!isfinite(scale) || !isfinite(z)) refuse(fault, i, false);
    store_element(to.type, to.zeros, at, z);
  }
}

Status failure(cudaError_t error) {
  if (error == cudaSuccess) return {};
  return Error{"cuda.launch", std::string("int4 operands: ") + cudaGetErrorString(error)};
}

template <class Launch>
Result<Int4Fault> run_groups(std::byte* memory, Stream stream, const Launch& launch) {
  auto* const fault = reinterpret_cast<unsigned long long*>(memory);
  unsigned long long found = 0;
  cudaError_t error = cudaMemsetAsync(memory, 0, sizeof found, stream);
  if (error == cudaSuccess) {
    launch(fault);
    error = cudaGetLastError();
  }
  if (error == cudaSuccess) {
    error = cudaMemcpyAsync(&found, memory, sizeof found, cudaMemcpyDeviceToHost, stream);
  }
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  SUBBYTE_CHECK(failure(error));
  if (found == 0) return Int4Fault();
  return Int4Fault{static_cast<int64_t>(~found >> 1), (~found & 1) != 0};
}

}  // namespace

Status unpack_int4(std::byte* codes, const std::byte* from, const Int4Codes& shape, Stream stream) {
  gather<<<ctas_for(shape.rows * shape.cols / 2), kThreads, 0, stream>>>(
      reinterpret_cast<uint8_t*>(codes), reinterpret_cast<const uint8_t*>(from), shape);
  return failure(cudaGetLastError());
}

Status pack_int4(std::byte* to, const std::byte* codes, const Int4Codes& shape, Stream stream) {
  const int64_t bytes = shape.rows * shape.cols / 2;
  SUBBYTE_CHECK(failure(cudaMemsetAsync(to, 0, static_cast<std::size_t>(bytes), stream)));
  scatter<<<ctas_for(bytes), kThreads, 0, stream>>>(reinterpret_cast<uint32_t*>(to),
                                                    reinterpret_cast<const uint8_t*>(codes), shape);
  return failure(cudaGetLastError());
}

Result<Int4Fault> unpack_groups(const CanonicalGroups& to, const Int4Groups& from,
                                std::byte* memory, Stream stream) {
  return run_groups(memory, stream, [&](unsigned long long* fault) {
    unpack<<<ctas_for(from.rows * from.groups), kThreads, 0, stream>>>(to, from, fault);
  });
}

Result<Int4Fault> pack_groups(const Int4Groups& to, const CanonicalGroups& from, int max_zero,
                              std::byte* memory, Stream stream) {
  return run_groups(memory, stream, [&](unsigned long long* fault) {
    pack<<<ctas_for(to.rows * to.groups), kThreads, 0, stream>>>(to, from, max_zero, fault);
  });
}

}  // namespace subbyte::cuda
