// The mainloop of matrix units: tiles of 16 rows of weights by 32 inputs, bf16. Included inside the
// namespace of an instruction set with tiles, after tile_squares.inl.h, which has another one for
// many columns whose sums need no scales of groups. Here:
//
//                     16 m             C = A * B: rows are outputs, columns are activations, so
//                 +--------+           that weights are never transposed: a row of A is what one
//       16 pairs  |   B    |           decoded vector of a row of weights is. Four tiles of A meet
//                 +--------+           one of B: 5 loads for 4 products.
//    32   +----+  +--------+
//   64 n  | A  |  |  C x 4 |
//         +----+  +--------+
//
//   for each stretch of strips of 64 rows n of weights:  kStretchStrips of them, or one
//     for each panel of inputs:                          one or two blocks of 128
//       for each strip:    decode the panel              32 KB, first-level cache
//         for each column of 16 rows of activations:     4 tiles of sums
//           products; after the last block of a group    y += scale * sums
//
// Few columns: the next panel is decoded between the products of this one, which wait for each
// other; a stretch is one strip, and the codes of the next strip are asked for in the order of
// memory. Many columns: the inputs of a panel for all activations, and the sums of a stretch, stay
// in the second-level cache; those of the next panel, and its codes, are asked for meanwhile.
//
// kFollowingTiles and kSplitFollowingTiles, in which NVFP4 and bf16 come, have the inputs of a
// block in another order; bounds are the same. kSplitTiles: x = high + low, each a column, so that
// a tile has 8 rows of activations, and 8 rows take as long as one. Accuracy, u = 2^-24:
//   |y - exact| <= g * sum |w| |x|,  g = r + n u / (1 - n u),  n = K + blocks + 4 (kSplitTiles: 5)
//   r = 2^-8 for kTiles (activations), and 2^-8 more where weights are rounded;
//       2^-16 for kSplitTiles, and 2^-16 more, and K more in n, where weights take two terms
// A tile adds two products at a time to each sum and rounds each time; it counts subnormal bf16 as
// zero. Of two terms the second of an infinite number is NaN, and so is infinity by the second term
// of another: what would be infinite is NaN.

/// Products of panels and columns. What the tiles hold when a column, or a group, is through is
/// stored between the first products of the next, and scaled and added during those that follow:
/// so neither waits for the other.
class TileProducts {
 public:
  explicit TileProducts(const TilePass& pass) : pass_(pass) {}

  /// All columns of one panel. Between the products the rows of `next`, if there is one, are
  /// decoded, or only asked for.
  void multiply_columns(const TilePanel& panel, const uint8_t* tiles, PanelDecoder* next) {
    const int64_t steps = 4 * pass_.terms * pass_.panel_blocks * pass_.columns;
    const int64_t decode_rows = (kStripRows + steps - 1) / steps;
    const int64_t fetch_rows = (kStripRows + pass_.columns - 1) / pass_.columns;
    for (int64_t c = 0; c < pass_.columns; ++c) {
      if (next != nullptr && !pass_.ahead) next->fetch_rows(fetch_rows);
      multiply_panel(panel, tiles, c, pass_.ahead ? next : nullptr, decode_rows);
    }
  }

  /// Stores what is left in the tiles.
  void end() {
    if (held_.to != nullptr) store_sums(held_.to);
    take_held();
    add_rows(kStripRows);
  }

 private:
  /// Sums, and what is to become of them.
  struct Sums {
    float* to = nullptr;            // where tiles are stored; nullptr: these are none
    float* totals = nullptr;        // of the column: the same, but for the sums of a group
    const float* scales = nullptr;  // of the group, or of the rows
    int64_t rows = 0;               // that are to be scaled and added
    bool adds = false;              // to the totals: they are not the first
    bool is_last = false;           // the column is complete
    int64_t n = 0;                  // first row of weights
    int64_t column = 0;
  };

  Sums sums_of(const TilePanel& panel, int64_t column, int64_t group) const {
    float* totals = pass_.scratch.totals + (panel.strip * pass_.columns + column) * kSumFloats;
    const bool is_group = pass_.scaling == SumScaling::kGroups;
    return {.to = is_group ? pass_.scratch.sums : totals,
            .totals = totals,
            .scales = scales_of(pass_, panel) + group,
            .rows = is_group ? rows_of(pass_, panel) : 0,
            .adds = panel.block > 0,
            .n = panel.n(),
            .column = column};
  }

  void multiply_panel(const TilePanel& panel, const uint8_t* tiles, int64_t column,
                      PanelDecoder* next, int64_t decode_rows) {
    const BlockRange range = blocks_of(pass_, panel);
    const int64_t tile_stride = (range.end - range.begin) * pass_.terms * kBlockTileBytes;
    const uint8_t* x = pass_.task->x.data + (pass_.first_column + column) * pass_.task->x.stride +
                       range.begin * kBlockTileBytes;
    // Activations of the next panel, a quarter of them at each strip of the stretch.
    constexpr int64_t kFetched = kStepBytes / kStretchStrips;
    const int64_t fetch_ahead = pass_.panel_blocks * kBlockTileBytes;
    const bool fetches_x = pass_.stretch_strips > 1;
    const bool scales_groups = pass_.scaling == SumScaling::kGroups;
    Sums sums = sums_of(panel, column, range.group);
    const float* from = scales_groups || range.begin == 0 ? nullptr : sums.totals;
    bool begins = scales_groups || !pass_.resident || range.begin == 0;
    int64_t left = range.left;
    for (int64_t b = range.begin; b < range.end; ++b) {
      for (int64_t j = 0; j < 4 * pass_.terms; ++j) {
        const uint8_t* step = x + j % 4 * kStepBytes;
        if (begins) {
          begin_sums(tiles, tile_stride, step, from);
          begins = false;
        } else {
          multiply_step(tiles, tile_stride, step);
        }
        tiles += kStepBytes;
        if (fetches_x) prefetch<kFetched>(step + panel.strip * kFetched, fetch_ahead);
        if (next != nullptr) next->decode_rows(decode_rows);
        add_rows(kAddedRows);
      }
      x += kBlockTileBytes;
      sums.is_last = b + 1 == pass_.blocks;
      if (scales_groups && (--left == 0 || b + 1 == range.end)) {
        hold(sums);
        ++sums.scales;
        sums.adds = true;
        left = range.group_blocks;
        begins = true;
      }
    }
    if (!scales_groups && (sums.is_last || !pass_.resident)) hold(sums);
  }

  /// The first products of new sums, which begin with those at `from`, or at zero.
  void begin_sums(const uint8_t* tiles, int64_t tile_stride, const uint8_t* x, const float* from) {
    if (held_.to == nullptr) {
      from == nullptr ? zero_tiles() : load_sums(from);
      multiply_step(tiles, tile_stride, x);
    } else if (from == nullptr) {
      multiply_step_from_zero(tiles, tile_stride, x, held_.to);
    } else {
      multiply_step_from(tiles, tile_stride, x, held_.to, from);
    }
    take_held();
  }

  void hold(const Sums& sums) {
    add_rows(kStripRows);  // those before use the same memory
    held_ = sums;
  }
  void take_held() {
    adding_ = held_;
    next_row_ = 0;
    held_ = {};
    if (adding_.rows == 0) end_column();
  }

  /// Adds `count` more rows of the sums of a group to the totals.
  [[gnu::always_inline]] void add_rows(int64_t count) {
    if (next_row_ == adding_.rows) return;
    const int64_t left = adding_.rows - next_row_;
    const int64_t end = next_row_ + (count < left ? count : left);
    const int64_t staged = staged_floats(pass_.task->weights.groups);
    const float* scale = adding_.scales + next_row_ * staged;
    const float* sums = adding_.to + next_row_ * kTileRows;
    float* total = adding_.totals + next_row_ * kSplitRows;
    float* const total_end = adding_.totals + end * kSplitRows;
    if (adding_.adds) {
      for (; total < total_end; total += kSplitRows, sums += kTileRows, scale += staged) {
        store_half(total, fma_half(*scale, add_halves(sums), load_half(total)));
      }
    } else {
      for (; total < total_end; total += kSplitRows, sums += kTileRows, scale += staged) {
        store_half(total, fma_half(*scale, add_halves(sums), zero_half()));
      }
    }
    next_row_ = end;
    if (end == adding_.rows) end_column();
  }
  void end_column() {
    if (adding_.is_last) store_results();
    adding_ = {};
    next_row_ = 0;
  }

  /// y[m][n] of a strip and a column, all that belongs to one m at a time.
  void store_results() const {
    const MatmulTask& task = *pass_.task;
    const int64_t rows =
        task.row_end - adding_.n < kStripRows ? task.row_end - adding_.n : kStripRows;
    const int64_t first_m = (pass_.first_column + adding_.column) * pass_.rows_of_x;
    const int64_t left = task.x.rows - first_m;
    const int64_t count = left < pass_.rows_of_x ? left : pass_.rows_of_x;
    alignas(64) float sums[kStripTiles][kTileRows][kTileRows];  // [tile][m][n]
    for (int64_t tile = 0; tile * kTileRows < rows; ++tile) transpose_sums(tile, sums[tile][0]);
    for (int64_t n = 0; n < rows; n += kTileRows) {
      const int64_t lanes = rows - n < kTileRows ? rows - n : kTileRows;
      alignas(64) float factor[kTileRows];
      store(factor, factors(n, lanes));
      write_results(task, first_m, count, adding_.n + n, lanes, {sums[n / kTileRows][0], kTileRows},
                    factor);
    }
  }
  void transpose_sums(int64_t tile, float* sums) const {
    if (pass_.scaling == SumScaling::kGroups) {
      const float* totals = adding_.totals + tile * kTileRows * kSplitRows;
      for (int64_t m = 0; m < kSplitRows; ++m) {
        store(sums + m * kTileRows, load_column<kSplitRows>(totals + m));
      }
      return;
    }
    transpose_16x16(adding_.totals + tile * 256, sums);
    if (pass_.rows_of_x == kTileRows) return;
    for (int64_t m = 0; m < kSplitRows; ++m) {
      float* high = sums + m * kTileRows;
      store(high, add(load(high), load(high + kSplitRows * kTileRows)));
    }
  }
  /// What the sums of `count` rows of weights from `row` of the strip on are to be multiplied by.
  Float factors(int64_t row, int64_t count) const {
    const Float factor = broadcast(pass_.task->weights.tensor_scale);
    if (pass_.scaling != SumScaling::kRows) return factor;
    alignas(64) float scales[kTileRows] = {};
    const int64_t staged = staged_floats(pass_.task->weights.groups);
    for (int64_t i = 0; i < count; ++i) scales[i] = adding_.scales[(row + i) * staged];
    return mul(load(scales), factor);
  }

  /// Rows of a strip for each of the steps that follow the first of a group, of which there are
  /// at least three.
  static constexpr int64_t kAddedRows = (kStripRows + 2) / 3;

  const TilePass& pass_;
  Sums held_;    // in the tiles
  Sums adding_;  // stored, not yet all added
  int64_t next_row_ = 0;
};

inline void run_pass(const TilePass& pass) {
  const TileSession session;
  TileProducts products(pass);
  TilePanel panel = {.stretch = pass.task->row_begin};
  int buffer = 0;
  PanelDecoder(pass, panel, pass.scratch.panels[0]).decode_rows(kStripRows);
  for (;;) {
    TilePanel following = panel;
    if (!next_panel(pass, following)) {
      products.multiply_columns(panel, pass.scratch.panels[buffer], nullptr);
      return products.end();
    }
    const int other = pass.ahead ? 1 - buffer : buffer;
    PanelDecoder next(pass, following, pass.scratch.panels[other]);
    products.multiply_columns(panel, pass.scratch.panels[buffer], &next);
    next.decode_rows(kStripRows);
    panel = following;
    buffer = other;
  }
}

/// `rows_of_x`: rows of activations in a tile: kTileRows or kSplitRows.
inline void tile_rows(const MatmulTask& task, const TileDecoding& decoding, int64_t rows_of_x) {
  const Weights& weights = task.weights;
  TilePass pass{};
  pass.task = &task;
  pass.decoding = &decoding;
  pass.rows_of_x = rows_of_x;
  pass.scratch = tile_scratch(task.scratch);
  pass.scratch.scales = pass.scratch.staged + staged_floats((weights.cols + 7) / 8);
  pass.blocks = (weights.cols + kBlockInputs - 1) / kBlockInputs;
  pass.block_bytes = weights.row_bytes * kBlockInputs / weights.cols;
  const bool groups = decoding.stage != nullptr && weights.group_size < weights.cols;
  pass.group_blocks = groups ? weights.group_size / kBlockInputs : INT64_MAX;
  const int64_t columns = (task.x.rows + rows_of_x - 1) / rows_of_x;
  const int64_t passes = (columns + kMostColumns - 1) / kMostColumns;
  const int64_t each = (columns + passes - 1) / passes;
  pass.ahead = each <= kAheadColumns;
  pass.stretch_strips = pass.ahead ? 1 : kStretchStrips;
  if (decoding.scales_sums) pass.scaling = groups ? SumScaling::kGroups : SumScaling::kRows;
  // Where the sums of a group end with a block, longer panels would save nothing. Where they end
  // with a panel, it must not depend on the number of columns.
  const bool one_block = pass.scaling == SumScaling::kGroups ? pass.group_blocks == 1 : pass.ahead;
  pass.terms = decoding.terms;
  pass.panel_blocks = one_block ? 1 : kMostPanelBlocks / pass.terms;
  const bool squares = each >= kSquareColumns && pass.scaling != SumScaling::kGroups;
  if (squares) {
    pass.panel_blocks = kSquareBlocks / pass.terms;
    pass.stretch_strips = kSquareStrips;
  }
  for (int64_t c = 0; c < columns; c += each) {
    pass.first_column = c;
    pass.columns = columns - c < each ? columns - c : each;
    pass.resident = pass.columns == 1 && pass.stretch_strips == 1;
    squares ? run_squares(pass) : run_pass(pass);
  }
}
