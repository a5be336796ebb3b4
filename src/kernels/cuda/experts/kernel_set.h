#pragma once
// The compiled kernels of experts for one kind of weights and one type of activations.

namespace subbyte::cuda {

inline constexpr int kExpertKernelKinds = 3;

struct ExpertKernels {
  const void* kernels[kExpertKernelKinds];  // those of small_m8, small_m16, small_m64
};

}  // namespace subbyte::cuda
