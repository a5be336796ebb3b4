#pragma once
// Single keys of the cache, of which there is one head.

#include <bit>
#include <cstring>
#include <span>

#include "base/float16.h"
#include "base/operands.h"
#include "kernels/kv_e4m3.h"
#include "ops/kv_pool.h"

namespace subbyte {

/// Where the key of a position begins in its page, and its scale where the cache has scales.
struct KeyPlace {
  const std::byte* key;
  const std::byte* scale;
};

inline KeyPlace place_of(const KvLayer& layer, std::span<const int32_t> pages, int64_t position,
                         int64_t dim) {
  const int64_t key_bytes = dim * element_bytes(layer.element);
  const std::byte* const run =
      layer.pages + pages[position / kPagePositions] * layer.page_bytes + layer.layer_begin;
  const int64_t at = position % kPagePositions;
  return {run + at * key_bytes, run + kPagePositions * key_bytes + at};
}

template <class Bits>
Bits bits_at(const std::byte* from, int64_t i) {
  Bits bits;
  std::memcpy(&bits, from + i * static_cast<int64_t>(sizeof bits), sizeof bits);
  return bits;
}

inline void read_key(const KvLayer& layer, const KeyPlace& place, float* out, int64_t dim) {
  for (int64_t i = 0; i < dim; ++i) {
    switch (layer.element) {
      case Element::kF32:
        out[i] = bits_at<float>(place.key, i);
        break;
      case Element::kF16:
        out[i] = to_float(Float16{bits_at<uint16_t>(place.key, i)});
        break;
      case Element::kBF16:
        out[i] = to_float(BFloat16{bits_at<uint16_t>(place.key, i)});
        break;
      default:
        out[i] = to_float(Float16{e4m3::f16_bits(static_cast<uint8_t>(place.key[i]))}) *
                 std::bit_cast<float>(e4m3::factor_bits(static_cast<uint32_t>(*place.scale)));
    }
  }
}

}  // namespace subbyte
