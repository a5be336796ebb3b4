#pragma once
// The compiled kernels of experts for one kind of weights and one type of activations.

namespace subbyte::cuda {

struct ExpertKernels {
  const void* small_m8;
  const void* small_m16;
  const void* small_m64;
  const void* large_m128;
  const void* large_m256;
  const void* panel16;  // nullptr: these weights have none
};

}  // namespace subbyte::cuda
