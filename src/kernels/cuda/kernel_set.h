#pragma once
// The compiled kernels of one kind of weights and one type of activations.

#include "kernels/cuda/common/arguments.h"
#include "kernels/gpu/packed_weights.h"

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

/// A line of weights.def: decoder, bits of a code, groups of a tile, levels of scales.
struct WeightKind {
  DecoderKind decoder;
  int bits;
  int groups;
  int levels;

  constexpr bool operator==(const WeightKind&) const = default;
};

constexpr WeightKind kind_of(const PackedFormat& format) {
  return {format.decoder, format.bits, format.groups_per_tile, in_superblocks(format) ? 2 : 1};
}

struct KernelSet {
  const void* kernels[kKernelKinds];  // by KernelKind
};

/// nullptr if there is none.
const KernelSet* find_kernels(const PackedFormat& format, Number number);

}  // namespace subbyte::cuda
