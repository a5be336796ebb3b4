#pragma once
// The Hadamard rotation of runs of numbers, to the bits of codebook/hadamard.h.

#include "base/status.h"
#include "kernels/cuda/common/elements.h"

namespace subbyte::cuda {

/// Each run x becomes H S x / sqrt(dim), in place: sums in float32, rounded once.
struct HadamardCall {
  void* data = nullptr;             // [runs][dim]
  const uint32_t* signs = nullptr;  // bit i % 32 of word i / 32 negates number i; nullptr: none
  Element element = Element::kF16;  // or kBF16
  int64_t runs = 0;
  int32_t dim = 0;  // a power of two from 32 to 8192
};

/// One launch, which allocates nothing. Code cuda.launch.
SUBBYTE_BY_NVCC Status run_hadamard(const HadamardCall& call, Stream stream);

}  // namespace subbyte::cuda
