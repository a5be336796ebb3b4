// Packing of activations for dot_panels.inl.h. Included inside the namespace of an instruction set
// with dot products of bytes, after pack.inl.h and digits.inl.h.
//
// Six rows lie side by side, so that a step of the mainloop reads six words in a row:
//
//   kPackedDotBytes       signed bytes, with one scale for each 32 inputs: the largest / 127
//   kPackedDotDigits<3>   three signed digits of two rows, one step for each 128 (digits.inl.h);
//                         digit i of activation m is row 2 * i + m
//   kPackedDotDigits<2>   two digits of three rows: row 3 * i + m
//   kPackedDotPairs       bf16 (dot_pairs.inl.h)
//
// A block of 128 inputs:
//
//   sums     [octet][8]        floats: of the octet's inputs, as they are rounded
//   factors  [octet / 4][8]    floats: what bytes are to be multiplied by (pairs have none)
//   words    [octet][step][6]  of four bytes in two steps, byte b of step h being input
//                              8 * octet + 2 * b + h; or of two bf16 in four steps, inputs j and
//                              4 + j of the octet

constexpr int64_t kDotRows = 6;

// Where they lie, in bytes.
constexpr int64_t kDotFactorsAt = kLanes * 8 * 4;
constexpr int64_t kDotBytesAt = kDotFactorsAt + kLanes / 4 * 8 * 4;
constexpr int64_t kDotByteBlockBytes = kDotBytesAt + 2 * kDotRows * kVectorBytes;

/// A mainloop reads kDotPacks packs for each strip of outputs.
template <int64_t kRows, int64_t kBytes, void (*kPackRow)(uint8_t*, int64_t, const Float*)>
constexpr PackedLayout dot_layout(const char* name) {
  return {.name = name,
          .rows_per_pack = kRows,
          .padding = kPackPadding,
          .row_grain = 32,
          .bytes = &packed_bytes<kBytes>,
          .pack = &pack_octets_of_rows<kBytes, kPackRow>};
}

/// Lane i of v to to[stride * i].
inline void scatter_lanes(uint8_t* to, int64_t stride, Int v) {
  alignas(64) uint32_t lanes[kLanes];
  store_int(reinterpret_cast<uint8_t*>(lanes), v);
#pragma GCC unroll 16
  for (int64_t i = 0; i < kLanes; ++i) __builtin_memcpy(to + 4 * stride * i, &lanes[i], 4);
}

/// Two words of bytes for each octet, their sums and factors, as row `row` of a block.
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

/// Octets v, transposed, of row m of a pack.
inline void pack_dot_bytes(uint8_t* block, int64_t m, const Float* v) {
  const auto [of_octets, poison] = largest_of_octets(v);
  const Float largest = max_of_quads(of_octets);
  const Float scale = add(mul(largest, broadcast(1.0f / 127)), sum_of_quads(poison));
  // Tiny magnitudes, whose reciprocal would overflow, count as zero.
  const Float inverse = reciprocal_above(largest, 0x1p-120f, 127.0f);
  Int words[2] = {zero_int(), zero_int()};
  Int sums = zero_int();
  for (int j = 7; j >= 0; --j) {
    const Int code = round_to_int(mul(v[j], inverse));
    sums = add_int(sums, code);
    words[j % 2] = or_bits(shift_left<8>(words[j % 2]), and_bits(code, 0xFFu));
  }
  store_dot_bytes(block, m, words, sums, scale);
}

constexpr PackedLayout kPackedDotBytes =
    dot_layout<kDotRows, kDotByteBlockBytes, &pack_dot_bytes>("dot bytes");

template <int kTerms>
inline void pack_dot_digits(uint8_t* block, int64_t m, const Float* v) {
  const auto digits = digits_of_block<kTerms>(v);
  float factor = digits.step;
  for (int64_t i = 0; i < kTerms; ++i) {
    store_dot_bytes(block, kDotRows / kTerms * i + m, digits.words[i], digits.sums[i],
                    broadcast(factor));
    factor *= 256;
  }
}
template <int kTerms>
constexpr PackedLayout kPackedDotDigits =
    dot_layout<kDotRows / kTerms, kDotByteBlockBytes, &pack_dot_digits<kTerms>>(
        kTerms == 3 ? "dot digits" : "dot short digits");
