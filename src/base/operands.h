#pragma once
// Types that the operations of a step, the backends and the kernels of every machine share.

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/host_device.h"

namespace subbyte {

/// The type of a number in memory. Keys and values alone are stored as kE4M3, with scales
/// (kernels/kv_e4m3.h).
enum class Element : uint8_t { kF32, kF16, kBF16, kE4M3 };
inline constexpr int kNumElements = 4;

SUBBYTE_HOST_DEVICE constexpr int element_bytes(Element element) {
  return element == Element::kF32 ? 4 : element == Element::kE4M3 ? 1 : 2;
}

/// The positions of a page of the cache of keys and values.
inline constexpr int kPagePositions = 128;

/// The keys and values of one layer. Page p begins at pages + p * page_bytes; in it the keys of
/// head h begin layer_begin + 2 * h * run_bytes bytes later, [kPagePositions][head_dim], and then
/// the scales of kE4M3, [kPagePositions] of one byte. The values of the head follow run_bytes after
/// its keys in the same way.
struct KvLayer {
  std::byte* pages = nullptr;
  int64_t page_bytes = 0;
  int64_t layer_begin = 0;
  int64_t run_bytes = 0;
  Element element = Element::kF32;
};

/// Gate between the two products of an expert: with g = min(gate, limit) and u = clamp(up, -limit,
/// limit), g / (1 + exp(-alpha g)) * (u + up_offset). As it is, the usual SwiGLU: silu(gate) * up.
struct SwiGLU {
  float alpha = 1;
  float limit = INFINITY;
  float up_offset = 0;

  bool operator==(const SwiGLU&) const = default;
};

/// The constants of the clamped SwiGLU of transformers, models/gpt_oss.
inline constexpr SwiGLU kUsualClamp = {1.702F, 7, 1};

}  // namespace subbyte
