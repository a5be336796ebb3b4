#pragma once
// One token and groups of 32 inputs: a segment of 256 inputs has eight groups, and the tensor cores
// eight columns, of which one token needs one. So column j of operand B is the inputs of group j:
//
//                 column  0   1  ...  7
//   weights  0 to  31     x   .   .   .     x: a product that is wanted. Of those of the weights of
//           32 to  63     .   x   .   .     group j with all columns only column j is kept, and
//              ...                          lane t of four has groups 2 t and 2 t + 1 of its two
//          224 to 255     .   .   .   x     rows: it reads the scales of tile t alone.
//
// That takes the scales of a segment from 16 to 2 for each of a lane's rows, and what is done with
// accumulators at the end of groups from 32 instructions to 4, and a sum over four lanes. The
// inputs of a segment are four registers, and no product waits for more than one other.

#include <cstdint>

#include "kernels/cuda/common/pair_mma.cuh"
#include "kernels/cuda/common/pair_reader.cuh"
#include "kernels/cuda/gemv/partition.h"

namespace subbyte::cuda {

/// Whether gemv can multiply so; GemvPartition::is_diagonal says where it does.
template <class Decoder, int kGroups>
inline constexpr bool kMayBeDiagonal = kGroups == 2 && !Decoder::kHasZeros;

/// Inputs of a column: those of a group.
inline constexpr int kDiagonalCols = 32;

/// Multiplies a step. `x`: operand B of the two steps of a group.
template <class Number, class Decoder, class AnyTable>
__device__ __forceinline__ void multiply_step(float (&sums)[4], const uint32_t* codes, int step,
                                              const AnyTable& table, const uint32_t (&x)[4]) {
  const uint32_t x0 = x[step % 2 * 2];
  const uint32_t x1 = x[step % 2 * 2 + 1];
  uint32_t registers[4];
  if constexpr (requires { table.permutes(step); }) {
    if (table.permutes(step)) {
      table.permute(codes, step, registers);
      mma<Number>(sums, registers, __byte_perm(x0, x1, 0x5410), __byte_perm(x0, x1, 0x7632));
      return;
    }
  }
  decode_raw<Decoder>(codes, step, table, registers);
  mma<Number>(sums, registers, x0, x1);
}

/// Multiplies a segment of a strip and stores its 16 partial sums. `pairs`: places of the codes of
/// its two pairs of tiles; `x`: operand B of the two steps of a group, of which column j is that of
/// group j.
template <class Number, class Decoder, int kGroups, class AnyTable>
__device__ __forceinline__ void multiply_diagonal(const PairReader<Decoder, kGroups>& reader,
                                                  const PairPlace (&pairs)[2],
                                                  const PairPlace& own_scales,
                                                  const AnyTable& table, const uint32_t (&x)[4],
                                                  int lane, float* to) {
  using Reader = PairReader<Decoder, kGroups>;
  typename Reader::Scales scales;
  reader.template read_scales<1>(own_scales, scales, [] {});
  float own[4] = {};  // of the even group, rows g and g + 8, and of the odd one
#pragma unroll
  for (int tile = 0; tile < kSegmentTiles; ++tile) {
    uint32_t codes[Reader::kWords];
    reader.read_codes(pairs[tile / 2], tile % 2, codes);
    float sums[2][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      multiply_step<Number, Decoder>(sums[step / 2], codes, step, table, x);
    }
    if (lane % 4 == tile) {
      own[0] = sums[0][0];
      own[1] = sums[0][2];
      own[2] = sums[1][1];
      own[3] = sums[1][3];
    }
  }
  const float2 even = scales.scales[0][0];
  const float2 odd = scales.scales[0][1];
  const float low = fmaf(own[2], odd.x, own[0] * even.x);   // of row g
  const float high = fmaf(own[3], odd.y, own[1] * even.y);  // of row g + 8
  const bool has_high = lane % 2 != 0;
  float sum = has_high ? high : low;
  sum += __shfl_xor_sync(~0u, has_high ? low : high, 1);
  sum += __shfl_xor_sync(~0u, sum, 2);
  if (lane % 4 < 2) to[lane / 4 + lane % 2 * 8] = sum;
}

}  // namespace subbyte::cuda
