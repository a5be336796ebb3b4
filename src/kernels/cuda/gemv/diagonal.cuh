#pragma once
// One token and groups of 32 inputs: a segment of 256 inputs has eight groups, and the tensor cores
// eight columns, of which one token needs one. So column j of operand B is the inputs of group j,
// and zero elsewhere:
//
//                 column  0   1  ...  7
//   inputs   0 to  31     x   0       0       The products of all groups of a segment gather in
//           32 to  63     0   x       0       one accumulator, group by group, and lane t of four
//              ...                            has those of groups 2 t and 2 t + 1 for its two rows:
//          224 to 255     0   0       x       it reads the scales of tile t alone.
//
// That takes the scales of a segment from 16 to 2 for each of a lane's rows, and what is done with
// accumulators at the end of groups from 32 instructions to 4, and a sum over four lanes.

#include <cstdint>

#include "kernels/cuda/common/pair_mma.cuh"
#include "kernels/cuda/common/pair_reader.cuh"

namespace subbyte::cuda {

/// Whether gemv can multiply so; GemvPartition::is_diagonal says where it does.
template <class Decoder, int kGroups>
inline constexpr bool kMayBeDiagonal = kGroups == 2 && !Decoder::kHasZeros;

/// Leaves the inputs of a group, as ldmatrix_x4() loads them, in the column that is theirs.
__device__ __forceinline__ void leave_own_column(uint32_t (&x)[4], bool is_own) {
#pragma unroll
  for (int j = 0; j < 4; ++j) x[j] = is_own ? x[j] : 0;
}

/// Multiplies a segment of a strip by diagonal inputs and stores its 16 partial sums.
/// `pairs`: places of the codes of its two pairs of tiles.
template <class Number, class Decoder, int kGroups, class AnyTable>
__device__ __forceinline__ void multiply_diagonal(const PairReader<Decoder, kGroups>& reader,
                                                  const PairPlace (&pairs)[2],
                                                  const PairPlace& own_scales,
                                                  const AnyTable& table, const uint32_t (&x)[8][4],
                                                  int lane, float* to) {
  using Reader = PairReader<Decoder, kGroups>;
  constexpr int kTiles = 4;
  typename Reader::Scales scales;
  reader.template read_scales<1>(own_scales, scales, [] {});
  float sums[2][4] = {};  // of even and odd tiles: two chains of products
#pragma unroll
  for (int first = 0; first < kTiles; first += 2) {
    uint32_t codes[2][Reader::kWords];
#pragma unroll
    for (int i = 0; i < 2; ++i) reader.read_codes(pairs[first / 2], i, codes[i]);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        uint32_t registers[4];
        decode_raw<Decoder>(codes[i], step, table, registers);
        const uint32_t* const b = x[(first + i) * 2 + step / 2];
        mma<Number>(sums[i], registers, b[step % 2 * 2], b[step % 2 * 2 + 1]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[0][i] += sums[1][i];
  const float2 even = scales.scales[0][0];
  const float2 odd = scales.scales[0][1];
  const float low = fmaf(sums[0][1], odd.x, sums[0][0] * even.x);   // of row g
  const float high = fmaf(sums[0][3], odd.y, sums[0][2] * even.y);  // of row g + 8
  const bool has_high = lane % 2 != 0;
  float sum = has_high ? high : low;
  sum += __shfl_xor_sync(~0u, has_high ? low : high, 1);
  sum += __shfl_xor_sync(~0u, sum, 2);
  if (lane % 4 < 2) to[lane / 4 + lane % 2 * 8] = sum;
}

}  // namespace subbyte::cuda
