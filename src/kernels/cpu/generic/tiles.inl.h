// The mainloop of matrix units: tiles of 16 weights rows by 32 inputs, bf16. Included inside the
// namespace of an instruction set with tiles, after gemm.inl.h and pair_products.inl.h.
//
//   for each strip of 32 rows n of weights:
//     decode them to bf16: all inputs (second-level cache), or, for at most 32 rows of activations,
//     which need them once, a few blocks at a time (first level)
//     for each 32 rows m of activations:      2 x 2 tiles of sums
//       for each block of 128 inputs:         4 steps of 32 inputs, in the order of kPairs
//         after the last block of a group:    y += scale * sums, and the sums start again
//
//                     16 m             C = A * B: rows are outputs, columns are activations, so
//                 +--------+           that weights are never transposed: a row of A is what one
//       16 pairs  |   B    |           decoded vector of a row of weights is
//                 +--------+
//    32   +----+  +--------+
//   16 n  | A  |  |   C    |
//         +----+  +--------+
//
// How weights become bf16:
//   codes     a codebook that bf16 holds, groups of whole blocks: the tile multiplies codes less
//             their zero point, which are exact, and scales multiply the sums
//   weights   everything else: scale * (element - zero) as a float, rounded to bf16. Exact when the
//             product has 8 bits: E2M1 with E8M0 or E4M3 scales, and dense bf16
//
// kSplitTiles: x = high + middle + low, three steps for one. Accuracy, u = 2^-24:
//   |y - exact| <= g * sum |w| |x|,  g = r + n u / (1 - n u),  n = 3 K + groups + 4 (K: kTiles)
//   r = 2^-8 for kTiles (activations), and 2^-8 more where weights are rounded
// A tile adds two products at a time to each sum and rounds each time; it counts subnormal bf16 as
// zero.

constexpr int64_t kStripRows = 32;
constexpr int64_t kTileFewRows = 4;
constexpr int64_t kStepBytes = kTileRows * 64;       // one tile
constexpr int64_t kBlockTileBytes = 4 * kStepBytes;  // a block of 16 rows: four steps

/// Some blocks of every row, and what divisions would tell of them.
struct BlockRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t whole_blocks = 0;  // of the row: see loadable_blocks()
  int64_t group_blocks = 1;  // in a group; only with scales_sums
  int64_t group = 0;         // that `begin` lies in
  int64_t left = 1;          // blocks of that group from `begin` on
};

/// Decodes blocks of row n: each to four steps of 64 bytes, kStepBytes apart.
using DecodeTileRow = void (*)(const Weights& weights, int64_t n, const BlockRange& blocks,
                               float* staged, uint8_t* rows);

/// How a strip becomes tiles, and whether scales are left to multiply the sums.
struct TileDecoding {
  DecodeTileRow decode;
  bool scales_sums;
  int64_t whole_blocks;
  /// Floats of the scales of one row; only with scales_sums.
  void (*stage)(const Weights& weights, int64_t row, int64_t begin, int64_t end, float* staged);
};

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
void decode_codes(const Weights& weights, int64_t n, const BlockRange& blocks, float*,
                  uint8_t* rows) {
  using E = PairElement<kElement>;
  constexpr int64_t kBlockBytes = E::kBits * kLanes;
  const uint8_t* codes_of_row = weights.codes + n * weights.row_bytes;
  const uint8_t* zeros = weights.zeros + n * weights.groups * zero_bytes(kZero);
  int64_t group = blocks.group;
  int64_t left = blocks.left;
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const uint8_t* block = codes_of_row + b * kBlockBytes;
    prefetch<kBlockBytes>(block, kStripRows * weights.row_bytes);  // the next strip
    alignas(64) uint8_t padded[load_bytes<E>()];
    if (b >= blocks.whole_blocks) {
      __builtin_memset(padded, 0, sizeof(padded));
      copy_block<E>(weights, codes_of_row, b, padded);
      block = padded;
    }
    Pairs table = load_pairs(reinterpret_cast<const uint8_t*>(kPairTable<kElement>.words));
    if constexpr (kZero != Zero::kNone) {
      const int zero = zeros[group];
      table = repeat_pairs<E::kBits>(kIntegerPairs.words + 256 - zero);
    }
    const auto codes = E::load(block);
    store_pairs(rows, E::template value_of<0>(codes, table));
    store_pairs(rows + kStepBytes, E::template value_of<1>(codes, table));
    store_pairs(rows + 2 * kStepBytes, E::template value_of<2>(codes, table));
    store_pairs(rows + 3 * kStepBytes, E::template value_of<3>(codes, table));
    rows += kBlockTileBytes;
    if (--left == 0) {
      ++group;
      left = blocks.group_blocks;
    }
  }
}

/// Whole weights, rounded to bf16, a panel at a time.
template <class Element, class Scaling>
void decode_weights(const Weights& weights, int64_t n, const BlockRange& blocks, float* staged,
                    uint8_t* rows) {
  for (int64_t first = blocks.begin; first < blocks.end; first += kPanelBlocks) {
    const int64_t count = blocks.end - first < kPanelBlocks ? blocks.end - first : kPanelBlocks;
    alignas(64) float decoded[kPanelInputs];
    decode_row<Element, Scaling>(weights, n, first, count, staged, decoded);
    for (int64_t b = 0; b < count; ++b) {
      Float v[8];
      if (Element::kOrder == ActivationOrder::kOctets) {
        for (int j = 0; j < 8; ++j) v[j] = load(decoded + b * kBlockInputs + j * kLanes);
      } else {
        transpose_octets(decoded + b * kBlockInputs, v);
      }
      for (int j = 0; j < 4; ++j) {
        store_pairs(rows + j * kStepBytes, round_to_pairs(v[j], v[4 + j]));
      }
      rows += kBlockTileBytes;
    }
  }
}

/// MXFP4 with its groups of 32: scales are added to the exponents of the bf16 elements. Blocks with
/// a scale at the edges of the range, or at the end of the row, go the long way.
template <class Element, class Scaling>
void decode_mxfp4(const Weights& weights, int64_t n, const BlockRange& blocks, float* staged,
                  uint8_t* rows) {
  using E = PairElement<Format::kE2M1>;
  const uint8_t* codes = weights.codes + n * weights.row_bytes;
  const uint8_t* scales = weights.scales + n * weights.groups;
  const Pairs table = load_pairs(reinterpret_cast<const uint8_t*>(kPairTable<Format::kE2M1>.words));
  for (int64_t b = blocks.begin; b < blocks.end; ++b, rows += kBlockTileBytes) {
    const uint8_t* block = codes + b * 4 * kLanes;
    prefetch<4 * kLanes>(block, kStripRows * weights.row_bytes);
    if (b >= blocks.whole_blocks || !exponents_fit(scales + 4 * b)) {
      decode_weights<Element, Scaling>(weights, n, {.begin = b, .end = b + 1}, staged, rows);
      continue;
    }
    const Pairs steps = exponent_steps(scales + 4 * b);
    const auto four = E::load(block);
    store_pairs(rows, add_exponents(E::template value_of<0>(four, table), steps));
    store_pairs(rows + kStepBytes, add_exponents(E::template value_of<1>(four, table), steps));
    store_pairs(rows + 2 * kStepBytes, add_exponents(E::template value_of<2>(four, table), steps));
    store_pairs(rows + 3 * kStepBytes, add_exponents(E::template value_of<3>(four, table), steps));
  }
}

/// Where the parts of a strip lie in a thread's scratch memory.
struct TileScratch {
  uint8_t* weights;  // [2 tiles of rows][block][step][16][64]
  float* scales;     // [32][staged]
  float* sums;       // [2][2][16][16] of one group
  float* totals;     // the same, of the row so far
};

inline int64_t strip_bytes(int64_t k) {
  return 2 * ((k + kBlockInputs - 1) / kBlockInputs) * kBlockTileBytes;
}

inline TileScratch tile_scratch(const MatmulTask& task) {
  TileScratch scratch{};
  scratch.weights = task.scratch;
  scratch.sums = reinterpret_cast<float*>(task.scratch + strip_bytes(task.weights.cols));
  scratch.totals = scratch.sums + 4 * 256;
  scratch.scales = scratch.totals + 4 * 256;
  return scratch;
}

/// The row of weights that row i of the strip at n is; beyond the last the last is repeated.
inline int64_t strip_row(const MatmulTask& task, int64_t n, int64_t i) {
  return n + i < task.row_end ? n + i : task.row_end - 1;
}

inline void stage_strip(const MatmulTask& task, const TileDecoding& decoding, int64_t n,
                        const TileScratch& scratch) {
  if (!decoding.scales_sums) return;
  const int64_t staged = staged_floats(task.weights.groups);
  for (int64_t i = 0; i < kStripRows; ++i) {
    decoding.stage(task.weights, strip_row(task, n, i), 0, task.weights.groups,
                   scratch.scales + i * staged);
  }
}

/// The tiles of these blocks: those of the first 16 rows, then the others.
inline void decode_strip(const MatmulTask& task, const TileDecoding& decoding, int64_t n,
                         const BlockRange& blocks, const TileScratch& scratch) {
  const int64_t staged = staged_floats(task.weights.groups);
  const int64_t tile_bytes = (blocks.end - blocks.begin) * kBlockTileBytes;
  for (int64_t i = 0; i < kStripRows; ++i) {
    decoding.decode(task.weights, strip_row(task, n, i), blocks, scratch.scales + i * staged,
                    scratch.weights + i / kTileRows * tile_bytes + i % kTileRows * 64);
  }
}

/// totals += scale * sums for all four tiles, the scale of each row of C being that of its output.
inline void add_scaled(const TileScratch& scratch, int64_t staged, int64_t group, int columns) {
  for (int64_t i = 0; i < kStripRows; ++i) {
    const Float scale = broadcast(scratch.scales[i * staged + group]);
    for (int c = 0; c < columns; ++c) {
      const int64_t at = (i / kTileRows * 2 + c) * 256 + i % kTileRows * 16;
      store(scratch.totals + at, fma(scale, load(scratch.sums + at), load(scratch.totals + at)));
    }
  }
}

/// y[m][n] from totals [n tile][m tile][n][m].
inline void store_tiles(const MatmulTask& task, const float* totals, int64_t n, int64_t m) {
  const float factor = task.weights.tensor_scale;
  for (int64_t nt = 0; nt < 2; ++nt) {
    for (int64_t mt = 0; mt < 2; ++mt) {
      const int64_t first_n = n + nt * kTileRows;
      const int64_t first_m = m + mt * kTileRows;
      if (first_n >= task.row_end || first_m >= task.x.rows) continue;
      alignas(64) float transposed[256];
      transpose_16x16(totals + (nt * 2 + mt) * 256, transposed);
      const int64_t rows = task.row_end - first_n < 16 ? task.row_end - first_n : 16;
      const int64_t columns = task.x.rows - first_m < 16 ? task.x.rows - first_m : 16;
      Float bias = zero();
      if (task.bias != nullptr) bias = load_first(task.bias + first_n, rows);
      for (int64_t c = 0; c < columns; ++c) {
        const Float result = add(mul(load(transposed + c * 16), broadcast(factor)), bias);
        store_first(task.y + (first_m + c) * task.y_stride + first_n, result, rows);
      }
    }
  }
}

/// These blocks of one strip times 16 or 32 rows of activations. Sums go on from the blocks before
/// them.
template <int kTerms, int kColumns>
void multiply_tiles(const MatmulTask& task, const TileDecoding& decoding, int64_t m,
                    const BlockRange& range, const TileScratch& scratch) {
  const Weights& weights = task.weights;
  const int64_t blocks = (weights.cols + kBlockInputs - 1) / kBlockInputs;
  const int64_t staged = staged_floats(weights.groups);
  const uint8_t* x[2];
  for (int c = 0; c < 2; ++c) {
    const int64_t tile = m / kTileRows + (c < kColumns ? c : 0);
    x[c] = task.x.data + tile * task.x.stride + range.begin * kTerms * kBlockTileBytes;
  }
  const uint8_t* w = scratch.weights;
  const int64_t second = (range.end - range.begin) * kBlockTileBytes;
  if (range.begin == 0) {
    for (int i = 0; i < 4 * 256; i += 16) store(scratch.totals + i, zero());
    zero_tiles();
  }
  int64_t group = range.group;
  int64_t left = range.left;
  for (int64_t b = range.begin; b < range.end; ++b) {
    for (int t = 0; t < kTerms; ++t) {
      for (int j = 0; j < 4; ++j) {
        multiply_step<kColumns>(w + j * kStepBytes, w + second + j * kStepBytes,
                                x[0] + (4 * t + j) * kStepBytes, x[1] + (4 * t + j) * kStepBytes);
      }
    }
    w += kBlockTileBytes;
    for (int c = 0; c < 2; ++c) x[c] += kTerms * kBlockTileBytes;
    if (--left != 0 && b + 1 != blocks) continue;
    left = range.group_blocks;
    if (decoding.scales_sums) {
      store_sums<kColumns>(scratch.sums);
      add_scaled(scratch, staged, group++, kColumns);
      zero_tiles();
    } else {
      store_sums<kColumns>(scratch.totals);
    }
  }
}

/// Blocks [begin, end) of the rows of a task.
inline BlockRange block_range(const Weights& weights, const TileDecoding& decoding, int64_t begin,
                              int64_t end) {
  const bool one_group = !decoding.scales_sums || weights.group_size >= weights.cols;
  BlockRange range = {.begin = begin, .end = end, .whole_blocks = decoding.whole_blocks};
  range.group_blocks = one_group ? INT64_MAX : weights.group_size / kBlockInputs;
  range.group = begin / range.group_blocks;
  range.left = range.group_blocks - begin % range.group_blocks;
  return range;
}

/// One strip times at most 32 rows of activations: decoded weights are used once and at once.
template <int kTerms, int kColumns>
void multiply_strip_once(const MatmulTask& task, const TileDecoding& decoding, int64_t n,
                         const TileScratch& scratch) {
  constexpr int64_t kFewBlocks = 4;
  const int64_t blocks = (task.weights.cols + kBlockInputs - 1) / kBlockInputs;
  for (int64_t b = 0; b < blocks; b += kFewBlocks) {
    const int64_t end = blocks - b < kFewBlocks ? blocks : b + kFewBlocks;
    const BlockRange range = block_range(task.weights, decoding, b, end);
    decode_strip(task, decoding, n, range, scratch);
    multiply_tiles<kTerms, kColumns>(task, decoding, 0, range, scratch);
  }
  store_tiles(task, scratch.totals, n, 0);
}

template <int kTerms>
void multiply_strip_many(const MatmulTask& task, const TileDecoding& decoding, int64_t n,
                         const TileScratch& scratch) {
  const int64_t blocks = (task.weights.cols + kBlockInputs - 1) / kBlockInputs;
  const BlockRange all = block_range(task.weights, decoding, 0, blocks);
  decode_strip(task, decoding, n, all, scratch);
  for (int64_t m = 0; m < task.x.rows; m += 2 * kTileRows) {
    if (task.x.rows - m > kTileRows) {
      multiply_tiles<kTerms, 2>(task, decoding, m, all, scratch);
    } else {
      multiply_tiles<kTerms, 1>(task, decoding, m, all, scratch);
    }
    store_tiles(task, scratch.totals, n, m);
  }
}

template <int kTerms>
void tile_rows(const MatmulTask& task, const TileDecoding& decoding) {
  const TileScratch scratch = tile_scratch(task);
  const TileSession session;
  for (int64_t n = task.row_begin; n < task.row_end; n += kStripRows) {
    stage_strip(task, decoding, n, scratch);
    if (task.x.rows <= kTileRows) {
      multiply_strip_once<kTerms, 1>(task, decoding, n, scratch);
    } else if (task.x.rows <= 2 * kTileRows) {
      multiply_strip_once<kTerms, 2>(task, decoding, n, scratch);
    } else {
      multiply_strip_many<kTerms>(task, decoding, n, scratch);
    }
  }
}

/// Packs up to 16 rows for kTiles or kSplitTiles: block after block, each step a tile of
/// [lane][row][2]; rows that are not there are zeros.
template <int kTerms>
void pack_tiles(uint8_t* packed, const float* x, int64_t rows, const uint32_t* gather, int64_t k) {
  for (int64_t begin = 0; begin < k; begin += kBlockInputs) {
    alignas(64) uint8_t steps[kTerms * 4][kTileRows][64] = {};
    for (int64_t m = 0; m < rows; ++m) {
      alignas(64) float block[kBlockInputs];
      Float v[8];
      transpose_octets(block_inputs(x + m * k, gather, begin, k, block), v);
      for (int t = 0; t < kTerms; ++t) {
        for (int j = 0; j < 4; ++j) {
          const Pairs pair = round_to_pairs(v[j], v[4 + j]);
          store_pairs(steps[4 * t + j][m], pair);
          v[j] = sub(v[j], low_of_pairs(pair));
          v[4 + j] = sub(v[4 + j], high_of_pairs(pair));
        }
      }
    }
    for (int s = 0; s < kTerms * 4; ++s) {
      transpose_16x16(reinterpret_cast<const float*>(steps[s]),
                      reinterpret_cast<float*>(packed + s * kStepBytes));
    }
    packed += kTerms * kBlockTileBytes;
  }
}

inline void pack_any(uint8_t* packed, const float* x, int64_t rows, const uint32_t* gather,
                     int64_t k, ActivationOrder order) {
  if (order == ActivationOrder::kTiles) return pack_tiles<1>(packed, x, rows, gather, k);
  if (order == ActivationOrder::kSplitTiles) return pack_tiles<3>(packed, x, rows, gather, k);
  pack(packed, x, rows, gather, k, order);
}

/// The methods of one format. Codes as they are where scales can wait for the sums.
template <class Element, Format kElement, Zero kZero, bool kMxfp4, class Broadcast, class Spread>
struct TileMethods {
  static constexpr bool kCodes = exact_pairs<kElement>();

  static TileDecoding decoding(const Weights& weights) {
    const bool whole_groups = groups_cover_blocks(weights);
    if constexpr (kCodes) {
      const int64_t whole_blocks = loadable_blocks<PairElement<kElement>>(weights);
      if (whole_groups) {
        return {&decode_codes<kElement, kZero>, true, whole_blocks, &Broadcast::stage};
      }
    }
    if constexpr (kMxfp4) {
      const int64_t whole_blocks = weights.cols / kBlockInputs;
      if (weights.group_size == 32) {
        return {&decode_mxfp4<Element, Spread>, false, whole_blocks, nullptr};
      }
    }
    return {whole_groups ? &decode_weights<Element, Broadcast> : &decode_weights<Element, Spread>,
            false, 0, nullptr};
  }
  template <int kTerms>
  static void multiply(const MatmulTask& task) {
    tile_rows<kTerms>(task, decoding(task.weights));
  }
  static constexpr Method kRounded = {ActivationOrder::kTiles, &multiply<1>};
  static constexpr Method kExact = {ActivationOrder::kSplitTiles, &multiply<3>};
};
