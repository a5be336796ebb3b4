#pragma once
// Products of weights that are integers with inputs that are two signed bytes (int8x2), by tensor
// core instructions of integers: exact within a group, and a quarter of an instruction to decode
// two weights.
//
//   input     x = s (l0 + 256 l1), |x / s| <= 2^14; s is a power of two for each input group
//   operand B column 2 m is limb l0 of token m, column 2 m + 1 limb l1: so a lane has both limbs of
//             a token in its accumulators
//   group     (sum q l0 + 256 sum q l1 - z sum (l0 + 256 l1)) times s and the scale of the weights
//
// |sum| <= 128 inputs x 2^8 x 2^14, which is below 2^31. Four tokens at a time.
//
// This is the general case; regular_units.cuh has the usual one.
//
// In shared memory, for each row of inputs:
//
//   limbs of a tile of 64 inputs   [t][step][byte_col], 16 bytes for each t, as lanes load them
//   scales                         [input group]
//   sums, times -1                 [quantization group within a tile]

#include "kernels/cuda/common/pair_mma.cuh"
#include "kernels/cuda/step/program.h"

namespace subbyte::cuda {

/// Adds a group to the sums of outputs g and g + 8, and clears it. `scale` with that of the inputs;
/// `sum` of the inputs, times -1.
template <class Decoder>
__device__ __forceinline__ void add_group(float2& sums, int32_t (&group)[4], float2 scale,
                                          int2 zero, int32_t sum) {
  if constexpr (Decoder::kBytesCarry) {
    group[0] -= group[2];
    group[1] -= group[3];
  }
  const int32_t low = group[1] * 256 + group[0] + zero.x * sum;
  const int32_t high = group[3] * 256 + group[2] + zero.y * sum * Decoder::kByteOdd;
  sums.x = fmaf(scale.x, static_cast<float>(low), sums.x);
  sums.y = fmaf(scale.y, static_cast<float>(high), sums.y);
#pragma unroll
  for (int i = 0; i < 4; ++i) group[i] = 0;
}

/// Multiplies the tiles of a unit, two steps of each pair at a time, so that chains of products
/// overlap. end_group(i, sums, sum, of_inputs) is called when the i-th group of the unit is done,
/// with its sums, the sum of its inputs and their scale.
template <class Decoder, int kGroups, bool kOneGroup, class Unit, class EndGroup>
__device__ __forceinline__ void multiply_tiles(const Unit& unit, const EndGroup& end_group) {
  int32_t groups[2][4] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int steps = i % 2;
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const int tile = 2 * pair + i / 2;
      uint32_t a[4];
      Decoder::decode_bytes(unit.codes[tile], steps, a);
      mma_u8_s8(groups[pair], a, unit.b[tile][2 * steps], unit.b[tile][2 * steps + 1]);
      if (kOneGroup ? i == 3 : steps == 1 || kGroups == 2) {
        const int of_unit = kOneGroup ? pair : tile * kGroups + (kGroups == 2 ? steps : 0);
        int32_t sum = static_cast<int32_t>(unit.x_sums[kOneGroup ? 2 * pair : of_unit]);
        if constexpr (kOneGroup) sum += static_cast<int32_t>(unit.x_sums[2 * pair + 1]);
        end_group(of_unit, groups[pair], sum, __uint_as_float(unit.x_scales[pair]));
      }
    }
  }
}

/// Inputs as limbs, scales and sums (above).
template <class Decoder, int kGroups>
class IntegerInputs {
 public:
  /// Quantization groups of a tile whose inputs are summed.
  static constexpr int kSumGroups = kGroups;
  /// Inputs of a group are below 2^(kTop + 1) times their scale.
  static constexpr int kTop = 13;

  /// Stores a lane's inputs (inputs.cuh) of unit `unit`, in units of their scale, in row `row`.
  /// Returns their sums of each step, times -1.
  static __device__ int2 put(uint32_t row, int row_bytes, int unit, int lane, const float (&v)[8]) {
    constexpr float kMagic = 0x1.8p23f;  // whose low 16 bits are zero
    uint32_t low[8];
    uint32_t high[8];  // limb l1 in the second byte
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      low[i] = __float_as_uint(v[i] + kMagic);
      high[i] = low[i] + 0x80;
    }
    uint32_t l0[2];
    uint32_t l1[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      // Twos whose inputs share a word: byte_col() says which.
      const int a = Decoder::kStepByByte ? 2 * i : 4 * i;
      const int b = Decoder::kStepByByte ? 4 + 2 * i : 4 * i + 2;
      l0[i] = pick_bytes(pick_bytes(low[a], low[b], 0x40), pick_bytes(low[a + 1], low[b + 1], 0x40),
                         0x5410);
      l1[i] = pick_bytes(pick_bytes(high[a], high[b], 0x51),
                         pick_bytes(high[a + 1], high[b + 1], 0x51), 0x5410);
    }
    const uint32_t at =
        row + unit * kUnitCols + lane / 8 * kTileCols + lane % 4 * 16 + lane / 4 % 2 * 8;
    st_shared_x2(at, l0[0], l0[1]);
    st_shared_x2(at + row_bytes / 2, l1[0], l1[1]);
    int2 sums;
    sums.x = minus_sum(l0, l1, 0);
    sums.y = minus_sum(l0, l1, 1);
    return sums;
  }

  static __device__ int place(int token, int group, int stride) {
    return token * stride + group * 4;
  }

 private:
  /// Of the inputs of step 0 or 1, which have a word, or every second byte of both.
  static __device__ int minus_sum(const uint32_t (&l0)[2], const uint32_t (&l1)[2], int step) {
    constexpr int kAll = static_cast<int>(0xffffffff);
    if constexpr (!Decoder::kStepByByte) {
      return __dp4a(static_cast<int>(l0[step]), kAll, 0) +
             256 * __dp4a(static_cast<int>(l1[step]), kAll, 0);
    } else {
      const int ones = static_cast<int>(step == 0 ? 0x00ff00ffu : 0xff00ff00u);
      const auto sum = [&](const uint32_t(&limbs)[2]) {
        return __dp4a(static_cast<int>(limbs[1]), ones,
                      __dp4a(static_cast<int>(limbs[0]), ones, 0));
      };
      return sum(l0) + 256 * sum(l1);
    }
  }
};

template <class Decoder, int kGroups>
class IntegerDot : public IntegerInputs<Decoder, kGroups> {
 public:
  using Reader = PairReader<Decoder, kGroups>;

  /// Shared addresses: of the inputs, scales and sums of m rows, which are so many bytes apart.
  __device__ IntegerDot(const StepShared& s, uint32_t shared, int m, int lane)
      : x_(shared + s.x + lane / 8 * s.x_stride + lane / 4 % 2 * (s.x_stride / 2) + lane % 4 * 16),
        x_scales_(shared + s.x_scales + lane % 4 * s.x_scales_stride),
        x_sums_(shared + s.x_sums + lane % 4 * s.x_sums_stride),
        m_(m),
        lane_(lane),
        shared_(s) {}

  __device__ void clear() {
#pragma unroll
    for (int set = 0; set < kSets; ++set) sums_[set] = {};
  }

  /// Adds unit `unit` of a strip.
  template <bool kOneGroup>
  __device__ void add(const Reader& reader, const PairPlace (&places)[2], int unit, const Table&) {
    Unit<kOneGroup> loaded = {};
#pragma unroll 1
    for (int set = 0; set * kSetTokens < m_; ++set) {
      load(loaded, reader, places, unit, set);
      add_loaded(loaded, reader);
      // The sums of the next four tokens come to the first place, where the code has them.
      if (m_ > kSetTokens) rotate();
    }
  }

  /// Stores the sums to [token][kPartialStride].
  __device__ void store(float* to) const {
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
      const int token = set * kSetTokens + lane_ % 4;
      if (token >= m_) continue;
      float* const at = to + token * kPartialStride + lane_ / 4;
      at[0] = sums_[set].x;
      at[8] = sums_[set].y * (1.0f / Decoder::kByteOdd);
    }
  }

 private:
  static constexpr int kSetTokens = 4;
  static constexpr int kSets = kStepTokens / kSetTokens;
  static_assert(kSets == 2);

  __device__ void rotate() {
    const float2 first = sums_[0];
    sums_[0] = sums_[1];
    sums_[1] = first;
  }

  template <bool kOneGroup>
  struct Unit {
    static constexpr int kScales = kOneGroup ? 2 : kUnitTiles * kGroups;  // of each of two rows
    uint32_t codes[kUnitTiles][Reader::kWords];
    uint32_t scales[kScales][2];  // of Reader::load_scale()
    uint32_t zeros[kScales];      // of both rows
    uint32_t offsets[kScales];    // if there are any
    uint32_t b[kUnitTiles][4];
    uint32_t x_scales[kUnitCols / kInputGroup];
    uint32_t x_sums[kUnitTiles * kGroups];
  };

  /// With the inputs of the set-th four tokens.
  template <bool kOneGroup>
  __device__ void load(Unit<kOneGroup>& to, const Reader& reader, const PairPlace (&places)[2],
                       int unit, int set) const {
    const int first = set * kSetTokens;
    const bool is_column = lane_ / 4 + 2 * first < 2 * m_;
    const uint32_t x = x_ + first * shared_.x_stride + unit * kUnitCols;
#pragma unroll
    for (int tile = 0; tile < kUnitTiles; ++tile) {
      reader.read_codes(places[tile / 2], tile % 2, to.codes[tile]);
#pragma unroll
      for (int i = 0; i < 4; ++i) to.b[tile][i] = 0;
      ld_shared_x4_if(is_column, to.b[tile], x + tile * kTileCols);
    }
    ld_shared<kUnitCols / kInputGroup>(to.x_scales,
                                       x_scales_ + first * shared_.x_scales_stride + unit * 8);
    ld_shared<kUnitTiles * kGroups>(
        to.x_sums, x_sums_ + first * shared_.x_sums_stride + unit * kUnitTiles * kGroups * 4);
#pragma unroll
    for (int i = 0; i < Unit<kOneGroup>::kScales; ++i) {
      constexpr int kOfPair = Unit<kOneGroup>::kScales / 2;
      const PairPlace& place = places[i / kOfPair];
      const int tile = kOneGroup ? 0 : i % kOfPair / kGroups;
      reader.load_scale(place, tile, i % kGroups, to.scales[i]);
      to.zeros[i] = reader.load_zeros(place, tile, i % kGroups);
      to.offsets[i] = reader.has_offsets() ? reader.load_offsets(place, tile, i % kGroups) : 0;
    }
  }

  template <bool kOneGroup>
  __device__ void add_loaded(const Unit<kOneGroup>& unit, const Reader& reader) {
    multiply_tiles<Decoder, kGroups, kOneGroup>(
        unit, [&](int i, int32_t(&group)[4], int32_t sum, float of_inputs) {
          float2 scale = reader.to_scales(unit.scales[i]);
          scale.x *= of_inputs;
          scale.y *= of_inputs;
          add_group<Decoder>(sums_[0], group, scale, Reader::to_zeros(unit.zeros[i]), sum);
          if (reader.has_offsets()) {
            add_offset(reader.to_offsets(unit.offsets[i]), sum, of_inputs);
          }
        });
  }

  __device__ void add_offset(float2 offset, int32_t sum, float of_inputs) {
    const float inputs = static_cast<float>(-sum) * of_inputs;
    sums_[0].x = fmaf(offset.x, inputs, sums_[0].x);
    sums_[0].y = fmaf(offset.y, Decoder::kByteOdd * inputs, sums_[0].y);
  }

  const uint32_t x_;  // of this lane's column
  const uint32_t x_scales_;
  const uint32_t x_sums_;
  const int m_;
  const int lane_;
  const StepShared& shared_;
  float2 sums_[kSets];  // of outputs g and g + 8 of token lane % 4 of each set of four tokens
};

}  // namespace subbyte::cuda
