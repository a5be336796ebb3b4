#pragma once
// How the Metal kernels read a packed matrix. One SIMD-group of 32 threads is what a warp is to
// CUDA: its lanes hold the tile of 16 outputs x 64 inputs as tile_order.h has it.

#include "kernels/gpu/decoders.h"
#include "kernels/metal/arguments.h"

namespace subbyte::apple {

/// The buffers of a call (arguments.h).
struct Buffers {
  Arguments arguments;
  device const uint32_t* codes;
  device const uint8_t* scales;
  device const uint8_t* zeros;
  device const uint16_t* codebook;
  device const uint32_t* gather;
  device const uint16_t* x;
  device uint16_t* y;
  threadgroup uint32_t* table;
  threadgroup float* sums;
};

/// Which thread this is.
struct Place {
  int threadgroup_index;
  int simdgroup;  // of the threadgroup
  int lane;
  int simdgroups;
};

/// 16 bits of a half as a float, also where halves that are subnormal are flushed to zero.
inline float half_bits_to_float(uint32_t bits) {
  const uint32_t magnitude = bits & 0x7fff;
  const float subnormal = float(magnitude) * 5.9604645e-8f;  // 2^-24
  const float normal = as_type<float>((magnitude << 13) + (112u << 23));
  const float special = as_type<float>((magnitude << 13) | 0x7f800000u);
  const float value = magnitude < 0x400 ? subnormal : magnitude < 0x7c00 ? normal : special;
  return (bits & 0x8000) != 0 ? -value : value;
}

/// Scale `index`. What is below 2^-126, alone or times Decoder::kGain, may be read as zero: codes 0
/// to 2 of E8M0, 2^-127 to 2^-125, which only blocks of zeros have.
inline float scale_at(device const uint8_t* scales, gpu::ScaleKind kind, int64_t index) {
  switch (kind) {
    case gpu::ScaleKind::kF16:
      return half_bits_to_float(reinterpret_cast<device const uint16_t*>(scales)[index]);
    case gpu::ScaleKind::kBF16:
      return as_type<float>(uint32_t(reinterpret_cast<device const uint16_t*>(scales)[index])
                            << 16);
    case gpu::ScaleKind::kE8M0: {
      const uint32_t code = scales[index];
      return as_type<float>(code == 0 ? 0x00400000u : code == 255 ? 0x7fc00000u : code << 23);
    }
    case gpu::ScaleKind::kE4M3: {
      const uint32_t code = scales[index] & 0x7f;
      const float subnormal = float(code) * 0.001953125f;  // 2^-9
      const float normal = as_type<float>((code << 20) + (120u << 23));
      const float value = code == 0x7f ? as_type<float>(0x7fc00000u)
                          : code < 8   ? subnormal
                                       : normal;
      return (scales[index] & 0x80) != 0 ? -value : value;
    }
    case gpu::ScaleKind::kE4M4: {
      const uint32_t code = scales[index];
      const float subnormal = float(code) * 6.1035156e-5f;  // 2^-14
      return code < 16 ? subnormal : as_type<float>((code << 19) + (116u << 23));
    }
    default:
      return reinterpret_cast<device const float*>(scales)[index];
  }
}

/// Index of the scale of row `lane` / 4 (+ 8 if `upper`) of the strip in group `group` of a tile.
inline int64_t scale_index(Arguments a, int strip, int tile, int group, int lane, int upper) {
  const int64_t block = int64_t(strip) * a.blocks + tile / a.tiles_per_block;
  return ((block * 8 + lane / 4) * a.groups_per_tile + group) * 2 + upper;
}

inline int zero_at(Buffers b, int64_t index) {
  switch (b.arguments.zero_bytes) {
    case 1:
      return b.zeros[index];
    case 2:
      return reinterpret_cast<device const uint16_t*>(b.zeros)[index];
    default:
      return b.arguments.zero;
  }
}

/// Numbers of a group that a lane needs: its two scales, with all constant factors, and its zero
/// points.
struct Group {
  float scales[2];
  gpu::ZeroPair zeros;
};

template <class Decoder>
inline Group load_group(Buffers b, int strip, int tile, int group, int lane) {
  Group loaded = {};
  int zeros[2];
  for (int upper = 0; upper < 2; ++upper) {
    const int64_t index = scale_index(b.arguments, strip, tile, group, lane, upper);
    loaded.scales[upper] = scale_at(b.scales, b.arguments.scale_kind, index) *
                           (b.arguments.tensor_scale * Decoder::kGain);
    zeros[upper] = zero_at(b, index);
  }
  if constexpr (Decoder::kHasZeros) loaded.zeros = Decoder::zeros(zeros[0], zeros[1]);
  return loaded;
}

template <class Decoder>
inline void load_words(Buffers b, int strip, int tile, int lane, thread uint32_t* words) {
  const int64_t index = int64_t(strip) * b.arguments.tiles + tile;
  device const uint32_t* codes = b.codes + index * (gpu::tile_bytes(Decoder::kBits) / 4);
  for (int i = 0; i < Decoder::kBits; ++i) {
    words[i] = codes[gpu::word_in_tile(lane, i, Decoder::kBits)];
  }
}

/// By all threads of a threadgroup, which then wait for each other.
template <class Decoder>
inline gpu::Table fill_table(Buffers b, Place p) {
  if constexpr (Decoder::kHasTable) {
    const int count = Decoder::kPairs == 0 ? 32 : Decoder::kPairs;
    for (int i = p.simdgroup * gpu::kLanes + p.lane; i < count; i += p.simdgroups * gpu::kLanes) {
      b.table[i] = Decoder::kPairs == 0 ? uint32_t(b.codebook[i])
                                        : b.codebook[Decoder::low_code(i)] |
                                              uint32_t(b.codebook[Decoder::high_code(i)]) << 16;
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  }
  return gpu::Table{b.table};
}

}  // namespace subbyte::apple

/// A kernel that calls function<Decoder, NumberType>. Decoder may have commas, and has Number for
/// the type.
#define SUBBYTE_METAL_KERNEL(name, function, NumberType, ...)                                   \
  kernel void name(                                                                             \
      constant subbyte::apple::Arguments& arguments [[buffer(0)]],                              \
      device const uint32_t* codes [[buffer(1)]], device const uint8_t* scales [[buffer(2)]],   \
      device const uint8_t* zeros [[buffer(3)]], device const uint16_t* codebook [[buffer(4)]], \
      device const uint32_t* gather [[buffer(5)]], device const uint16_t* x [[buffer(6)]],      \
      device uint16_t* y [[buffer(7)]], threadgroup uint32_t* table [[threadgroup(0)]],         \
      threadgroup float* sums [[threadgroup(1)]],                                               \
      uint32_t threadgroup_index [[threadgroup_position_in_grid]],                              \
      uint32_t simdgroup [[simdgroup_index_in_threadgroup]],                                    \
      uint32_t lane [[thread_index_in_simdgroup]],                                              \
      uint32_t simdgroups [[simdgroups_per_threadgroup]]) {                                     \
    using namespace subbyte;                                                                    \
    using Number = gpu::NumberType;                                                             \
    apple::function<__VA_ARGS__, Number>(                                                       \
        {arguments, codes, scales, zeros, codebook, gather, x, y, table, sums},                 \
        {int(threadgroup_index), int(simdgroup), int(lane), int(simdgroups)});                  \
  }
