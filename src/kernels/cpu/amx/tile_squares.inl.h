// The mainloop of tiles for prompts whose sums need no scales, or one for each row: two tiles of
// weights by two of activations. Included inside the namespace of an instruction set with tiles,
// after tile_panels.inl.h.
//
//                  16 m   16 m         4 loads for 4 products, and sums that are loaded and stored
//                +------+------+       once for 512 inputs, not 256 as with four tiles by one: the
//       16 pairs |  B0  |  B1  |       panel in the first-level cache is half as high, twice as
//                +------+------+       long.
//   32   +----+  +------+------+
//   n    | A  |  | C 2 x 2     |
//        +----+  +-------------+
//
//   for each stretch of 16 strips of 32 rows n of weights:
//     for each panel of 512 inputs:                      512 x 512 activations, second-level cache
//       for each strip:                                  32 KB of weights, first-level cache
//         for each two columns of 16 rows of activations
//           products; the sums of the next two are asked for meanwhile
//     results
//
// Panels are decoded where the one before lies: while the last two columns are multiplied, a block
// of the next panel takes the place of each block that they have done with, and the last block does
// so while the first two columns of the next panel begin. A second place would not stay in the
// first-level cache.
//
//   columns     ... 28, 29 | 30, 31             | 0, 1               | 2, 3 ...
//   multiplied  0  1  2  3 | 0   1    2    3    | 0'    1'   2'   3' | 0' 1' 2' 3'
//   decoded                |     0'   1'   2'   | 3'                 |
//
// The order in which a sum's products are added is that of tiles.inl.h.

/// Decodes one panel, [block][tile of rows: 2][step], some rows of a block at a time.
class SquareDecoder {
 public:
  /// Nothing to decode.
  SquareDecoder() = default;
  SquareDecoder(const TilePass& pass, const TilePanel& panel)
      : pass_(&pass), blocks_(blocks_of(pass, panel)), rows_(rows_of(pass, panel)), n_(panel.n()) {
    count_ = blocks_.end - blocks_.begin;
    const Weights& weights = pass.task->weights;
    codes_ = weights.codes + n_ * weights.row_bytes + blocks_.begin * pass.block_bytes;
    row_lines_ = (count_ * pass.block_bytes + 63) / 64 + 1;
  }
  int64_t lines() const { return rows_ * row_lines_; }

  /// Asks for some more lines of codes.
  [[gnu::always_inline]] void fetch_lines(int64_t count) {
    for (; count > 0 && fetch_row_ < rows_; --count) {
      prefetch<64>(codes_, fetch_row_ * pass_->task->weights.row_bytes + fetch_line_ * 64);
      if (++fetch_line_ < row_lines_) continue;
      fetch_line_ = 0;
      ++fetch_row_;
    }
  }

  /// Some rows of the next block, if it is one of the first `limit`.
  [[gnu::always_inline]] void advance(int64_t limit) {
    if (block_ < limit && block_ < count_) decode_rows();
  }
  /// The first `limit` blocks, to the end.
  void finish(int64_t limit) {
    while (block_ < limit && block_ < count_) decode_rows();
  }

 private:
  void decode_rows() {
    const int64_t rows = kSquareRows / (4 * pass_->terms);  // a block in its own number of steps
    const int64_t end = row_ + rows < rows_ ? row_ + rows : rows_;
    const int64_t b = blocks_.begin + block_;
    if (block_ == 0) stage(row_, end);
    if (row_ == 0) group_ = b / pass_->group_blocks;
    const BlockRange block = {.begin = b,
                              .end = b + 1,
                              .whole_blocks = blocks_.whole_blocks,
                              .group_blocks = blocks_.group_blocks,
                              .group = group_};
    const int64_t block_bytes = pass_->terms * kBlockTileBytes;
    const TileOutput out = {.panel = pass_->scratch.panels[0] + 2 * block_ * block_bytes,
                            .scales = pass_->scratch.scales,
                            .staged = pass_->scratch.staged,
                            .prefetch = false,
                            .block_bytes = block_bytes};
    pass_->decoding->decode(pass_->task->weights, {n_, row_, end}, block, out);
    row_ = end;
    if (row_ < rows_) return;
    row_ = 0;
    ++block_;
  }
  /// The scales of the panel's groups: no other panel is decoded before this one is through.
  void stage(int64_t begin, int64_t end) const {
    if (pass_->decoding->stage == nullptr || pass_->scaling == SumScaling::kRows) return;
    const Weights& weights = pass_->task->weights;
    const int64_t staged = staged_floats(weights.groups);
    const int64_t first = blocks_.begin / pass_->group_blocks;
    const int64_t last = (blocks_.end - 1) / pass_->group_blocks;
    for (int64_t i = begin; i < end; ++i) {
      pass_->decoding->stage(weights, n_ + i, first, last + 1, pass_->scratch.scales + i * staged);
    }
  }

  const TilePass* pass_ = nullptr;
  BlockRange blocks_;
  int64_t count_ = 0;  // of blocks
  int64_t rows_ = 0;
  int64_t n_ = 0;
  const uint8_t* codes_ = nullptr;
  int64_t row_lines_ = 0;
  int64_t fetch_row_ = 0;
  int64_t fetch_line_ = 0;
  int64_t block_ = 0;  // what is decoded next
  int64_t row_ = 0;
  int64_t group_ = 0;
};

/// Products of panels and columns. Sums are stored between the first products of the next.
class SquareProducts {
 public:
  explicit SquareProducts(const TilePass& pass)
      : pass_(pass), pairs_((pass.columns + 1) / 2), block_steps_(4 * pass.terms) {}

  /// One panel by all columns. `decoder` may have some of it left to decode.
  void multiply(const TilePanel& panel, SquareDecoder& decoder, SquareDecoder& next) {
    if (pairs_ == 1) decoder.finish(kSquareBlocks);  // its columns are the first and the last
    const int64_t steps = (pairs_ - 1) * pass_.panel_blocks * block_steps_;
    const int64_t fetched = steps == 0 ? 0 : (next.lines() + steps - 1) / steps;
    for (int64_t pair = 0; pair < pairs_; ++pair) {
      if (pair + 1 == pairs_) {
        multiply_pair(panel, pair, [&](int64_t block) { next.advance(block); });
      } else if (pair == 0) {
        multiply_pair(panel, pair, [&](int64_t block) {
          next.fetch_lines(fetched);
          decoder.finish(block + 1);
          decoder.advance(kSquareBlocks);
        });
      } else {
        multiply_pair(panel, pair, [&](int64_t) { next.fetch_lines(fetched); });
      }
    }
  }

  /// Stores what is left in the tiles, and the results of the stretch.
  void end_stretch(int64_t stretch) {
    store_sums(held_);
    held_ = nullptr;
    const int64_t left = pass_.task->row_end - stretch;
    const int64_t rows = left < kSquareStrips * kSquareRows ? left : kSquareStrips * kSquareRows;
    float* factors = pass_.scratch.sums;
    for (int64_t i = 0; i < rows; ++i) factors[i] = factor(stretch + i);
    // Row by row of activations, a long run of results each: they are far from each other.
    for (int64_t column = 0; column < pass_.columns; ++column) {
      for (int64_t i = 0; i < rows; i += kTileRows) {
        store_results(stretch + i, rows - i < kTileRows ? rows - i : kTileRows, column,
                      totals_of(i / kSquareRows, column / 2) +
                          (i % kSquareRows / kTileRows * 2 + column % 2) * kTileFloats,
                      factors + i);
      }
    }
  }

 private:
  static constexpr int64_t kTileFloats = 256;
  static constexpr int64_t kFetchedFloats = 64;  // of the next sums, at each step

  float* totals_of(int64_t strip, int64_t pair) const {
    return pass_.scratch.totals + (strip * pairs_ + pair) * kSumFloats;
  }

  /// Between steps between(blocks of the panel that are done with): before the first of a block all
  /// of it must be decoded.
  template <class Between>
  [[gnu::always_inline]] void multiply_pair(const TilePanel& panel, int64_t pair,
                                            const Between& between) {
    const BlockRange range = blocks_of(pass_, panel);
    const int64_t stride = pass_.task->x.stride;
    const int64_t tile_stride = block_steps_ * kStepBytes;
    const uint8_t* x = pass_.task->x.data + (pass_.first_column + 2 * pair) * stride +
                       range.begin * kBlockTileBytes;
    // A column that is not there: another, whose sums become no results.
    const int64_t second = 2 * pair + 1 < pass_.columns ? stride : 0;
    float* sums = totals_of(panel.strip, pair);
    const float* soon = pair + 1 < pairs_ ? sums + kSumFloats : sums_after(panel);
    const uint8_t* tiles = pass_.scratch.panels[0];
    bool begins = true;
    for (int64_t b = 0; b < range.end - range.begin; ++b) {
      for (int64_t j = 0; j < block_steps_; ++j) {
        const uint8_t* step = x + j % 4 * kStepBytes;
        if (begins) {
          between(b);
          begin_sums(tiles, tile_stride, step, step + second, range.begin == 0 ? nullptr : sums);
          begins = false;
        } else {
          multiply_square(tiles, tile_stride, step, step + second);
          between(j + 1 < block_steps_ ? b : b + 1);
        }
        tiles += kStepBytes;
        fetch_sums(soon);
        soon += kFetchedFloats;
      }
      tiles += tile_stride;
      x += kBlockTileBytes;
    }
    held_ = sums;
  }
  /// The first sums of the next strip.
  const float* sums_after(const TilePanel& panel) const {
    const bool last = panel.strip + 1 == pass_.stretch_strips;
    return totals_of(last ? 0 : panel.strip + 1, 0);
  }
  static void fetch_sums(const float* p) {
    for (int64_t i = 0; i < kFetchedFloats; i += 16) __builtin_prefetch(p + i, 0, 3);
  }

  /// The first products of new sums, which begin with those at `from`, or at zero.
  [[gnu::always_inline]] void begin_sums(const uint8_t* tiles, int64_t tile_stride,
                                         const uint8_t* x0, const uint8_t* x1, const float* from) {
    if (held_ == nullptr) {
      from == nullptr ? zero_tiles() : load_sums(from);
      multiply_square(tiles, tile_stride, x0, x1);
    } else if (from == nullptr) {
      multiply_square_from_zero(tiles, tile_stride, x0, x1, held_);
    } else {
      multiply_square_from(tiles, tile_stride, x0, x1, held_, from);
    }
  }

  /// What the sums of row n of the weights are to be multiplied by.
  float factor(int64_t n) const {
    const Weights& weights = pass_.task->weights;
    if (pass_.scaling != SumScaling::kRows) return weights.tensor_scale;
    pass_.decoding->stage(weights, n, 0, 1, pass_.scratch.staged);
    return *pass_.scratch.staged * weights.tensor_scale;
  }

  /// y[m][n] of `rows` rows of weights and a column.
  void store_results(int64_t n, int64_t rows, int64_t column, const float* totals,
                     const float* factors) const {
    const MatmulTask& task = *pass_.task;
    const int64_t first_m = (pass_.first_column + column) * pass_.rows_of_x;
    const int64_t left = task.x.rows - first_m;
    const int64_t count = left < pass_.rows_of_x ? left : pass_.rows_of_x;
    alignas(64) float sums[kTileRows][kTileRows];
    transpose_16x16(totals, sums[0]);
    write_results(task, first_m, count, n, rows,
                  {.data = sums[0],
                   .stride = kTileRows,
                   .parts = kTileRows / pass_.rows_of_x,
                   .part_stride = kSplitRows * kTileRows},
                  factors);
  }

  const TilePass& pass_;
  int64_t pairs_;          // of columns
  int64_t block_steps_;    // of a block
  float* held_ = nullptr;  // where the sums in the tiles go
};

inline void run_squares(const TilePass& pass) {
  const TileSession session;
  SquareProducts products(pass);
  TilePanel panel = {.stretch = pass.task->row_begin, .strip_rows = kSquareRows};
  SquareDecoder decoder(pass, panel);
  for (;;) {
    TilePanel following = panel;
    const bool more = next_panel(pass, following);
    SquareDecoder next = more ? SquareDecoder(pass, following) : SquareDecoder();
    products.multiply(panel, decoder, next);
    if (!more || following.stretch != panel.stretch) products.end_stretch(panel.stretch);
    if (!more) return;
    panel = following;
    decoder = next;
  }
}
