// How weights become the tiles of a matrix unit: bf16, 16 rows by 32 inputs. Included inside the
// namespace of an instruction set with tiles, after gemm.inl.h.
//
// A panel is some blocks of kStripRows rows; a block of 128 inputs is four steps of 32, in the
// order of kSplitPairs (lane i of a step holds inputs 8 i + j and 8 i + 4 + j):
//
//   panel [tile of rows: 4][block][step: 4] of      input pair 0   1  ...  15
//                                              row 0   | 4 bytes |   |    |   |
//                                              ...     |
//                                              row 15  |                      |   1 KiB
//
//   codes    a codebook that bf16 holds, groups of whole blocks: codes less their zero points,
//            which are exact; scales multiply the sums
//   scaled   the same groups and any codebook of at most 16 entries: scale * (element - zero),
//            rounded to bf16. A codebook is rounded for each group, then looked up like codes.
//            And bytes, without a codebook
//   dense    bf16 as they are, in the order of kFollowingTiles
//   weights  everything else: weights as floats, then bf16. Exact when the product has 8 bits: E2M1
//            with E8M0 scales. Else rounded, or two terms, high + low: then a block is eight steps,
//            and the last four meet the same activations as the first
//
// e2m1_decoders.inl.h has those of MXFP4 and NVFP4.

constexpr int64_t kTileRows = 16;
constexpr int64_t kSplitRows = kTileRows / 2;
constexpr int64_t kTileRowGrain = 32;  // PackedLayout::row_grain: half of a strip
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
  const float* scales;  // staged, of the strip: [row][staged_floats]; only with `stage`
  float* staged;        // room for one row's
  bool prefetch;        // ask for the codes that come next
  int64_t block_bytes;  // of a tile's rows: kBlockTileBytes for each term of the weights
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
  int64_t terms = 1;  // tiles of weights for each tile of activations
};

/// Where the steps of block b of row i of a strip lie.
inline uint8_t* panel_steps(const TileOutput& out, const BlockRange& blocks, int64_t i, int64_t b) {
  const int64_t block = i / kTileRows * (blocks.end - blocks.begin) + b - blocks.begin;
  return out.panel + block * out.block_bytes + i % kTileRows * 64;
}

/// What decoders ask for while they are at row i of block b: one of the lines that they will need
/// kAheadWindows windows of kWindowBlocks blocks later, in this strip or the next.
///
///              window of 4 blocks, and the next
///   row 0     | b | b |   |   | 0 | 1 | 2 | 3 |      of_row(0..3) of its first block
///   row 1     | b | b |   |   | 4 | 5 | 6 | 7 |      of_row(4..7)
///
/// Four neighbours in a row, as memory likes, and never more than 16 KB (4 bits) on their way: what
/// is asked for a whole strip ahead may have left the second-level cache when it is needed. An
/// address as an integer, as it may lie behind the end of the matrix, where no pointer may point.
constexpr int64_t kWindowBlocks = 4;
constexpr int64_t kAheadWindows = 1;
struct TilePrefetch {
  int64_t at;  // for row 0 of the strip
  int64_t row_bytes;
  int64_t block_bytes;

  int64_t of_row(int64_t i) const {
    return at + i / kWindowBlocks * row_bytes + i % kWindowBlocks * block_bytes;
  }
};
template <class E>
inline TilePrefetch tile_prefetch(const Weights& weights, int64_t n, int64_t b, bool wanted) {
  constexpr int64_t kBlockBytes = E::kBits * kLanes;
  const int64_t row_bytes = weights.row_bytes;
  auto at = reinterpret_cast<int64_t>(weights.codes + n * row_bytes);
  if (!wanted) return {at, 0, 0};  // which is in a cache
  const int64_t blocks = (weights.cols + kBlockInputs - 1) / kBlockInputs;
  const int64_t windows = (blocks + kWindowBlocks - 1) / kWindowBlocks;
  int64_t window = b / kWindowBlocks + kAheadWindows;
  for (; window >= windows; window -= windows) at += kStripRows * row_bytes;
  at += window * kWindowBlocks * kBlockBytes;
  at += b % kWindowBlocks * (kStripRows / kWindowBlocks) * row_bytes;
  return {at, row_bytes, kBlockBytes};
}

/// Block b of a tile: 16 rows of the strip from rows.begin on, up to rows.end, by
/// decode(row of the tile, codes). Rows that the strip does not have stay what they were: what
/// comes of them is not stored.
template <class E, class Decode>
[[gnu::always_inline]] inline void decode_rows_of_tile(const Weights& weights,
                                                       const StripRows& rows, int64_t b,
                                                       int64_t whole_blocks, const Decode& decode) {
  constexpr int64_t kBlockBytes = E::kBits * kLanes;
  const int64_t row_bytes = weights.row_bytes;
  const uint8_t* codes = weights.codes + (rows.n + rows.begin) * row_bytes + b * kBlockBytes;
  const int64_t left = rows.end - rows.begin;
  if (b < whole_blocks && left >= kTileRows) {
    const TilePrefetch ahead = tile_prefetch<E>(weights, rows.n, b, true);
    int64_t soon = ahead.of_row(rows.begin);
    static_assert(kTileRows % kWindowBlocks == 0);
#pragma GCC unroll 4
    for (int64_t r = 0; r < kTileRows; r += kWindowBlocks) {
#pragma GCC unroll 4
      for (int64_t j = 0; j < kWindowBlocks; ++j) {
        prefetch<kBlockBytes>(nullptr, soon + j * kBlockBytes);
        decode(r + j, codes);
        codes += row_bytes;
      }
      soon += row_bytes;
    }
    return;
  }
  for (int64_t r = 0; r < (left < kTileRows ? left : kTileRows); ++r) {
    alignas(64) uint8_t padded[load_bytes<E>()] = {};
    copy_block<E>(weights, codes - b * kBlockBytes, b, padded);
    decode(r, padded);
    codes += row_bytes;
  }
}

/// The four steps of a block of codes, looked up, or what E makes of them.
template <class E, class Table>
[[gnu::always_inline]] inline void store_steps(uint8_t* steps, const uint8_t* block,
                                               const Table& table) {
  const auto codes = E::load(block);
  store_pairs(steps, E::template value_of<0>(codes, table));
  store_pairs(steps + kStepBytes, E::template value_of<1>(codes, table));
  store_pairs(steps + 2 * kStepBytes, E::template value_of<2>(codes, table));
  store_pairs(steps + 3 * kStepBytes, E::template value_of<3>(codes, table));
}

/// The last block of a row, up to its last octet: behind it are zeros, which an infinite scale
/// must not turn into NaN.
template <class E, class Table>
inline void store_last_steps(const Weights& weights, int64_t b, const uint8_t* codes_of_row,
                             const Table& table, uint8_t* steps) {
  alignas(64) uint8_t padded[load_bytes<E>()] = {};
  copy_block<E>(weights, codes_of_row, b, padded);
  store_steps<E>(steps, padded, table);
  const int lanes = lanes_of_block(weights, b);
  for (int j = 0; j < 4; ++j) {
    __builtin_memset(steps + j * kStepBytes + 4 * lanes, 0,
                     static_cast<unsigned long>(4 * (kLanes - lanes)));
  }
}

/// A block that rows have whole: decode(row of the strip, codes, steps) for each row.
template <class E, class Decode>
[[gnu::always_inline]] inline void decode_block_of_rows(const Weights& weights,
                                                        const StripRows& rows,
                                                        const BlockRange& blocks, int64_t b,
                                                        const TileOutput& out,
                                                        const Decode& decode) {
  constexpr int64_t kBlockBytes = E::kBits * kLanes;
  const TilePrefetch ahead = tile_prefetch<E>(weights, rows.n, b, out.prefetch);
  const int64_t row_bytes = weights.row_bytes;  // in a register: stores could change the other
  const uint8_t* codes = weights.codes + (rows.n + rows.begin) * row_bytes + b * kBlockBytes;
  for (int64_t begin = rows.begin, end; begin < rows.end; begin = end) {
    const int64_t tile_end = (begin / kTileRows + 1) * kTileRows;
    end = tile_end < rows.end ? tile_end : rows.end;
    uint8_t* steps = panel_steps(out, blocks, begin, b);
    for (int64_t i = begin; i < end; ++i) {
      prefetch<kBlockBytes>(nullptr, ahead.of_row(i));
      decode(i, codes, steps);
      codes += row_bytes;
      steps += 64;
    }
  }
}

/// Rows of codes, each group with a codebook of its own: table(row, group).
template <class E, class Table>
[[gnu::always_inline]] inline void decode_with_tables(const Weights& weights, const StripRows& rows,
                                                      const BlockRange& blocks,
                                                      const TileOutput& out, const Table& table) {
  int64_t group = blocks.group;
  int64_t left = blocks.left;
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    if (b < blocks.whole_blocks) {
      decode_block_of_rows<E>(weights, rows, blocks, b, out,
                              [=](int64_t i, const uint8_t* codes, uint8_t* steps) {
                                store_steps<E>(steps, codes, table(i, group));
                              });
    } else {
      for (int64_t i = rows.begin; i < rows.end; ++i) {
        const uint8_t* codes = weights.codes + (rows.n + i) * weights.row_bytes;
        store_last_steps<E>(weights, b, codes, table(i, group), panel_steps(out, blocks, i, b));
      }
    }
    if (--left == 0) {
      ++group;
      left = blocks.group_blocks;
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

inline Pairs table_of(const PairTable& table) {
  return load_pairs(reinterpret_cast<const uint8_t*>(table.words));
}

/// Codes less their zero points: the codebook of each group starts at another integer.
template <Format kElement, Zero kZero>
void decode_codes(const Weights& weights, const StripRows& rows, const BlockRange& blocks,
                  const TileOutput& out) {
  using E = PairElement<kElement>;
  const Pairs table = table_of(kPairTable<kElement>);
  const int64_t groups = weights.groups;
  const uint8_t* zeros = weights.zeros + rows.n * groups * zero_bytes(kZero);
  decode_with_tables<E>(weights, rows, blocks, out, [=](int64_t i, int64_t group) {
    if constexpr (kZero == Zero::kNone) return table;
    const int64_t zero = zeros[i * groups + group];
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
  const float* scales = out.scales;
  decode_with_tables<E>(weights, rows, blocks, out, [=](int64_t i, int64_t group) {
    const float* scale = scales + i * staged + group;
    Float value = values;
    if constexpr (kZero != Zero::kNone) value = sub(value, broadcast(scale[half]));
    return round_and_repeat(mul(broadcast(*scale), value));
  });
}

/// The same for codes of eight bits, with arithmetic in the place of codebooks.
template <Format kElement, Zero kZero>
void decode_scaled_bytes(const Weights& weights, const StripRows& rows, const BlockRange& blocks,
                         const TileOutput& out) {
  const int64_t staged = staged_floats(weights.groups);
  const int64_t half = staged_half(weights.groups);
  const float* scales = out.scales;
  decode_with_tables<ScaledBytes>(weights, rows, blocks, out, [=](int64_t i, int64_t group) {
    const float* scale = scales + i * staged + group;
    constexpr auto kCenter = static_cast<float>(Element<kElement>::kCenter);
    return ScaleAndZero{broadcast(*scale), broadcast(scale[half] + kCenter)};
  });
}

/// What becomes of weights: bf16 that are exact, or rounded, or two of them: high + low.
enum class WeightTerms : uint8_t { kExact, kRounded, kTwo };

/// One step of a row, from the first weights of each pair and the second.
template <WeightTerms kTerms>
[[gnu::always_inline]] inline void store_terms(uint8_t* step, Float first, Float second) {
  if constexpr (kTerms == WeightTerms::kExact) {
    store_pairs(step, upper_halves(first, second));
  } else {
    const Pairs high = round_to_pairs(first, second);
    store_pairs(step, high);
    if constexpr (kTerms == WeightTerms::kTwo) {
      store_pairs(step + kBlockTileBytes,
                  round_to_pairs(sub(first, low_of_pairs(high)), sub(second, high_of_pairs(high))));
    }
  }
}

/// A block of weights as floats, then bf16: the long way, for the end of a row.
template <class Element, class Scaling, WeightTerms kTerms>
void decode_weights_of_block(const Weights& weights, const StripRows& rows,
                             const BlockRange& blocks, int64_t b, const TileOutput& out) {
  constexpr int64_t kBlockBytes = Element::kBits * kLanes;
  const TilePrefetch ahead = tile_prefetch<Element>(weights, rows.n, b, out.prefetch);
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    alignas(64) float decoded[kBlockInputs];
    prefetch<kBlockBytes>(nullptr, ahead.of_row(i));
    decode_row<Element, Scaling>(weights, rows.n + i, b, 1, out.staged, decoded);
    Float v[8];
    if (Element::kOrder == InputOrder::kOctets) {
      for (int j = 0; j < 8; ++j) v[j] = load(decoded + j * kLanes);
    } else {
      transpose_octets(decoded, v);
    }
    uint8_t* steps = panel_steps(out, blocks, i, b);
    for (int j = 0; j < 4; ++j) {
      store_terms<kTerms>(steps + j * kStepBytes, v[j], v[4 + j]);
    }
  }
}

/// Step j of a block: codes times what `lanes` has.
template <int j, class Element, class Scaling, WeightTerms kTerms>
[[gnu::always_inline]] inline void store_weights(uint8_t* steps,
                                                 const typename Element::Codes& codes,
                                                 const typename Scaling::Lanes& lanes) {
  const Float first = Scaling::weight(Element::template value<j>(codes), lanes);
  const Float second = Scaling::weight(Element::template value<4 + j>(codes), lanes);
  store_terms<kTerms>(steps + j * kStepBytes, first, second);
}

/// A block that rows have whole; never through memory.
template <class Element, class Scaling, WeightTerms kTerms>
void decode_weights_of_whole_block(const Weights& weights, const StripRows& rows,
                                   const BlockRange& blocks, int64_t b, const TileOutput& out) {
  const Scaling scaling(weights, b);
  const int64_t first = b * kBlockInputs / weights.group_size;
  const int64_t last = ((b + 1) * kBlockInputs - 1) / weights.group_size;
  float* staged = out.staged;
  decode_block_of_rows<Element>(weights, rows, blocks, b, out,
                                [=, &weights](int64_t i, const uint8_t* block, uint8_t* steps) {
                                  Scaling::stage(weights, rows.n + i, first, last + 1, staged);
                                  const auto codes = Element::load(block);
                                  const auto lanes = scaling.at(staged, kLanes);
                                  store_weights<0, Element, Scaling, kTerms>(steps, codes, lanes);
                                  store_weights<1, Element, Scaling, kTerms>(steps, codes, lanes);
                                  store_weights<2, Element, Scaling, kTerms>(steps, codes, lanes);
                                  store_weights<3, Element, Scaling, kTerms>(steps, codes, lanes);
                                });
}

template <class Element, class Scaling, WeightTerms kTerms>
void decode_weights(const Weights& weights, const StripRows& rows, const BlockRange& blocks,
                    const TileOutput& out) {
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    if constexpr (Element::kOrder == InputOrder::kOctets) {
      if (b < blocks.whole_blocks) {
        decode_weights_of_whole_block<Element, Scaling, kTerms>(weights, rows, blocks, b, out);
        continue;
      }
    }
    decode_weights_of_block<Element, Scaling, kTerms>(weights, rows, blocks, b, out);
  }
}

/// A block of weights as floats, then bf16, in the order of kFollowingTiles: the long way.
template <class Element, class Scaling>
void decode_following_weights(const Weights& weights, const StripRows& rows,
                              const BlockRange& blocks, int64_t b, const TileOutput& out) {
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    alignas(64) float decoded[kBlockInputs];
    decode_row<Element, Scaling>(weights, rows.n + i, b, 1, out.staged, decoded);
    alignas(64) float following[kBlockInputs];
    for (int64_t k = 0; k < kBlockInputs; ++k) {
      const bool octets = Element::kOrder == InputOrder::kOctets;
      following[k] = decoded[octets ? k % 8 * kLanes + k / 8 : k];
    }
    uint8_t* steps = panel_steps(out, blocks, i, b);
    for (int j = 0; j < 4; ++j) {
      store_pairs(steps + j * kStepBytes, upper_halves(load_looked_up<0>(following + 32 * j),
                                                       load_looked_up<1>(following + 32 * j)));
    }
  }
}

/// Dense bf16: only the order changes, and in kFollowingTiles four neighbours stay together.
template <class Element, class Scaling>
void decode_dense_pairs(const Weights& weights, const StripRows& rows, const BlockRange& blocks,
                        const TileOutput& out) {
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    if (b >= blocks.whole_blocks) {
      decode_following_weights<Element, Scaling>(weights, rows, blocks, b, out);
      continue;
    }
    decode_block_of_rows<Element>(
        weights, rows, blocks, b, out, [=](int64_t, const uint8_t* block, uint8_t* steps) {
          for (int j = 0; j < 4; ++j) {
            store_pairs(steps + j * kStepBytes, load_step(block + 64 * j));
          }
        });
  }
}
