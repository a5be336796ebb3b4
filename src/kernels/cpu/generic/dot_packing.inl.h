// Packing of activations for dot_panels.inl.h. Included inside the namespace of an instruction set
// with products of bytes, after int8x3_products.inl.h.
//
// Six rows lie side by side, so that a step of the mainloop reads six words in a row:
//
//   kPackedDotBytes       signed bytes, with one scale for each 32 inputs: the largest / 127
//   kPackedDotLimbs<3>   three limbs of two rows, one scale for each 128 (dot_limbs.inl.h);
//                         limb i of activation m is row 2 * i + m
//   kPackedDotLimbs<2>   two limbs of three rows: row 3 * i + m
//   kPackedDotBf16x2       bf16 (dot_bf16x2.inl.h)
//
// A block of 8 * kLanes inputs:
//
//   sums     [k8][8]        floats: of the 8 inputs, as they are rounded
//   factors  [k8 / 4][8]    floats: what bytes are to be multiplied by (bf16 has none)
//   words    [k8][step][6]  of four bytes in two steps, byte b of step h being input
//                              8 * k8 + 2 * b + h; or of two bf16 in four steps, inputs j and
//                              4 + j of the 8

constexpr int64_t kDotRows = 6;

// Where they lie, in bytes.
constexpr int64_t kDotFactorsAt = kLanes * 8 * 4;
constexpr int64_t kDotBytesAt = kDotFactorsAt + kLanes / 4 * 8 * 4;
constexpr int64_t kDotByteBlockBytes = kDotBytesAt + 2 * kDotRows * kVectorBytes;

/// A mainloop reads kDotPacks packs for each panel of outputs.
template <int64_t kRows, int64_t kBytes, void (*kPackRow)(uint8_t*, int64_t, const Float*)>
constexpr PackedLayout dot_layout(const char* name, bool keeps_bf16 = false) {
  return {.name = name,
          .rows_per_pack = kRows,
          .padding = kPackPadding,
          .row_grain = 32,
          .keeps_bf16 = keeps_bf16,
          .bytes = &packed_bytes<kBytes>,
          .pack = &pack_k8<kBytes, kPackRow>};
}

/// Lane i of v to to[stride * i].
inline void scatter_lanes(uint8_t* to, int64_t stride, Int v) {
  alignas(64) uint32_t lanes[kLanes];
  store_int(reinterpret_cast<uint8_t*>(lanes), v);
#pragma GCC unroll 16
  for (int64_t i = 0; i < kLanes; ++i) __builtin_memcpy(to + 4 * stride * i, &lanes[i], 4);
}

/// Two words of bytes for each run of 8, their sums and factors, as row `row` of a block.
inline void store_dot_bytes(uint8_t* block, int64_t row, const Int (&words)[2], Int sums,
                            Float factors) {
  for (int64_t h = 0; h < 2; ++h) {
    scatter_lanes(block + kDotBytesAt + 4 * (kDotRows * h + row), 2 * kDotRows, words[h]);
  }
  scatter_lanes(block + 4 * row, 8, bits_of(mul(int_to_float(sums), factors)));
  alignas(64) float lanes[kLanes];
  store(lanes, factors);
  auto* stored = reinterpret_cast<float*>(block + kDotFactorsAt);
  for (int64_t q = 0; q < kLanes / 4; ++q) stored[8 * q + row] = lanes[4 * q];
}

/// A block of activations as bytes: v[j] holds element j of each run of 8.
struct BlockBytes {
  Int words[2];  // [h]: byte b of lane i is input 8 i + 2 b + h
  Int sums;      // of each run of 8
  Float scale;   // NaN if one of the 32 is not finite
};
inline BlockBytes bytes_of_block(const Float* v) {
  const auto [of_k8, nan_if_nonfinite] = largest_of_k8(v);
  const Float largest = max_of_4_lanes(of_k8);
  // Tiny magnitudes, whose reciprocal would overflow, count as zero.
  const Float inverse = reciprocal_above(largest, 0x1p-120f, 127.0f);
  BlockBytes block = {{zero_int(), zero_int()},
                      zero_int(),
                      add(mul(largest, broadcast(1.0f / 127)), sum_of_4_lanes(nan_if_nonfinite))};
  for (int j = 7; j >= 0; --j) {
    const Int code = round_to_int(mul(v[j], inverse));
    block.sums = add_int(block.sums, code);
    Int& words = block.words[j % 2];
    words = or_bits(shift_left<8>(words), and_bits(code, 0xFFu));
  }
  return block;
}

/// Row m of a pack: v[j] holds element j of each run of 8.
inline void pack_dot_bytes(uint8_t* block, int64_t m, const Float* v) {
  const BlockBytes bytes = bytes_of_block(v);
  store_dot_bytes(block, m, bytes.words, bytes.sums, bytes.scale);
}

constexpr PackedLayout kPackedDotBytes =
    dot_layout<kDotRows, kDotByteBlockBytes, &pack_dot_bytes>("dot int8");
