#pragma once
// The compiled kernels of one kind of weights and one type of activations.

#include "kernels/cuda/packed_weights.h"

namespace subbyte::cuda {

/// gemv: 8 tokens at a time, narrow8, narrow16, narrow64: so many, any GPU from sm_80 on. wide64,
/// wide128, wide256: tokens by 128 outputs, Hopper only.
enum class KernelKind : uint8_t {
  kGemv,
  kNarrow8,
  kNarrow16,
  kNarrow64,
  kWide64,
  kWide128,
  kWide256,
};
inline constexpr int kKernelKinds = 7;

struct KernelSet {
  const void* kernels[kKernelKinds];  // by KernelKind
};

/// nullptr: there is none.
const KernelSet* find_kernels(const PackedFormat& format, Number number);

}  // namespace subbyte::cuda
