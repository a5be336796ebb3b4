#pragma once
// What the files of kbit share on the host.

#include <cuda_runtime.h>

#include <string>

#include "kernels/cuda/ops/kbit.h"

namespace subbyte::cuda::kbit {

inline constexpr int kBlock = 32;
// 32 bits hold what is added to addresses for rows and tiles.
inline constexpr int64_t kMaxCols = (1 << 24) - 512;
inline constexpr int64_t kMaxRows = 1 << 26;

inline Status wrong_shape(const char* what, const std::string& expected, int64_t found) {
  return Error{"cuda.shape",
               std::string(what) + ": expected " + expected + ", found " + std::to_string(found)};
}

inline Status launched(const char* what) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return {};
  return Error{"cuda.launch", std::string(what) + ": " + cudaGetErrorString(error)};
}

inline Status check_buffers(const char* what, const KbitBuffers& b, int64_t blocks) {
  if (b.k < 2 || b.k > 5) return wrong_shape(what, "2 to 5 bits", b.k);
  if (b.packed_words < blocks * b.k) {
    return wrong_shape(what, std::to_string(blocks * b.k) + " words of codes or more",
                       b.packed_words);
  }
  if (b.absmax_elements >= blocks) return {};
  return wrong_shape(what, std::to_string(blocks) + " scales or more", b.absmax_elements);
}

/// Zeros after the blocks.
inline void pad(const KbitBuffers& to, int64_t blocks, Stream stream) {
  const int64_t words = to.packed_words - blocks * to.k;
  const int64_t scales = to.absmax_elements - blocks;
  if (words > 0) cudaMemsetAsync(to.packed + blocks * to.k, 0, words * 4, stream);
  if (scales > 0) {
    cudaMemsetAsync(static_cast<uint8_t*>(to.absmax) + blocks, 0, scales, stream);
  }
}

/// Of 2, 3, 4 or 5 bits.
template <class Kernel>
Kernel by_bits(int bits, const Kernel (&kernels)[4]) {
  return kernels[bits - 2];
}

}  // namespace subbyte::cuda::kbit
