// The mainloop of matrix units for a few rows of activations and codes of 4 bits whose groups are
// smaller than a block: tiles of bf16. Included inside the namespace of an instruction set with
// tiles, after digit_tiles.inl.h.
//
// A step is 32 inputs that follow each other, so that a step has one scale, which can wait for the
// sums. Codes are looked up as they are: three instructions for 32 weights.
//
//                 +-------------+
//    16 pairs     |      B      |     A: 16 rows by 32 inputs of what codes stand for, as bf16
//                 +-------------+     B: 32 inputs in pairs by 16 rows of activations as bf16, or
//   16   +------+ +-------------+        by 8 as two bf16 each, x = high + low
//   rows |  A   | |      C      |     total += scale * (C - zero * sum of the inputs)
//        +------+ +-------------+
//
//   for each strip of 64 rows, for each block of 128 inputs, for each tile of 16 rows:
//     four products of this tile; the next is decoded; sums of the one before are added
//
// Accuracy, u = 2^-24, k inputs: with q what an activation is rounded by (2^-9 of it, of two bf16
// 2^-17), and w as the table has it (rounded to 2^-9 where bf16 does not hold it):
//   |y - exact| <= sum |w| q + n u / (1 - n u) * sum |w| (|x| + q),   n = k / 32 + 42
// as a step adds up 32 products. An infinite scale that meets a low part of zero is NaN.

/// Lane q of a step of activations has inputs 16 h + 4 l + w and the next, q being 4 l + 2 h + w/2:
/// the order in which look_up() leaves 32 codes. Sums of the steps lie behind them.
constexpr int64_t kGroupSteps = 4;  // of a block
constexpr int64_t kGroupSums = kGroupSteps * kStepBytes;

struct GroupBlock {
  alignas(64) uint8_t pairs[kGroupSteps][kTileRows][64];  // [step][column][pair]
  alignas(64) float sums[kGroupSteps][kTileRows];
};

inline void pack_group_column(GroupBlock& block, int64_t step, int64_t column, Pairs pairs) {
  store_pairs(block.pairs[step][column], pairs);
  block.sums[step][column] = sum(add(low_of_pairs(pairs), high_of_pairs(pairs)));
}

/// Packs up to 8 rows for kSplitGroupTiles, 16 for kGroupTiles.
template <bool kSplit>
inline void pack_groups(uint8_t* packed, const float* x, int64_t rows, const uint32_t* gather,
                        int64_t k) {
  for (int64_t begin = 0; begin < k; begin += kBlockInputs) {
    GroupBlock block{};
    for (int64_t m = 0; m < rows; ++m) {
      alignas(64) float inputs[kBlockInputs];
      const float* from = block_inputs(x + m * k, gather, begin, k, inputs);
      for (int64_t step = 0; step < kGroupSteps; ++step, from += 32) {
        const Float first = load_looked_up<0>(from);
        const Float second = load_looked_up<1>(from);
        const Pairs high = round_to_pairs(first, second);
        pack_group_column(block, step, m, high);
        if (!kSplit) continue;
        pack_group_column(
            block, step, kSplitRows + m,
            round_to_pairs(sub(first, low_of_pairs(high)), sub(second, high_of_pairs(high))));
      }
    }
    for (int64_t step = 0; step < kGroupSteps; ++step) {
      transpose_16x16(reinterpret_cast<const float*>(block.pairs[step]),
                      reinterpret_cast<float*>(packed + step * kStepBytes));
    }
    __builtin_memcpy(packed + kGroupSums, block.sums, sizeof(block.sums));
    packed += activation_bytes(ActivationOrder::kGroupTiles);
  }
}

/// A codebook as bf16, to nearest, repeated.
template <Format kElement>
constexpr PairTable make_rounded_table() {
  PairTable table{};
  for (int i = 0; i < 32; ++i) {
    const auto value = static_cast<float>(Codebook<kElement>::value(i % 16));
    const auto bits = __builtin_bit_cast(uint32_t, value);
    table.words[i] = static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
  }
  return table;
}
template <Format kElement>
constexpr PairTable kRoundedTable = make_rounded_table<kElement>();

/// Scratch memory of a thread; less than tile_scratch_bytes().
struct GroupScratch {
  alignas(64) uint8_t panels[2][kGroupSteps * kStepBytes];  // a tile of weights
  alignas(64) float sums[2][kGroupSteps][kTileRows][kTileRows];
  alignas(64) float totals[kStripRows][kTileRows];
  // Behind it: scales of a strip, [row][staged_floats]
};

/// All rows of a task by one pack of activations.
template <class Weight>
class GroupTiles {
  static constexpr Format kElement = Weight::kElement;
  static constexpr bool kZeros = Weight::kZero != Zero::kNone;
  using E = Element<kElement>;
  static_assert(E::kBits == 4);

 public:
  explicit GroupTiles(const MatmulTask& task)
      : task_(task),
        scratch_(*reinterpret_cast<GroupScratch*>(task.scratch)),
        staged_(reinterpret_cast<float*>(task.scratch + sizeof(GroupScratch))),
        staged_stride_(staged_floats(task.weights.groups)),
        zeros_(staged_half(task.weights.groups)),
        blocks_((task.weights.cols + kBlockInputs - 1) / kBlockInputs),
        whole_blocks_(loadable_blocks<E>(task.weights)) {}

  /// `column_rows`: 8 if the columns from the eighth on are low parts, else 16.
  void run(int64_t column_rows) {
    for (int64_t n = task_.row_begin; n < task_.row_end; n += kStripRows) {
      multiply_strip(n);
      store_results(n, column_rows);
    }
  }

 private:
  /// A tile whose sums are to be added.
  struct Sums {
    int64_t row = -1;  // of the strip; -1: there are none
    int64_t block = 0;
    const uint8_t* inputs = nullptr;
  };

  int64_t rows_of_strip(int64_t n) const {
    const int64_t left = task_.row_end - n;
    return left < kStripRows ? left : kStripRows;
  }

  void multiply_strip(int64_t n) {
    const int64_t rows = rows_of_strip(n);
    const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
    for (int64_t i = 0; i < rows; ++i) {
      stage_digit_row<typename Weight::Broadcast>(task_.weights, n + i,
                                                  staged_ + i * staged_stride_);
    }
    __builtin_memset(scratch_.totals, 0, sizeof(scratch_.totals));
    Sums held;  // in part in the tiles
    int turn = 0;
    decode_tile(n, rows, 0, 0, scratch_.panels[0]);
    const uint8_t* inputs = task_.x.data;
    for (int64_t b = 0; b < blocks_; ++b) {
      load_group_inputs(inputs);
      for (int64_t i = 0; i < tiles; ++i) {
        multiply_groups(scratch_.panels[turn], scratch_.sums[1 - turn][2][0],
                        scratch_.sums[turn][0][0]);
        const bool last = i + 1 == tiles;
        decode_tile(n, rows, last ? b + 1 : b, last ? 0 : i + 1, scratch_.panels[1 - turn]);
        add_tile(held, 1 - turn);
        held = {.row = i * kTileRows, .block = b, .inputs = inputs};
        turn = 1 - turn;
      }
      inputs += activation_bytes(ActivationOrder::kGroupTiles);
    }
    store_group_sums(scratch_.sums[1 - turn][2][0]);
    add_tile(held, 1 - turn);
  }

  /// Tile i of block b, if there is one.
  void decode_tile(int64_t n, int64_t rows, int64_t b, int64_t i, uint8_t* panel) const {
    if (b == blocks_) return;
    const Pairs table = load_pairs(reinterpret_cast<const uint8_t*>(kRoundedTable<kElement>.words));
    decode_rows_of_tile<E>(
        task_.weights, {n, i * kTileRows, rows}, b, whole_blocks_,
        [ panel, table ](int64_t r, const uint8_t* codes)
            __attribute__((always_inline)) { look_up_block(codes, table, panel + 64 * r); });
  }
  [[gnu::always_inline]] static void look_up_block(const uint8_t* codes, Pairs table,
                                                   uint8_t* panel) {
#pragma GCC unroll 4
    for (int64_t step = 0; step < kGroupSteps; ++step) {
      store_pairs(panel + step * kStepBytes, look_up(codes + 16 * step, table));
    }
  }

  void add_tile(const Sums& to, int turn) {
    if (to.row < 0) return;
    const int64_t left = task_.weights.cols - to.block * kBlockInputs;
    if (left >= kBlockInputs) return add_steps<kGroupSteps>(to, turn);
    // Scales of steps that the row does not have are not known.
    if (left > 64) return add_steps<3>(to, turn);
    left > 32 ? add_steps<2>(to, turn) : add_steps<1>(to, turn);
  }
  template <int kSteps>
  void add_steps(const Sums& to, int turn) {
    const int64_t stride = staged_stride_;
    const int64_t zeros = zeros_;
    int64_t groups[kSteps];
    Float input_sums[kSteps];
    for (int64_t step = 0; step < kSteps; ++step) {
      groups[step] = (to.block * kBlockInputs + 32 * step) / task_.weights.group_size;
      input_sums[step] =
          load(reinterpret_cast<const float*>(to.inputs + kGroupSums) + kTileRows * step);
    }
    const float* sums = scratch_.sums[turn][0][0];
    float* totals = scratch_.totals[to.row];
    const float* staged = staged_ + to.row * stride;
#pragma GCC unroll 4
    for (int64_t r = 0; r < kTileRows; ++r) {
      Float total = load(totals + kTileRows * r);
#pragma GCC unroll 4
      for (int64_t step = 0; step < kSteps; ++step) {
        Float part = load(sums + kTileRows * (kTileRows * step + r));
        if constexpr (kZeros) {
          part = fnma(broadcast(staged[zeros + groups[step]]), input_sums[step], part);
        }
        total = fma(broadcast(staged[groups[step]]), part, total);
      }
      store(totals + kTileRows * r, total);
      staged += stride;
    }
  }

  /// y[m][n] of a strip.
  void store_results(int64_t n, int64_t column_rows) const {
    const int64_t rows = rows_of_strip(n);
    const Float factor = broadcast(task_.weights.tensor_scale);
    for (int64_t row = 0; row < rows; row += kTileRows) {
      alignas(64) float columns[kTileRows][kTileRows];  // [column][n]
      transpose_16x16(scratch_.totals[row], columns[0]);
      const int64_t lanes = rows - row < kTileRows ? rows - row : kTileRows;
      const Float bias = task_.bias == nullptr ? zero() : load_first(task_.bias + n + row, lanes);
      for (int64_t m = 0; m < task_.x.rows; ++m) {
        Float all = load(columns[m]);
        if (column_rows < kTileRows) all = add(all, load(columns[column_rows + m]));
        store_first(task_.y + m * task_.y_stride + n + row, add(mul(all, factor), bias), lanes);
      }
    }
  }

  const MatmulTask& task_;
  GroupScratch& scratch_;
  float* staged_;
  int64_t staged_stride_;
  int64_t zeros_;  // where zero points are staged
  int64_t blocks_;
  int64_t whole_blocks_;
};

/// Groups of a multiple of 32.
template <class Weight, ActivationOrder kOrder>
void group_rows(const MatmulTask& task) {
  const TileSession session;
  constexpr int64_t kRows = rows_per_pack(kOrder);
  for (int64_t m = 0; m < task.x.rows; m += kRows) {
    MatmulTask part = task;
    part.x.data += m / kRows * task.x.stride;
    part.x.rows = task.x.rows - m < kRows ? task.x.rows - m : kRows;
    part.y += m * task.y_stride;
    GroupTiles<Weight>(part).run(kRows);
  }
}
