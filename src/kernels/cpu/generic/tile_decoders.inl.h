// How weights become the tiles of a matrix unit: bf16, 16 rows by 32 inputs. Included inside the
// namespace of an instruction set with tiles, after gemm.inl.h.
//
// A panel is some blocks of kStripRows rows; a block of 128 inputs is four steps of 32, in the
// order of kPairs (lane i of a step holds inputs 8 i + j and 8 i + 4 + j):
//
//   panel [tile of rows: 4][block][step: 4] of      input pair 0   1  ...  15
//                                              row 0   | 4 bytes |   |    |   |
//                                              ...     |
//                                              row 15  |                      |   1 KiB
//
//   codes    a codebook that bf16 holds, groups of whole blocks: codes less their zero points,
//            which are exact; scales multiply the sums
//   scaled   the same groups and any codebook of at most 16 entries: scale * (element - zero),
//            rounded to bf16. A codebook is rounded for each group, then looked up like codes
//   mxfp4    E2M1 with E8M0 scales of 32: scales are added to the exponents. Exact
//   weights  everything else: weights as floats, rounded. Exact when the product has 8 bits:
//            E2M1 with E8M0 or E4M3 scales, and dense bf16

constexpr int64_t kStripTiles = 4;
constexpr int64_t kStripRows = kStripTiles * kTileRows;
constexpr int64_t kStepBytes = kTileRows * 64;       // one tile
constexpr int64_t kBlockTileBytes = 4 * kStepBytes;  // a block of 16 rows: four steps

/// Some blocks of every row, and what divisions would tell of them.
struct BlockRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t whole_blocks = 0;  // of the row: see loadable_blocks()
  int64_t group_blocks = 1;  // in a group; only with groups that cover blocks
  int64_t group = 0;         // that `begin` lies in
  int64_t left = 1;          // blocks of that group from `begin` on
};

/// Rows [begin, end) of the strip that starts at row n of the matrix.
struct StripRows {
  int64_t n = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

/// Where decoded tiles go, and what decoders may use.
struct TileOutput {
  uint8_t* panel;
  const float* scales;      // staged, of the strip: [row][staged_floats]; only with `stage`
  float* staged;            // room for one row's
  int64_t prefetch_rows;    // what will be needed soon lies so many rows
  int64_t prefetch_blocks;  // and so many blocks further on
};

using DecodeTiles = void (*)(const Weights& weights, const StripRows& rows,
                             const BlockRange& blocks, const TileOutput& out);

/// How a strip becomes tiles, and whether scales are left to multiply the sums.
struct TileDecoding {
  DecodeTiles decode;
  bool scales_sums;
  int64_t whole_blocks;
  /// Floats of the scales of one row, or nullptr where no group covers whole blocks.
  void (*stage)(const Weights& weights, int64_t row, int64_t begin, int64_t end, float* staged);
};

/// Where row i of a strip begins in a panel of so many blocks.
inline uint8_t* panel_row(const TileOutput& out, const BlockRange& blocks, int64_t i) {
  return out.panel + i / kTileRows * (blocks.end - blocks.begin) * kBlockTileBytes +
         i % kTileRows * 64;
}

template <class E>
inline int64_t prefetch_distance(const Weights& weights, const TileOutput& out) {
  return out.prefetch_rows * weights.row_bytes + out.prefetch_blocks * E::kBits * kLanes;
}

/// The four steps of a block of codes, looked up.
template <class E>
[[gnu::always_inline]] inline void store_steps(uint8_t* steps, const uint8_t* block, Pairs table) {
  const auto codes = E::load(block);
  store_pairs(steps, E::template value_of<0>(codes, table));
  store_pairs(steps + kStepBytes, E::template value_of<1>(codes, table));
  store_pairs(steps + 2 * kStepBytes, E::template value_of<2>(codes, table));
  store_pairs(steps + 3 * kStepBytes, E::template value_of<3>(codes, table));
}

/// The last block of a row, up to its last octet: behind it are zeros, which an infinite scale
/// must not turn into NaN.
template <class E>
inline void store_last_steps(const Weights& weights, int64_t b, const uint8_t* codes_of_row,
                             Pairs table, uint8_t* steps) {
  alignas(64) uint8_t padded[load_bytes<E>()] = {};
  copy_block<E>(weights, codes_of_row, b, padded);
  store_steps<E>(steps, padded, table);
  const int lanes = lanes_of_block(weights, b);
  for (int j = 0; j < 4; ++j) {
    __builtin_memset(steps + j * kStepBytes + 4 * lanes, 0,
                     static_cast<unsigned long>(4 * (kLanes - lanes)));
  }
}

/// Rows of codes, each group with a codebook of its own: table(row, group).
template <class E, class Table>
[[gnu::always_inline]] inline void decode_with_tables(const Weights& weights, const StripRows& rows,
                                                      const BlockRange& blocks,
                                                      const TileOutput& out, const Table& table) {
  constexpr int64_t kBlockBytes = E::kBits * kLanes;
  const int64_t ahead = prefetch_distance<E>(weights, out);
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const uint8_t* codes_of_row = weights.codes + (rows.n + i) * weights.row_bytes;
    uint8_t* steps = panel_row(out, blocks, i);
    int64_t group = blocks.group;
    int64_t left = blocks.left;
    for (int64_t b = blocks.begin; b < blocks.end; ++b) {
      const uint8_t* block = codes_of_row + b * kBlockBytes;
      prefetch<kBlockBytes>(block, ahead);
      if (b < blocks.whole_blocks) {
        store_steps<E>(steps, block, table(i, group));
      } else {
        store_last_steps<E>(weights, b, codes_of_row, table(i, group), steps);
      }
      steps += kBlockTileBytes;
      if (--left == 0) {
        ++group;
        left = blocks.group_blocks;
      }
    }
  }
}

/// bf16 of the integers from -256 to 255.
struct IntegerPairs {
  alignas(64) uint16_t words[512];
};
constexpr IntegerPairs make_integer_pairs() {
  IntegerPairs table{};
  for (int i = 0; i < 512; ++i) {
    const auto bits = __builtin_bit_cast(uint32_t, static_cast<float>(i - 256));
    table.words[i] = static_cast<uint16_t>(bits >> 16);
  }
  return table;
}
constexpr IntegerPairs kIntegerPairs = make_integer_pairs();

/// Codes less their zero points: the codebook of each group starts at another integer.
template <Format kElement, Zero kZero>
void decode_codes(const Weights& weights, const StripRows& rows, const BlockRange& blocks,
                  const TileOutput& out) {
  using E = PairElement<kElement>;
  const Pairs table = load_pairs(reinterpret_cast<const uint8_t*>(kPairTable<kElement>.words));
  const uint8_t* zeros = weights.zeros + rows.n * weights.groups * zero_bytes(kZero);
  decode_with_tables<E>(weights, rows, blocks, out, [&](int64_t i, int64_t group) {
    if constexpr (kZero == Zero::kNone) return table;
    const int zero = zeros[i * weights.groups + group];
    return repeat_pairs<E::kBits>(kIntegerPairs.words + 256 - zero);
  });
}

/// Weights, rounded: so is the codebook of each group.
template <Format kElement, Zero kZero>
void decode_scaled(const Weights& weights, const StripRows& rows, const BlockRange& blocks,
                   const TileOutput& out) {
  using E = PairElement<kElement>;
  const Float values = load(kFloatTable<kElement, 16>.values);
  const int64_t staged = staged_floats(weights.groups);
  const int64_t half = staged_half(weights.groups);
  decode_with_tables<E>(weights, rows, blocks, out, [&](int64_t i, int64_t group) {
    const float* scale = out.scales + i * staged + group;
    Float value = values;
    if constexpr (kZero != Zero::kNone) value = sub(value, broadcast(scale[half]));
    return round_and_repeat(mul(broadcast(*scale), value));
  });
}

/// Whole weights, rounded to bf16, a panel at a time.
template <class Element, class Scaling>
void decode_weights(const Weights& weights, const StripRows& rows, const BlockRange& blocks,
                    const TileOutput& out) {
  constexpr int64_t kBlockBytes = Element::kBits * kLanes;
  const int64_t ahead = prefetch_distance<Element>(weights, out);
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const uint8_t* codes = weights.codes + (rows.n + i) * weights.row_bytes;
    uint8_t* steps = panel_row(out, blocks, i);
    for (int64_t b = blocks.begin; b < blocks.end; ++b) {
      alignas(64) float decoded[kBlockInputs];
      prefetch<kBlockBytes>(codes + b * kBlockBytes, ahead);
      decode_row<Element, Scaling>(weights, rows.n + i, b, 1, out.staged, decoded);
      Float v[8];
      if (Element::kOrder == ActivationOrder::kOctets) {
        for (int j = 0; j < 8; ++j) v[j] = load(decoded + j * kLanes);
      } else {
        transpose_octets(decoded, v);
      }
      for (int j = 0; j < 4; ++j) {
        store_pairs(steps + j * kStepBytes, round_to_pairs(v[j], v[4 + j]));
      }
      steps += kBlockTileBytes;
    }
  }
}

/// MXFP4 with its groups of 32. Blocks with a scale at the edges of the range, or at the end of the
/// row, go the long way.
template <class Element, class Scaling>
void decode_mxfp4(const Weights& weights, const StripRows& rows, const BlockRange& blocks,
                  const TileOutput& out) {
  using E = PairElement<Format::kE2M1>;
  const int64_t ahead = prefetch_distance<E>(weights, out);
  const Pairs table = load_pairs(reinterpret_cast<const uint8_t*>(kPairTable<Format::kE2M1>.words));
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const uint8_t* codes = weights.codes + (rows.n + i) * weights.row_bytes;
    const uint8_t* scales = weights.scales + (rows.n + i) * weights.groups;
    uint8_t* steps = panel_row(out, blocks, i);
    for (int64_t b = blocks.begin; b < blocks.end; ++b, steps += kBlockTileBytes) {
      const uint8_t* block = codes + b * 4 * kLanes;
      prefetch<4 * kLanes>(block, ahead);
      if (b >= blocks.whole_blocks || !exponents_fit(scales + 4 * b)) {
        TileOutput one = out;
        one.panel = steps - i % kTileRows * 64 - i / kTileRows * kBlockTileBytes;
        decode_weights<Element, Scaling>(weights, {rows.n, i, i + 1}, {.begin = b, .end = b + 1},
                                         one);
        continue;
      }
      const Pairs powers = exponent_steps(scales + 4 * b);
      const auto four = E::load(block);
      store_pairs(steps, add_exponents(E::template value_of<0>(four, table), powers));
      store_pairs(steps + kStepBytes, add_exponents(E::template value_of<1>(four, table), powers));
      store_pairs(steps + 2 * kStepBytes,
                  add_exponents(E::template value_of<2>(four, table), powers));
      store_pairs(steps + 3 * kStepBytes,
                  add_exponents(E::template value_of<3>(four, table), powers));
    }
  }
}
