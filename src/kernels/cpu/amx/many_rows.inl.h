// The mainloop of tiles for many rows of activations: weights become bf16 a panel at a time.
// Included inside the namespace of an instruction set with tiles, after panels.inl.h.
//
//                  16 m   16 m         M rows of activations, N outputs, K inputs. A step takes 32
//                +------+------+       outputs by two packs of activations, 4 loads for 4 products,
//       16 lanes |  B0  |  B1  |       or, for up to kFewPacks packs, 64 outputs by one.
//                +------+------+
//   32   +----+  +------+------+       for each macro-block of NC = 512 outputs
//   n    | A  |  | C 2 x 2     |         for each KC = 512 inputs      activations: second level
//        +----+  +-------------+           for each panel of 32 outputs    32 KB: first level
//                                            for each two packs: products
//                                        results
//
// Panels are decoded, block by block, in a ring of 4 slots: while the last packs are multiplied, a
// block of the next panel takes the place of each block that they have done with, and its last one
// does so while the first packs of that panel begin. (A second panel would not stay in the
// first-level cache.) The next accumulators and the lines of the next codes are prefetched
// meanwhile.
//
//   packs       ... 28, 29 | 30, 31             | 0, 1               | 2, 3 ...
//   multiplied  0  1  2  3 | 0   1    2    3    | 0'    1'   2'   3' | 0' 1' 2' 3'
//   decoded                |     0'   1'   2'   | 3'                 |
//
// For few packs NC is one panel of 64 outputs and KC one block, and the ring has 2 slots: the next
// block is decoded between all products of this one. The codes of the next panel are prefetched in
// the order of memory (panels.inl.h).
//
// Scales are in the weights, or multiply the sums: of a whole row, the results; of groups, those of
// each block, which leave the accumulators as the next block begins and are scaled and added to
// totals between its products.
//
// Accuracy, u = 2^-24: |y - exact| <= g * sum |w| |x|, g = r + n u / (1 - n u), n = K + blocks + 4.
//   r = 2^-8 for activations of one bf16, and 2^-8 more where weights are rounded;
//       2^-17 for two, x = hi + lo, with one more in n, and 2^-17 more, and K more in n, where
//       weights are two as well
// A tile adds two products at a time to each sum and rounds each time; it counts subnormal bf16 as
// zero. Of two bf16 the second of an infinite number is NaN, and so is infinity by the second of
// another: what would be infinite is NaN. What a row of activations gets does not depend on the
// others, nor on which of the two shapes takes them.

/// How the weights of one format become tiles, and where their scales go.
struct TileDecoding {
  void (*decode)(const DecodeTask& task);
  /// Stages scales of groups as floats, for `decode` or for sums; nullptr where neither wants them.
  void (*stage)(const Weights& weights, int64_t row, int64_t begin, int64_t end,
                float* staged) = nullptr;
  bool scales_sums = false;
  int64_t splits = 1;  // bf16 of a weight
};

constexpr int64_t kMaxPacks = 32;  // in one pass over the weights
constexpr int64_t kFewPacks = 3;
constexpr int64_t kMacroPanels = 16;
constexpr int64_t kRingBytes = 2 * 2 * 4 * kBlockTileBytes;  // few packs, weights of two bf16
constexpr int64_t kTileFloats = kTileRows * kTileRows;

/// Where the parts of a thread's scratch memory lie.
struct ManyRowsScratch {
  alignas(64) uint8_t ring[kRingBytes];
  alignas(64) float block_partials[4 * kTileFloats];
  alignas(64) float factors[kMacroPanels * 2 * kTileRows];
  alignas(64) float totals[kMacroPanels * kMaxPacks / 2 * 4 * kTileFloats];
  // After it: scales of two panels, [output][staged_floats]; those of a row with small groups.
};
inline int64_t tile_scratch_bytes(int64_t k) {
  return static_cast<int64_t>(sizeof(ManyRowsScratch)) + 2 * staged_panel_bytes(k) +
         4 * staged_floats((k + 7) / 8);
}

/// KC inputs of one panel of outputs, as they are decoded and multiplied one after the other.
struct ManyRowsPanel {
  int64_t macro = 0;   // first output of the macro-block
  int64_t index = 0;   // of the panel in it
  int64_t block = 0;   // the first
  int64_t number = 0;  // blocks of all panels before: slots of the ring take turns
  int64_t turn = 0;    // of the two places for scales
  int64_t group = 0;   // of the first block, with scales of blocks
};

/// kTiles: of weights in a step, 2 or 4. kScalesBlocks: scales of groups multiply the sums.
template <int kTiles, bool kScalesBlocks>
class ManyRows {
  using Panel = ManyRowsPanel;

 public:
  ManyRows(const MatmulTask& task, const TileDecoding& decoding, int64_t rows_per_pack,
           int64_t first_pack, int64_t packs)
      : task_(task),
        decoding_(decoding),
        scratch_(*reinterpret_cast<ManyRowsScratch*>(task.scratch)),
        scales_(reinterpret_cast<float*>(task.scratch + sizeof(ManyRowsScratch))),
        scale_stride_(decoding.stage == nullptr ? 0 : staged_floats(task.weights.groups)),
        rows_per_pack_(rows_per_pack),
        first_pack_(first_pack),
        packs_(packs),
        pairs_((packs + kPacksOfStep - 1) / kPacksOfStep),
        blocks_((task.weights.cols + kBlockInputs - 1) / kBlockInputs),
        steps_(4 * decoding.splits),
        kc_(kFew ? 1 : 4 / decoding.splits),
        group_blocks_(task.weights.group_size / kBlockInputs),
        stays_(kFew && !kScalesBlocks && packs == 1) {
    // So that a block is decoded in its own number of steps; a tile is never divided otherwise.
    const int64_t steps = kFew ? steps_ * pairs_ : steps_;
    rows_at_once_ = steps * 4 >= kOutputs ? 4 : steps * 8 >= kOutputs ? 8 : 16;
  }

  void run() {
    const TileSession session;
    Panel panel = {.macro = task_.row_begin};
    decoded_ = panel;
    begin_decoding();
    for (bool more = true; more;) {
      Panel following = panel;
      more = next(following);
      next_end_ = following.number + (more ? blocks_of(following) : 0);
      begin_prefetch(more ? &following : nullptr);
      for (int64_t pair = 0; pair < pairs_; ++pair) multiply(panel, pair);
      if (!more || following.macro != panel.macro) end_macro_block(panel);
      panel = following;
    }
  }

 private:
  static constexpr bool kFew = kTiles == 4;
  static constexpr int64_t kOutputs = kTiles * kTileRows;  // of a panel
  static constexpr int64_t kPacksOfStep = 4 / kTiles;
  static constexpr int64_t kPanels = kFew ? 1 : kMacroPanels;  // of a macro-block
  /// Rows of the totals of a tile: sums of blocks are added with their halves, hi and lo, together.
  static constexpr int64_t kTotalRows = kScalesBlocks ? kTileRows / 2 : kTileRows;
  static constexpr int64_t kTileTotals = kTileRows * kTotalRows;

  int64_t first_output(const Panel& panel) const { return panel.macro + panel.index * kOutputs; }
  int64_t outputs_of(const Panel& panel) const {
    const int64_t left = task_.row_end - first_output(panel);
    return left < kOutputs ? left : kOutputs;
  }
  int64_t blocks_of(const Panel& panel) const {
    return blocks_ - panel.block < kc_ ? blocks_ - panel.block : kc_;
  }
  /// Moves on; false after the last.
  bool next(Panel& panel) const {
    panel.number += blocks_of(panel);
    ++panel.index;
    if (panel.index == kPanels || first_output(panel) >= task_.row_end) {
      panel.index = 0;
      panel.block += kc_;
      if (panel.block >= blocks_) {
        panel.block = 0;
        panel.macro += kPanels * kOutputs;
      }
      if (kScalesBlocks) panel.group = panel.block / group_blocks_;
    }
    if (!kFew || panel.block == 0) ++panel.turn;
    return panel.macro < task_.row_end;
  }
  int64_t slots() const { return kFew ? 2 : kc_; }
  uint8_t* slot(int64_t number) const {
    return scratch_.ring + (number & (slots() - 1)) * kTiles * decoding_.splits * kBlockTileBytes;
  }
  float* scales_of(const Panel& panel) const {
    return scales_ + panel.turn % 2 * kPanelOutputs * scale_stride_;
  }
  float* totals_of(int64_t panel_index, int64_t pair) const {
    return scratch_.totals + (panel_index * pairs_ + pair) * 4 * kTileTotals;
  }

  // Decoding, before the products.

  void begin_decoding() {
    block_ = 0;
    groups_ = GroupWalk(task_.weights, decoded_.block);
  }
  /// Some outputs of the next block, if its number is below the limit: its slot is free.
  [[gnu::always_inline]] void decode_some(int64_t limit) {
    if (decodes_ && decoded_.number + block_ < limit) decode_rows();
  }
  void decode_blocks_below(int64_t limit) {
    while (decodes_ && decoded_.number + block_ < limit) decode_rows();
  }
  void decode_rows() {
    const int64_t outputs = outputs_of(decoded_);
    const int64_t end = row_ + rows_at_once_ < outputs ? row_ + rows_at_once_ : outputs;
    if (row_ == 0) step_groups_ = groups_.next();
    if (block_ == 0) stage_scales(row_, end);
    decoding_.decode(
        {.weights = task_.weights,
         .rows =
             {.n = first_output(decoded_), .begin = row_, .end = end, .b = decoded_.block + block_},
         .groups = step_groups_,
         .scales = scales_of(decoded_) + row_ * scale_stride_,
         .scale_stride = scale_stride_,
         .staged = scales_ + 2 * kPanelOutputs * scale_stride_,
         .to = slot(decoded_.number + block_) +
               row_ / kTileRows * decoding_.splits * kBlockTileBytes + row_ % kTileRows * 64,
         .prefetches = kFew});
    row_ = end;
    if (row_ < outputs) return;
    row_ = 0;
    if (++block_ < blocks_of(decoded_)) return;
    decodes_ = next(decoded_);
    begin_decoding();
  }
  /// Those that a panel's blocks take; where NC is one panel, those of all its blocks at the first.
  void stage_scales(int64_t begin, int64_t end) const {
    if (decoding_.stage == nullptr || (kFew && decoded_.block > 0)) return;
    if (decoding_.scales_sums && !kScalesBlocks) return;  // row_scale() does
    const Weights& weights = task_.weights;
    const int64_t first_input = decoded_.block * kBlockInputs;
    const int64_t last_input = (decoded_.block + blocks_of(decoded_)) * kBlockInputs - 1;
    const int64_t first = kFew ? 0 : first_input / weights.group_size;
    const int64_t last = kFew ? weights.groups : last_input / weights.group_size + 1;
    for (int64_t i = begin; i < end; ++i) {
      decoding_.stage(weights, first_output(decoded_) + i, first,
                      last < weights.groups ? last : weights.groups,
                      scales_of(decoded_) + i * scale_stride_);
    }
  }

  // Prefetching the codes of the panel after this one, some lines at each step but the last packs',
  // when it is decoded. One by one: each takes a place that loads from the second level need.

  void begin_prefetch(const Panel* panel) {
    lines_left_ = 0;
    if (kFew || panel == nullptr || pairs_ == 1) return;
    const Weights& weights = task_.weights;
    const int64_t block_bytes = weights.row_bytes * kBlockInputs / weights.cols;
    row_lines_ = (blocks_of(*panel) * block_bytes + 63) / 64 + 1;
    lines_left_ = outputs_of(*panel) * row_lines_;
    const int64_t steps = (pairs_ - 1) * blocks_of(*panel) * steps_;
    lines_of_step_ = (lines_left_ + steps - 1) / steps;
    line_ = 0;
    row_codes_ = first_output(*panel) * weights.row_bytes + panel->block * block_bytes;
  }
  [[gnu::always_inline]] void prefetch_lines() {
    for (int64_t i = 0; i < lines_of_step_ && lines_left_ > 0; ++i, --lines_left_) {
      prefetch<64>(task_.weights.codes, row_codes_ + 64 * line_);
      if (++line_ < row_lines_) continue;
      line_ = 0;
      row_codes_ += task_.weights.row_bytes;
    }
  }

  // Products.

  /// One panel by the packs of one step. Before the first step of a block all of it is decoded.
  void multiply(const Panel& panel, int64_t pair) {
    const int64_t tile_stride = decoding_.splits * kBlockTileBytes;
    const int64_t stride = task_.x.stride;
    const bool is_last = pair + 1 == pairs_;
    const uint8_t* x =
        task_.x.data + (first_pack_ + kPacksOfStep * pair) * stride + panel.block * kBlockTileBytes;
    // A pack that is not there: the one before it, whose sums become no results.
    const int64_t x_stride = kPacksOfStep * pair + 1 < packs_ ? stride : 0;
    float* totals = totals_of(panel.index, pair);
    const bool last_panel = panel.index + 1 == kPanels;
    const float* next_totals =
        is_last ? totals_of(last_panel ? 0 : panel.index + 1, 0) : totals_of(panel.index, pair + 1);
    bool begins = !stays_ || panel.block == 0;
    const float* scales = scales_of(panel) + panel.group;
    int64_t group_left = (panel.group + 1) * group_blocks_ - panel.block;
    const int64_t count = blocks_of(panel);
    for (int64_t b = 0; b < count; ++b) {
      if (pair == 0) decode_blocks_below(panel.number + b + 1);
      const uint8_t* tiles = slot(panel.number + b);
      const int64_t free = panel.number + slots() + (is_last ? b : 0);
      // Scales of the panel before are in use until its last sums are added, those of this one,
      // too.
      const int64_t end = kFew || is_last ? next_end_ : panel.number + count;
      begins |= kScalesBlocks && b > 0;
      for (int64_t j = 0; j < steps_; ++j) {
        const uint8_t* step = x + j % 4 * kTmmBytes;
        if (begins) {
          begin_accumulators(tiles, tile_stride, step, x_stride,
                             panel.block > 0 ? totals : nullptr);
          begins = false;
        } else {
          multiply_step<kTiles>(tiles, tile_stride, step, x_stride);
        }
        tiles += kTmmBytes;
        const int64_t limit = is_last && j + 1 == steps_ ? free + 1 : free;
        decode_some(limit < end ? limit : end);
        add_block_partials(j);
        if constexpr (!kFew) {
          if (!is_last) prefetch_lines();
          prefetch_totals(next_totals);
          next_totals += kTileTotals / 4;
        }
      }
      x += kBlockTileBytes;
      if constexpr (kScalesBlocks) {
        keep_block_partials({totals, scales, panel.block + b > 0});
        if (--group_left == 0) {
          ++scales;
          group_left = group_blocks_;
        }
      }
    }
    if (!kScalesBlocks && (!stays_ || panel.block + count == blocks_)) acc_to_ = totals;
  }
  /// Prefetches what each of 16 steps takes of the next totals.
  static void prefetch_totals(const float* p) {
    for (int64_t i = 0; i < kTileTotals / 4; i += 16) __builtin_prefetch(p + i, 0, 3);
  }

  /// The first step of new sums. What the accumulators have goes to acc_to_ first.
  [[gnu::always_inline]] void begin_accumulators(const uint8_t* tiles, int64_t tile_stride,
                                                 const uint8_t* x, int64_t x_stride,
                                                 const float* from) {
    if (kScalesBlocks) from = nullptr;
    if (acc_to_ == nullptr) {
      from == nullptr ? zero_tiles() : load_accumulators(from);
      multiply_step<kTiles>(tiles, tile_stride, x, x_stride);
    } else if (from == nullptr) {
      multiply_step<kTiles, Begin::kZero, true>(tiles, tile_stride, x, x_stride, acc_to_);
    } else {
      multiply_step<kTiles, Begin::kLoaded, true>(tiles, tile_stride, x, x_stride, acc_to_, from);
    }
    if (kScalesBlocks && acc_to_ != nullptr) {
      stored_partials_ = acc_partials_;
      next_tile_ = 0;
    }
    acc_to_ = nullptr;
  }

  // Sums of blocks that scales multiply.

  struct BlockPartials {
    float* totals = nullptr;
    const float* scales = nullptr;  // of the panel's first output
    bool adds = false;              // to the totals: they are not the first
  };
  /// A block is through, and its sums are in the accumulators.
  void keep_block_partials(const BlockPartials& sums) {
    add_tiles_below(4);  // of the block before, which use the same memory
    acc_to_ = scratch_.block_partials;
    acc_partials_ = sums;
  }
  /// After step j of a block some of those of the block before: the stores of step 0 are through.
  [[gnu::always_inline]] void add_block_partials(int64_t j) {
    if (kScalesBlocks && j > 0) add_tiles_below(j + 1);
  }
  [[gnu::always_inline]] void add_tiles_below(int64_t end) {
    for (; next_tile_ < end && next_tile_ < 4; ++next_tile_) add_tile(next_tile_);
  }
  void add_tile(int64_t tile) const {
    const float* sums = scratch_.block_partials + tile * kTileFloats;
    const float* scale = stored_partials_.scales + tile / kPacksOfStep * kTileRows * scale_stride_;
    float* total = stored_partials_.totals + tile * kTileTotals;
    for (int64_t r = 0; r < kTileRows; ++r) {
      const auto sum = add_halves(sums + kTileRows * r);
      store_half(total,
                 stored_partials_.adds ? fma_half(*scale, sum, total) : mul_half(*scale, sum));
      scale += scale_stride_;
      total += kTotalRows;
    }
  }

  // Results.

  /// Stores the results of all panels of a macro-block. That is done row by row of activations, a
  /// long run of results each, as rows are far from each other.
  void end_macro_block(const Panel& panel) {
    store_accumulators(acc_to_);
    acc_to_ = nullptr;
    if constexpr (kScalesBlocks) {
      stored_partials_ = acc_partials_;
      next_tile_ = 0;
      add_tiles_below(4);
    }
    const int64_t left = task_.row_end - panel.macro;
    const int64_t outputs = left < kPanels * kOutputs ? left : kPanels * kOutputs;
    for (int64_t i = 0; i < outputs; ++i) scratch_.factors[i] = factor(panel.macro + i);
    for (int64_t pack = 0; pack < packs_; ++pack) {
      const int64_t m = (first_pack_ + pack) * rows_per_pack_;
      const int64_t rows = task_.x.rows - m < rows_per_pack_ ? task_.x.rows - m : rows_per_pack_;
      for (int64_t i = 0; i < outputs; i += kTileRows) {
        alignas(64) float by_row[kTileRows][kTileRows];  // of B: [row][output]
        transpose_totals(i, pack, by_row[0]);
        write_results(task_, m, rows, panel.macro + i,
                      outputs - i < kTileRows ? outputs - i : kTileRows,
                      {.data = by_row[0],
                       .stride = kTileRows,
                       .parts = kTotalRows / rows_per_pack_,
                       .part_stride = rows_per_pack_ * kTileRows},
                      scratch_.factors + i);
      }
    }
  }
  void transpose_totals(int64_t i, int64_t pack, float* by_row) const {
    const int64_t tile = i % kOutputs / kTileRows * kPacksOfStep + pack % kPacksOfStep;
    const float* totals = totals_of(i / kOutputs, pack / kPacksOfStep) + tile * kTileTotals;
    if constexpr (kScalesBlocks) {
      for (int64_t m = 0; m < kTotalRows; ++m) {
        store(by_row + m * kTileRows, load_strided<kTotalRows>(totals + m));
      }
    } else {
      transpose_lanes(totals, by_row);
    }
  }
  /// Factor of the sums of output n.
  float factor(int64_t n) const {
    const Weights& weights = task_.weights;
    if (!decoding_.scales_sums || kScalesBlocks) return weights.tensor_scale;
    decoding_.stage(weights, n, 0, 1, scales_);
    return *scales_ * weights.tensor_scale;
  }

  const MatmulTask& task_;
  const TileDecoding& decoding_;
  ManyRowsScratch& scratch_;
  float* scales_;
  int64_t scale_stride_;
  int64_t rows_per_pack_;
  int64_t first_pack_;
  int64_t packs_;
  int64_t pairs_;   // of packs, or packs: what one step takes
  int64_t blocks_;  // of a row
  int64_t steps_;   // of a block
  int64_t kc_;      // blocks of a panel
  int64_t group_blocks_;
  bool stays_;  // what is in the accumulators, from block to block

  Panel decoded_;         // what is decoded next
  int64_t block_ = 0;     // of it
  int64_t row_ = 0;       // outputs of that block that are done
  bool decodes_ = true;   // there is something left
  int64_t next_end_ = 0;  // of the blocks of the panel after that which is multiplied
  int64_t rows_at_once_;
  GroupWalk groups_;
  StepGroups step_groups_;

  int64_t row_codes_ = 0;  // whose lines are prefetched
  int64_t line_ = 0;
  int64_t row_lines_ = 0;
  int64_t lines_left_ = 0;
  int64_t lines_of_step_ = 0;

  float* acc_to_ = nullptr;        // where what is in the accumulators goes
  BlockPartials acc_partials_;     // what becomes of it then
  BlockPartials stored_partials_;  // what becomes of block_partials
  int64_t next_tile_ = 4;          // of these
};

template <bool kScalesBlocks>
void many_rows_in_passes(const MatmulTask& task, const TileDecoding& decoding,
                         int64_t rows_per_pack) {
  const int64_t packs = (task.x.rows + rows_per_pack - 1) / rows_per_pack;
  const int64_t passes = (packs + kMaxPacks - 1) / kMaxPacks;
  const int64_t each = (packs + passes - 1) / passes;
  for (int64_t first = 0; first < packs; first += each) {
    const int64_t count = packs - first < each ? packs - first : each;
    if (count <= kFewPacks) {
      ManyRows<4, kScalesBlocks>(task, decoding, rows_per_pack, first, count).run();
    } else {
      ManyRows<2, kScalesBlocks>(task, decoding, rows_per_pack, first, count).run();
    }
  }
}
inline void many_rows(const MatmulTask& task, const TileDecoding& decoding, int64_t rows_per_pack) {
  if (task.row_begin == task.row_end) return;
  if (decoding.scales_sums && task.weights.group_size < task.weights.cols) {
    many_rows_in_passes<true>(task, decoding, rows_per_pack);
  } else {
    many_rows_in_passes<false>(task, decoding, rows_per_pack);
  }
}
