// The mainloop of matrix units for a few rows of activations and weights that are integers, or
// MXFP4: tiles of bytes. Included inside the namespace of an instruction set with tiles, after
// digits.inl.h and digit_codes.inl.h.
//
// Each of the three digits of an activation is a column, so that a tile has 5 rows of activations,
// and the products are exact integers:
//
//             d0 of 5 rows   d1   d2   0
//             +-------------+----+----+-+     A: codes as they are, 16 rows by 64 inputs
//    16 quads |      B      |    |    | |     B: digits, 64 inputs in quads by 15 columns
//             +-------------+----+----+-+
//   16   +--+ +-------------+----+----+-+     scales and zero points come with the sums C:
//   rows |A | |      C      |    |    | |     total += scale * (step * 2^(8 i) * sum
//        +--+ +-------------+----+----+-+                      - zero * sum of the inputs)
//
//   for each strip of 64 rows, for each block of 128 inputs, for each tile of 16 rows:
//     products of this tile; meanwhile the next is decoded, and sums of the one before the last
//     are scaled and added
//
// Eight rows take two tiles, d1 and d2 in one and d0 in the other, whose sums join those of d1
// before they are scaled. With two digits they take one.
//
// Accuracy, u = 2^-24, b blocks: products and what they are summed up to in a block are exact. With
// q what an activation is rounded by, half a step, 2^-22 (two digits: 2^-14) of the largest of its
// block, or 2^-127, and as the digits of x are together at most 3.02 |x|:
//   |y - exact| <= sum |w| q + 3.02 n u / (1 - n u) * sum |v| (|x| + q)
// |v| = |scale| (|element - centre| + |zero - centre|), as sums are rounded before the zero point
// comes off; n = p b + 5, with two tiles, which d0 and its sum join, p b + 7; p passes, 1 for
// integers, 4 or less for MXFP4 (digit_codes.inl.h).
// An infinite scale that meets a digit that is zero is NaN; an activation that is not finite makes
// its row NaN, and one of 2^113 or more may.

/// One step of activations: [quad of inputs][column][4 bytes]; lane q of a block's codes is octet
/// q, and its bytes in step h are inputs 8 q + 2 b + h.
constexpr int64_t kDigitTileBytes = 1024;
constexpr int64_t kDigitFactors = 2 * kDigitTileBytes;  // where step * 2^(8 i) of each column lies
constexpr int64_t kDigitSums = kDigitFactors + 64;      // the same times the sum of the digits
constexpr int64_t kDigitBlockBytes = kDigitSums + 64;
constexpr int64_t kDigitTilesOfBlock = 2;  // that go through together: packs, or halves of one

/// Activations as kNumDigits digits in kNumTiles tiles.
template <int kNumDigits, int kNumTiles>
struct DigitPack {
  static constexpr int kTerms = kNumDigits;
  static constexpr int kTiles = kNumTiles;
  static constexpr int64_t kRows = kTileRows / ((kTerms + kTiles - 1) / kTiles);
  static constexpr int64_t kBytes = kTiles * kDigitBlockBytes;  // of a block
  /// Tile and first column of digit i.
  static constexpr int tile(int i) { return kTiles == 2 && i == 0 ? 1 : 0; }
  static constexpr int64_t column(int i) { return (kTiles == 2 && i > 0 ? i - 1 : i) * kRows; }
};

/// The digits of some rows of one block that share a tile, and what belongs to them.
struct DigitBlock {
  alignas(64) uint8_t bytes[2][kTileRows][64];  // [step][column][quad]
  alignas(64) float factors[kTileRows];
  alignas(64) float sums[kTileRows];  // with two tiles those of both are in the first
};

/// Octets v, transposed, of row m of a pack.
template <class Pack>
inline void pack_digits_of_row(DigitBlock* blocks, int64_t m, const Float* v) {
  const auto digits = digits_of_block<Pack::kTerms>(v);
  float factor = digits.step;
  for (int i = 0; i < Pack::kTerms; ++i) {
    DigitBlock& block = blocks[Pack::tile(i)];
    const int64_t column = Pack::column(i) + m;
    store_int(block.bytes[0][column], digits.words[i][0]);
    store_int(block.bytes[1][column], digits.words[i][1]);
    block.factors[column] = factor;
    blocks[0].sums[column] += factor * static_cast<float>(sum_lanes(digits.sums[i]));
    factor *= 256;
  }
}

template <class Pack>
inline void pack_digits(uint8_t* packed, const float* x, int64_t rows, const uint32_t* gather,
                        int64_t k) {
  for (int64_t begin = 0; begin < k; begin += kBlockInputs) {
    DigitBlock blocks[Pack::kTiles] = {};
    for (int64_t m = 0; m < rows; ++m) {
      alignas(64) float inputs[kBlockInputs];
      Float v[8];
      transpose_octets(block_inputs(x + m * k, gather, begin, k, inputs), v);
      pack_digits_of_row<Pack>(blocks, m, v);
    }
    for (const DigitBlock& block : blocks) {
      for (int h = 0; h < 2; ++h) {
        transpose_16x16(reinterpret_cast<const float*>(block.bytes[h]),
                        reinterpret_cast<float*>(packed + h * kDigitTileBytes));
      }
      store(reinterpret_cast<float*>(packed + kDigitFactors), load(block.factors));
      store(reinterpret_cast<float*>(packed + kDigitSums), load(block.sums));
      packed += kDigitBlockBytes;
    }
  }
}

template <class Pack>
constexpr PackedLayout kPackedDigits = {.name = Pack::kTiles == 2   ? "wide digits"
                                                : Pack::kTerms == 3 ? "digits"
                                                                    : "short digits",
                                        .rows_per_pack = Pack::kRows,
                                        .padding = kPackPadding,
                                        .row_grain = kTileRowGrain,
                                        .bytes = &packed_bytes<Pack::kBytes>,
                                        .pack = &pack_digits<Pack>};

/// Scratch memory of a thread; less than tile_scratch_bytes().
struct DigitScratch {
  alignas(64) uint8_t panels[2][2 * kDigitTileBytes];  // a tile of codes: two steps
  alignas(64) int32_t sums[2][kDigitTilesOfBlock][kTileRows][kTileRows];
  alignas(64) float totals[kDigitTilesOfBlock][kStripRows][kTileRows];
  // Behind it: scales of a strip, [row][staged_floats]
};

/// All rows of a task by kPacks packs of activations. kGroups: scales belong to groups of blocks;
/// else to the row, and multiply its total.
template <Format kElement, class Pack, int kPacks, bool kGroups>
class DigitTiles {
  using Codes = DigitCodes<kElement>;
  using E = typename Codes::E;
  static constexpr int64_t kRows = Pack::kRows;
  static constexpr bool kWide = Pack::kTiles == 2;
  static constexpr int kTiles = kPacks * Pack::kTiles;
  static_assert(kTiles <= kDigitTilesOfBlock);

 public:
  DigitTiles(const MatmulTask& task, StageDigitRow stage)
      : task_(task),
        stage_(stage),
        scratch_(*reinterpret_cast<DigitScratch*>(task.scratch)),
        staged_(reinterpret_cast<float*>(task.scratch + sizeof(DigitScratch))),
        staged_stride_(staged_floats(Codes::scales_of_row(task.weights))),
        zeros_(staged_half(Codes::scales_of_row(task.weights))),
        blocks_((task.weights.cols + kBlockInputs - 1) / kBlockInputs),
        whole_blocks_(loadable_blocks<E>(task.weights)),
        group_blocks_(kGroups ? Codes::group_blocks(task.weights) : INT64_MAX) {}

  void run() {
    for (int64_t n = task_.row_begin; n < task_.row_end; n += kStripRows) multiply_strip(n);
  }

 private:
  /// What becomes of the sums of a tile.
  struct Sums {
    int64_t row = -1;               // of the strip; -1: there are none
    const float* staged = nullptr;  // scales of that row, at the group
    const uint8_t* inputs = nullptr;
  };

  void multiply_strip(int64_t n) {
    const int64_t left = task_.row_end - n;
    const int64_t rows = left < kStripRows ? left : kStripRows;
    const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
    bool more_passes = false;
    for (int64_t i = 0; i < rows; ++i) {
      more_passes |= stage_(task_.weights, n + i, staged_ + i * staged_stride_);
    }
    __builtin_memset(scratch_.totals, 0, sizeof(scratch_.totals));
    Sums held;    // in the tiles
    Sums adding;  // in scratch memory
    int turn = 0;
    decode_tile(n, rows, 0, 0, scratch_.panels[0]);
    const uint8_t* inputs = task_.x.data;
    const float* staged = staged_;
    int64_t group_left = group_blocks_;
    for (int64_t b = 0; b < blocks_; ++b) {
      load_digit_inputs<kTiles>(inputs, tile_stride());
      for (int64_t i = 0; i < tiles; ++i) {
        multiply_digits<kTiles, Codes::kSigned>(scratch_.panels[turn], scratch_.sums[turn][0][0]);
        const bool last = i + 1 == tiles;
        decode_tile(n, rows, last ? b + 1 : b, last ? 0 : i + 1, scratch_.panels[1 - turn]);
        add_tile(adding, 1 - turn);
        adding = held;
        held = {.row = i * kTileRows,
                .staged = staged + i * kTileRows * staged_stride_,
                .inputs = inputs};
        turn = 1 - turn;
      }
      inputs += Pack::kBytes;
      if (--group_left == 0) {
        ++staged;
        group_left = group_blocks_;
      }
    }
    store_digit_sums<kTiles>(scratch_.sums[turn][0][0]);
    add_tile(adding, 1 - turn);
    add_tile(held, turn);
    if constexpr (kElement == Format::kE2M1) {
      if (more_passes) multiply_rest(n, rows);
    }
    for (int pack = 0; pack < kPacks; ++pack) store_results(n, rows, pack);
  }

  /// Further passes over blocks whose scales are too far apart for one.
  void multiply_rest(int64_t n, int64_t rows) {
    for (int64_t b = 0; b < blocks_; ++b) {
      const uint8_t* inputs = task_.x.data + b * Pack::kBytes;
      bool loaded = false;
      for (int64_t row = 0; row < rows; row += kTileRows) {
        const int64_t left = rows - row < kTileRows ? rows - row : kTileRows;
        float* staged = staged_ + row * staged_stride_;
        GroupsLeft groups(task_.weights, n + row, left, b, staged, staged_stride_);
        while (groups.stage_pass()) {
          if (!loaded) load_digit_inputs<kTiles>(inputs, tile_stride());
          loaded = true;
          decode_tile(n, rows, b, row / kTileRows, scratch_.panels[0]);
          multiply_digits<kTiles, Codes::kSigned>(scratch_.panels[0], scratch_.sums[1][0][0]);
          store_digit_sums<kTiles>(scratch_.sums[0][0][0]);
          add_tile({.row = row, .staged = staged + b, .inputs = inputs}, 0);
        }
      }
    }
  }
  /// From one tile of a block's activations to the next.
  int64_t tile_stride() const { return kWide ? kDigitBlockBytes : task_.x.stride; }

  /// Tile i of block b, if there is one.
  void decode_tile(int64_t n, int64_t rows, int64_t b, int64_t i, uint8_t* panel) const {
    if (b == blocks_) return;
    const float* staged = staged_ + i * kTileRows * staged_stride_ + zeros_ + b;
    const int64_t stride = staged_stride_;
    decode_rows_of_tile<E>(
        task_.weights, {n, i * kTileRows, rows}, b, whole_blocks_,
        [ panel, staged, stride ](int64_t r, const uint8_t* codes) __attribute__((always_inline)) {
          Codes::decode(codes, staged + r * stride, panel + 64 * r,
                        panel + kDigitTileBytes + 64 * r);
        });
  }

  void add_tile(const Sums& to, int turn) {
    if (to.row < 0) return;
    const int64_t stride = staged_stride_;
    const int64_t zeros = zeros_;
    for (int pack = 0; pack < kPacks; ++pack) {
      const auto* inputs = reinterpret_cast<const float*>(to.inputs + pack * task_.x.stride);
      const Float factors = load(inputs + kDigitFactors / 4);
      const Float input_sums = load(inputs + kDigitSums / 4);
      const Float center = mul(input_sums, broadcast(-Codes::kCenter));
      const Float low_factors =
          kWide ? load(inputs + (kDigitBlockBytes + kDigitFactors) / 4) : zero();
      const auto* sums = reinterpret_cast<const uint8_t*>(scratch_.sums[turn][pack][0]);
      float* totals = scratch_.totals[pack][to.row];
      const float* staged = to.staged;
#pragma GCC unroll 8
      for (int64_t r = 0; r < kTileRows; ++r) {
        const Float sum = int_to_float(load_int(sums + 64 * r));
        Float part = Codes::kZeros ? fma(sum, factors, center) : mul(sum, factors);
        if constexpr (kWide) {
          part = fma(int_to_float(load_int(sums + 64 * (kTileRows + r))), low_factors, part);
        }
        if constexpr (Codes::kZeros) part = fnma(broadcast(staged[zeros]), input_sums, part);
        const Float total = load(totals + kTileRows * r);
        store(totals + kTileRows * r,
              kGroups ? fma(broadcast(*staged), part, total) : add(part, total));
        staged += stride;
      }
    }
  }

  /// y[m][n] of a strip.
  void store_results(int64_t n, int64_t rows, int pack) const {
    const int64_t first_m = pack * kRows;
    const int64_t left = task_.x.rows - first_m;
    const int64_t count = left < kRows ? left : kRows;
    for (int64_t row = 0; row < rows; row += kTileRows) {
      alignas(64) float digits[kTileRows][kTileRows];  // [column][n]
      transpose_16x16(scratch_.totals[pack][row], digits[0]);
      const int64_t lanes = rows - row < kTileRows ? rows - row : kTileRows;
      alignas(64) float factor[kTileRows];
      store(factor, factors(row, lanes));
      write_results(task_, first_m, count, n + row, lanes,
                    {.data = digits[0],
                     .stride = kTileRows,
                     .parts = kTileRows / kRows,
                     .part_stride = kRows * kTileRows},
                    factor);
    }
  }
  /// What the totals of `count` rows from `row` of the strip on are to be multiplied by.
  Float factors(int64_t row, int64_t count) const {
    const Float factor = broadcast(task_.weights.tensor_scale);
    if (kGroups) return factor;
    alignas(64) float scales[kTileRows] = {};
    for (int64_t i = 0; i < count; ++i) scales[i] = staged_[(row + i) * staged_stride_];
    return mul(load(scales), factor);
  }

  const MatmulTask& task_;
  StageDigitRow stage_;
  DigitScratch& scratch_;
  float* staged_;
  int64_t staged_stride_;
  int64_t zeros_;  // where zero points are staged
  int64_t blocks_;
  int64_t whole_blocks_;
  int64_t group_blocks_;
};

template <Format kElement, class Pack, int kPacks>
void digit_rows_of_packs(const MatmulTask& task, StageDigitRow stage) {
  if (kElement == Format::kE2M1 || task.weights.group_size < task.weights.cols) {
    DigitTiles<kElement, Pack, kPacks, true>(task, stage).run();
  } else {
    DigitTiles<kElement, Pack, kPacks, false>(task, stage).run();
  }
}

/// Groups cover whole blocks, or the row.
template <Format kElement, class Pack>
void digit_rows(const MatmulTask& task, StageDigitRow stage) {
  const TileSession session;
  constexpr int64_t kRows = Pack::kRows;
  constexpr int kPacks = kDigitTilesOfBlock / Pack::kTiles;
  constexpr int64_t kMost = kPacks * kRows;
  for (int64_t m = 0; m < task.x.rows; m += kMost) {
    MatmulTask part = task;
    part.x.data += m / kRows * task.x.stride;
    part.x.rows = task.x.rows - m < kMost ? task.x.rows - m : kMost;
    part.y += m * task.y_stride;
    part.x.rows <= kRows ? digit_rows_of_packs<kElement, Pack, 1>(part, stage)
                         : digit_rows_of_packs<kElement, Pack, kPacks>(part, stage);
  }
}
