// y = x W^T for 1 to 8 tokens: what reads the weights once and is as fast as memory.
//
// A threadgroup computes one strip of 16 outputs. Its SIMD-groups take tiles in turn; each lane
// multiplies the 32 weights that it holds of a tile by their inputs, in float. Sums of a group are
// multiplied by its scale. At the end the four lanes of an output add up by two shuffles, and the
// SIMD-groups, in their order, in threadgroup memory: the same bits every time.

#include <metal_stdlib>

#include "kernels/metal/weights.h"

#pragma METAL fp math_mode(safe)

namespace subbyte::apple {

/// The input of stored column `col`; 0 beyond the last.
template <class Number>
inline float input_at(Buffers b, int token, int col) {
  if (col >= b.arguments.cols) return 0;
  const int64_t input = b.arguments.has_gather != 0 ? int64_t(b.gather[col]) : int64_t(col);
  return Number::low(b.x[int64_t(token) * b.arguments.x_stride + input]);
}

/// Adds what the inputs of one step are worth to the sums of the lane's outputs g and g + 8.
template <class Number, int kTokens>
inline void add_step(Buffers b, int first_col, thread const uint32_t* registers,
                     thread float (*sums)[kTokens]) {
  // Registers 0 and 1, then 2 and 3, which are 8 inputs on.
  for (int second = 0; second < 2; ++second) {
    const uint32_t even = registers[2 * second];
    const uint32_t odd = registers[2 * second + 1];
    for (int i = 0; i < kTokens; ++i) {
      if (i >= b.arguments.tokens) break;
      const float x0 = input_at<Number>(b, i, first_col + 8 * second);
      const float x1 = input_at<Number>(b, i, first_col + 8 * second + 1);
      sums[0][i] =
          metal::fma(Number::high(even), x1, metal::fma(Number::low(even), x0, sums[0][i]));
      sums[1][i] = metal::fma(Number::high(odd), x1, metal::fma(Number::low(odd), x0, sums[1][i]));
    }
  }
}

/// The lane's part of its two outputs: tiles simdgroup, simdgroup + simdgroups, ... of the strip.
template <class Decoder, class Number, int kTokens>
inline void multiply_tiles(Buffers b, Place p, thread float (*accumulators)[kTokens]) {
  const gpu::Table table = fill_table<Decoder>(b, p);
  const Arguments a = b.arguments;
  const int steps_per_group = gpu::kSteps / a.groups_per_tile;
  for (int tile = p.simdgroup; tile < a.tiles; tile += p.simdgroups) {
    uint32_t words[Decoder::kBits];
    load_words<Decoder>(b, p.threadgroup_index, tile, p.lane, words);
    Group group = {};
    float sums[2][kTokens] = {};
    for (int step = 0; step < gpu::kSteps; ++step) {
      if (step % steps_per_group == 0) {
        group = load_group<Decoder>(b, p.threadgroup_index, tile, step / steps_per_group, p.lane);
      }
      uint32_t registers[4];
      gpu::decode_step<Decoder>(words, step, group.zeros, table, registers);
      const int first_col = tile * gpu::kTileCols + step * gpu::kStepCols + p.lane % 4 * 2;
      add_step<Number, kTokens>(b, first_col, registers, sums);
      if ((step + 1) % steps_per_group != 0) continue;
      for (int i = 0; i < 2 * kTokens; ++i) {
        const int row = i / kTokens;
        const int token = i % kTokens;
        accumulators[row][token] =
            metal::fma(sums[row][token], group.scales[row], accumulators[row][token]);
        sums[row][token] = 0;
      }
    }
  }
}

template <class Decoder, class Number, int kTokens>
inline void small_m(Buffers b, Place p) {
  float accumulators[2][kTokens] = {};
  multiply_tiles<Decoder, Number, kTokens>(b, p, accumulators);
  for (int i = 0; i < 2 * kTokens; ++i) {
    float sum = accumulators[i / kTokens][i % kTokens];
    sum += metal::simd_shuffle_xor(sum, uint16_t(1));
    sum += metal::simd_shuffle_xor(sum, uint16_t(2));
    const int row = p.lane / 4 + 8 * (i / kTokens);
    if (p.lane % 4 == 0) {
      b.sums[(p.simdgroup * gpu::kStripRows + row) * kTokens + i % kTokens] = sum;
    }
  }
  metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  const Arguments a = b.arguments;
  const int outputs = gpu::kStripRows * kTokens;
  for (int i = p.simdgroup * gpu::kLanes + p.lane; i < outputs; i += p.simdgroups * gpu::kLanes) {
    const int token = i % kTokens;
    const int64_t row = gpu::source_row(a.row_order, p.threadgroup_index, i / kTokens, a.rows);
    if (token >= a.tokens || row >= a.rows) continue;
    float sum = 0;
    for (int simdgroup = 0; simdgroup < p.simdgroups; ++simdgroup) {
      sum += b.sums[simdgroup * outputs + i];
    }
    b.y[int64_t(token) * a.y_stride + row] = Number::from_float(sum);
  }
}

template <class Decoder, class Number>
inline void small_m_one(Buffers b, Place p) {
  small_m<Decoder, Number, 1>(b, p);
}
template <class Decoder, class Number>
inline void small_m_few(Buffers b, Place p) {
  small_m<Decoder, Number, kMaxTokens>(b, p);
}

}  // namespace subbyte::apple

#define SUBBYTE_METAL_DECODER(name, ...)                                     \
  SUBBYTE_METAL_KERNEL(small_m1_##name##_f16, small_m_one, F16, __VA_ARGS__)   \
  SUBBYTE_METAL_KERNEL(small_m1_##name##_bf16, small_m_one, BF16, __VA_ARGS__) \
  SUBBYTE_METAL_KERNEL(small_m8_##name##_f16, small_m_few, F16, __VA_ARGS__)   \
  SUBBYTE_METAL_KERNEL(small_m8_##name##_bf16, small_m_few, BF16, __VA_ARGS__)
#include "kernels/metal/decoders.def"
#undef SUBBYTE_METAL_DECODER
