// The mainloop of matrix units for a few rows of activations and codes of 2 to 5 bits in groups of
// a multiple of 32: tiles of bf16. Included inside the namespace of an instruction set with tiles,
// after digit_tiles.inl.h.
//
// A step is 32 inputs that follow each other, so that a step has one scale, which can wait for the
// sums of one step, or of two. Codes are looked up as they are, in the table of their zero point:
// three instructions for 32 weights of 4 bits, or five where what they stand for takes two bf16.
//
//                 +-------------+
//    16 pairs     |      B      |     A: 16 rows by 32 inputs of what codes stand for, as bf16
//                 +-------------+     B: 32 inputs in pairs by 16 rows of activations as bf16, or
//   16   +------+ +-------------+        by 8 as two bf16 each, x = high + low
//   rows |  A   | |      C      |     total += scale * C
//        +------+ +-------------+
//
//   for each strip of 64 rows, for each block of 128 inputs, for each tile of 16 rows:
//     four products of this tile; the next is decoded; sums of the one before are added
//
// Accuracy, u = 2^-24, k inputs: with q what an activation is rounded by (2^-8 of it, of two bf16
// 2^-17; subnormal bf16 are zero), and w as the table has it, scaled (where bf16 does not hold it,
// rounded by 2^-8 of it, two by 2^-17):
//   |y - exact| <= sum |w| q + n u / (1 - n u) * sum |w| (|x| + q),   n = k / 32 + 10 + 64 t
// as a sum adds up 64 products at most for each of the t terms of a weight. An infinite scale that
// meets a low part of zero is NaN.

constexpr int64_t kGroupSteps = 4;  // of a block

/// A codebook as bf16, to nearest, repeated, and what is left as another.
template <Format kElement>
struct RoundedTables {
  PairTable high;
  PairTable low;
};
constexpr uint16_t rounded_to_pair(float value) {
  const auto bits = __builtin_bit_cast(uint32_t, value);
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}
template <Format kElement>
constexpr RoundedTables<kElement> make_rounded_tables() {
  RoundedTables<kElement> tables{};
  for (int i = 0; i < 32; ++i) {
    constexpr int kCodes = 1 << Codebook<kElement>::kBits;
    const auto value = static_cast<float>(Codebook<kElement>::value(i % kCodes));
    const uint16_t high = rounded_to_pair(value);
    tables.high.words[i] = high;
    tables.low.words[i] =
        rounded_to_pair(value - __builtin_bit_cast(float, static_cast<uint32_t>(high) << 16));
  }
  return tables;
}
template <Format kElement>
constexpr RoundedTables<kElement> kRoundedTables = make_rounded_tables<kElement>();

/// Scratch memory of a thread; less than tile_scratch_bytes().
struct GroupScratch {
  alignas(64) uint8_t panels[2][2 * kGroupSteps * kStepBytes];  // a tile of weights, two terms
  alignas(64) float sums[2][kGroupSteps][kTileRows][kTileRows];
  alignas(64) float totals[kStripRows][kTileRows];
  // Behind it: scales of a strip, [row][staged_floats]
};

/// All rows of a task by one pack of activations. kTerms: bf16 for each weight; kStepsOfSum: steps
/// that share a scale, for groups of a multiple of so many times 32.
template <Format kElement, int kTerms, int kStepsOfSum>
class GroupTiles {
  static constexpr int64_t kSumInputs = 32 * kStepsOfSum;
  static constexpr int kSums = kGroupSteps / kStepsOfSum;  // of a block
  using E = Element<kElement>;
  static constexpr bool kZeros = E::kCenter != 0;  // of integers

 public:
  GroupTiles(const MatmulTask& task, StageDigitRow stage)
      : task_(task),
        stage_(stage),
        scratch_(*reinterpret_cast<GroupScratch*>(task.scratch)),
        staged_(reinterpret_cast<float*>(task.scratch + sizeof(GroupScratch))),
        staged_stride_(staged_floats(task.weights.groups)),
        blocks_((task.weights.cols + kBlockInputs - 1) / kBlockInputs),
        whole_blocks_(task.weights.cols / kBlockInputs) {}  // code_words() reads no more

  /// `column_rows`: 8 if the columns from the eighth on are low parts, else 16.
  void run(int64_t column_rows) {
    for (int64_t n = task_.row_begin; n < task_.row_end; n += kStripRows) {
      multiply_strip(n);
      store_results(n, column_rows);
    }
  }

 private:
  /// The groups of a block's steps. Divisions would take as long as decoding a row, so that tiles
  /// of a block share them.
  struct BlockGroups {
    int64_t of_step[kGroupSteps];
    int sums;  // that the row has: scales of other groups are not known
  };
  BlockGroups groups_of(int64_t b) const {
    const Weights& weights = task_.weights;
    BlockGroups groups;
    for (int64_t step = 0; step < kGroupSteps; ++step) {
      const int64_t group = (b * kBlockInputs + 32 * step) / weights.group_size;
      // Any, where inputs are zeros.
      groups.of_step[step] = group < weights.groups ? group : weights.groups - 1;
    }
    const int64_t left = weights.cols - b * kBlockInputs;
    const int64_t sums = (left + kSumInputs - 1) / kSumInputs;
    groups.sums = static_cast<int>(sums < kSums ? sums : kSums);
    return groups;
  }

  /// A tile whose sums are to be added.
  struct Sums {
    int64_t row = -1;  // of the strip; -1: there are none
    BlockGroups groups;
  };

  int64_t rows_of_strip(int64_t n) const {
    const int64_t left = task_.row_end - n;
    return left < kStripRows ? left : kStripRows;
  }

  void multiply_strip(int64_t n) {
    const int64_t rows = rows_of_strip(n);
    const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
    for (int64_t i = 0; i < rows; ++i) {
      stage_(task_.weights, n + i, staged_ + i * staged_stride_);
    }
    __builtin_memset(scratch_.totals, 0, sizeof(scratch_.totals));
    Sums held;  // in part in the tiles
    int turn = 0;
    BlockGroups groups = groups_of(0);
    decode_tile(n, rows, 0, 0, groups, scratch_.panels[0]);
    const uint8_t* inputs = task_.x.data;
    for (int64_t b = 0; b < blocks_; ++b) {
      const BlockGroups next_groups = groups_of(b + 1);
      load_group_inputs(inputs);
      for (int64_t i = 0; i < tiles; ++i) {
        multiply_groups<kTerms, kStepsOfSum>(scratch_.panels[turn], scratch_.sums[1 - turn][0][0],
                                             scratch_.sums[turn][0][0]);
        const bool last = i + 1 == tiles;
        decode_tile(n, rows, last ? b + 1 : b, last ? 0 : i + 1, last ? next_groups : groups,
                    scratch_.panels[1 - turn]);
        add_tile(held, 1 - turn);
        held = {.row = i * kTileRows, .groups = groups};
        turn = 1 - turn;
      }
      inputs += kBlockTileBytes;
      groups = next_groups;
    }
    store_group_sums<kStepsOfSum>(scratch_.sums[1 - turn][0][0]);
    add_tile(held, 1 - turn);
  }

  /// Tile i of block b, if there is one.
  void decode_tile(int64_t n, int64_t rows, int64_t b, int64_t i, const BlockGroups& groups,
                   uint8_t* panel) const {
    if (b == blocks_) return;
    const StripRows tile = {n, i * kTileRows, rows};
    if constexpr (kZeros) {
      const ZeroPoints zeros(task_.weights, n + i * kTileRows, groups);
      decode_rows_of_tile<E>(
          task_.weights, tile, b, whole_blocks_,
          [ panel, zeros ](int64_t r, const uint8_t* codes) __attribute__((always_inline)) {
            look_up_integers(codes, zeros, r, panel + 64 * r);
          });
    } else {
      const Pairs high = table_of(kRoundedTables<kElement>.high);
      const Pairs low = table_of(kRoundedTables<kElement>.low);
      decode_rows_of_tile<E>(
          task_.weights, tile, b, whole_blocks_,
          [ panel, high, low ](int64_t r, const uint8_t* codes)
              __attribute__((always_inline)) { look_up_block(codes, high, low, panel + 64 * r); });
    }
  }
  [[gnu::always_inline]] static void look_up_block(const uint8_t* codes, Pairs high, Pairs low,
                                                   uint8_t* panel) {
    look_up_step<0>(codes, high, low, panel);
    look_up_step<1>(codes, high, low, panel);
    look_up_step<2>(codes, high, low, panel);
    look_up_step<3>(codes, high, low, panel);
  }
  template <int kStep>
  [[gnu::always_inline]] static void look_up_step(const uint8_t* codes, Pairs high, Pairs low,
                                                  uint8_t* panel) {
    const Pairs words = code_words<E::kBits, kStep>(codes);
    store_pairs(panel + kStep * kStepBytes, look_up(words, high));
    if constexpr (kTerms == 2) {
      store_pairs(panel + (kGroupSteps + kStep) * kStepBytes, look_up(words, low));
    }
  }

  /// The zero points of the steps of one block, for a tile of rows.
  struct ZeroPoints {
    ZeroPoints(const Weights& weights, int64_t row, const BlockGroups& block)
        : zeros(weights.zeros + row * weights.groups), groups(weights.groups) {
      __builtin_memcpy(of_step, block.of_step, sizeof(of_step));
    }
    const uint8_t* zeros;
    int64_t groups;
    int64_t of_step[kGroupSteps];
  };
  /// Codes less their zero points: the table of each group starts at another integer.
  [[gnu::always_inline]] static void look_up_integers(const uint8_t* codes, const ZeroPoints& zeros,
                                                      int64_t r, uint8_t* panel) {
    const uint8_t* of_row = zeros.zeros + r * zeros.groups;
    const auto table = [&](int64_t step) __attribute__((always_inline)) {
      return repeat_pairs<E::kBits>(kIntegerPairs.words + 256 - of_row[zeros.of_step[step]]);
    };
    look_up_step<0>(codes, table(0), zero_int(), panel);
    look_up_step<1>(codes, table(1), zero_int(), panel);
    look_up_step<2>(codes, table(2), zero_int(), panel);
    look_up_step<3>(codes, table(3), zero_int(), panel);
  }

  void add_tile(const Sums& to, int turn) {
    if (to.row < 0) return;
    if (to.groups.sums == kSums) return add_sums<kSums>(to, turn);
    if constexpr (kSums == 4) {
      if (to.groups.sums == 3) return add_sums<3>(to, turn);
      if (to.groups.sums == 2) return add_sums<2>(to, turn);
    }
    add_sums<1>(to, turn);
  }
  template <int kCount>
  void add_sums(const Sums& to, int turn) {
    const int64_t stride = staged_stride_;
    int64_t groups[kCount];
    for (int64_t i = 0; i < kCount; ++i) groups[i] = to.groups.of_step[kStepsOfSum * i];
    const float* sums = scratch_.sums[turn][0][0];
    float* totals = scratch_.totals[to.row];
    const float* staged = staged_ + to.row * stride;
#pragma GCC unroll 4
    for (int64_t r = 0; r < kTileRows; ++r) {
      Float total = load(totals + kTileRows * r);
#pragma GCC unroll 4
      for (int64_t i = 0; i < kCount; ++i) {
        const Float sum = load(sums + kTileRows * (kTileRows * i + r));
        total = fma(broadcast(staged[groups[i]]), sum, total);
      }
      store(totals + kTileRows * r, total);
      staged += stride;
    }
  }

  /// y[m][n] of a strip.
  void store_results(int64_t n, int64_t column_rows) const {
    const int64_t rows = rows_of_strip(n);
    for (int64_t row = 0; row < rows; row += kTileRows) {
      alignas(64) float columns[kTileRows][kTileRows];  // [column][n]
      transpose_16x16(scratch_.totals[row], columns[0]);
      const int64_t lanes = rows - row < kTileRows ? rows - row : kTileRows;
      write_results(task_, 0, task_.x.rows, n + row, lanes,
                    {.data = columns[0],
                     .stride = kTileRows,
                     .parts = kTileRows / column_rows,
                     .part_stride = column_rows * kTileRows});
    }
  }

  const MatmulTask& task_;
  StageDigitRow stage_;
  GroupScratch& scratch_;
  float* staged_;
  int64_t staged_stride_;
  int64_t blocks_;
  int64_t whole_blocks_;
};

/// Where activations take two terms weights do, unless bf16 holds them.
template <Format kElement, bool kSplit>
constexpr int group_terms() {
  return kSplit && !exact_pairs<kElement>() ? 2 : 1;
}

/// Groups of a multiple of 32, or the row.
template <Format kElement, bool kSplit>
void group_rows(const MatmulTask& task, StageDigitRow stage) {
  const TileSession session;
  constexpr int64_t kRows = kSplit ? kSplitRows : kTileRows;
  constexpr int kTerms = group_terms<kElement, kSplit>();
  const bool pairs =
      task.weights.group_size % 64 == 0 || task.weights.group_size >= task.weights.cols;
  for (int64_t m = 0; m < task.x.rows; m += kRows) {
    MatmulTask part = task;
    part.x.data += m / kRows * task.x.stride;
    part.x.rows = task.x.rows - m < kRows ? task.x.rows - m : kRows;
    part.y += m * task.y_stride;
    if (pairs) {
      GroupTiles<kElement, kTerms, 2>(part, stage).run(kRows);
    } else {
      GroupTiles<kElement, kTerms, 1>(part, stage).run(kRows);
    }
  }
}
