#pragma once
// Blocks of kbit and of vectors (codebook/kbit.h, vq.h) in the memory of a GPU, to the bits of
// the host. Each function is launches on the stream: nothing allocates, nothing waits.

#include <span>

#include "device/gpu.h"
#include "kernels/cuda/codebook/kbit.h"

namespace subbyte::device {

/// Buffers of the GPU, and the codebook on the host.
struct KbitBlocks {
  cuda::KbitBuffers buffers;
  std::span<const float> codebook;    // 2^k numbers of kbit
  std::span<const uint16_t> vectors;  // [256][p] in f16
  int p = 0;                          // numbers of a vector; 0: kbit
};

/// `count` numbers to flat codes. Codes: kbit.codebook, vq.codebook, cuda.*.
Status quantize_kbit(const void* numbers, Format number, int64_t count, const KbitBlocks& to,
                     bool nearest_scales, const Gpu& gpu);

/// To W [rows][cols] of `number`. Codes: kbit.codebook, vq.codebook, cuda.*.
Status dequantize_kbit(const KbitBlocks& from, int64_t rows, int64_t cols, bool is_tiled,
                       Format number, void* out, const Gpu& gpu);

}  // namespace subbyte::device
