// Packed weights to a dense matrix of the activations' type, for products with many tokens.
//
// One SIMD-group decodes one tile of 16 outputs x 64 inputs; y is [rows][y_stride], its columns in
// the order of the stored ones.

#include <metal_stdlib>

#include "kernels/metal/weights.h"

#pragma METAL fp math_mode(safe)

namespace subbyte::apple {

template <class Decoder, class Number>
inline void dequantize(Buffers b, Place p) {
  const gpu::Table table = fill_table<Decoder>(b, p);
  const Arguments a = b.arguments;
  const int64_t index = int64_t(p.threadgroup_index) * p.simdgroups + p.simdgroup;
  if (index >= int64_t(a.strips) * a.tiles) return;
  const int strip = int(index / a.tiles);
  const int tile = int(index % a.tiles);
  const int steps_per_group = gpu::kSteps / a.groups_per_tile;

  uint32_t words[Decoder::kBits];
  load_words<Decoder>(b, strip, tile, p.lane, words);
  Group group = {};
  for (int step = 0; step < gpu::kSteps; ++step) {
    if (step % steps_per_group == 0) {
      group = load_group<Decoder>(b, strip, tile, step / steps_per_group, p.lane);
    }
    uint32_t registers[4];
    gpu::decode_step<Decoder>(words, step, group.zeros, table, registers);
    for (int i = 0; i < 8; ++i) {
      const gpu::Slot slot = {p.lane, step, i / 2, i % 2};
      const int64_t row = gpu::source_row(a.row_order, strip, gpu::row_of(slot), a.rows);
      const int col = tile * gpu::kTileCols + gpu::col_of(slot);
      if (row >= a.rows || col >= a.cols) continue;
      const uint32_t pair = registers[i / 2];
      const float element = i % 2 == 0 ? Number::low(pair) : Number::high(pair);
      b.y[row * a.y_stride + col] = Number::from_float(element * group.scales[i / 2 % 2]);
    }
  }
}

}  // namespace subbyte::apple

#define SUBBYTE_METAL_DECODER(name, ...)                                      \
  SUBBYTE_METAL_KERNEL(dequantize_##name##_f16, dequantize, F16, __VA_ARGS__) \
  SUBBYTE_METAL_KERNEL(dequantize_##name##_bf16, dequantize, BF16, __VA_ARGS__)
#include "kernels/metal/decoders.def"
#undef SUBBYTE_METAL_DECODER
