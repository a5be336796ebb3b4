#pragma once
// The compiled kernels of one kind of weights and one type of activations.

#include <cstdint>

namespace subbyte::cuda {

/// By tokens of a CTA: gemv has 8, small_m8, small_m16 and small_m64 have as many as the name says,
/// on any GPU from sm_80 on; large_m16 to large_m256 have that many tokens by 128 outputs, on
/// Hopper only, and so has panel16, which is of experts alone.
enum class KernelKind : uint8_t {
  kGemv,
  kSmallM8,
  kSmallM16,
  kSmallM64,
  kLargeM16,
  kLargeM32,
  kLargeM64,
  kLargeM128,
  kLargeM256,
  kPanel16,
};
/// Kinds that single matrices have.
inline constexpr int kKernelKinds = 9;

constexpr bool is_large_m(KernelKind kind) {
  return kind >= KernelKind::kLargeM16 && kind <= KernelKind::kLargeM256;
}

struct KernelSet {
  const void* kernels[kKernelKinds];  // by KernelKind
};

}  // namespace subbyte::cuda
