// The mainloop of matrix units: tiles of 16 rows of weights by 32 inputs, bf16. Included inside the
// namespace of an instruction set with tiles, after tile_decoders.inl.h.
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
// other; a stretch is one strip, so that rows of codes are read from end to end. Many columns: the
// inputs of a panel for all activations, and the sums of a stretch, stay in the second-level cache.
//
// kSplitTiles: x = high + middle + low, three steps for one. Accuracy, u = 2^-24:
//   |y - exact| <= g * sum |w| |x|,  g = r + n u / (1 - n u),  n = 3 K + blocks + 4 (K: kTiles)
//   r = 2^-8 for kTiles (activations), and 2^-8 more where weights are rounded
// A tile adds two products at a time to each sum and rounds each time; it counts subnormal bf16 as
// zero.

constexpr int64_t kTileFewRows = 4;   // up to so many go through FMA
constexpr int64_t kTileInt8Rows = 8;  // or through dot products of bytes
constexpr int64_t kMostPanelBlocks = 2;
constexpr int64_t kPanelBytes = kStripTiles * kMostPanelBlocks * kBlockTileBytes;
constexpr int64_t kStretchStrips = 4;
constexpr int64_t kMostColumns = 32;               // in one pass over the weights
constexpr int64_t kAheadColumns = 4;               // up to so many: decode between products
constexpr int64_t kSumFloats = kStripTiles * 256;  // of a strip and a column: [tile][n][m]

/// Where the parts of a thread's scratch memory lie.
struct TileScratch {
  uint8_t* panels[2];
  float* sums;    // of one group
  float* totals;  // [strip of the stretch][column][kSumFloats]
  float* scales;  // [strip of the stretch][64][staged_floats]
  float* staged;  // of a row with the smallest groups
};

inline TileScratch tile_scratch(uint8_t* scratch) {
  TileScratch parts{};
  parts.panels[0] = scratch;
  parts.panels[1] = scratch + kPanelBytes;
  parts.sums = reinterpret_cast<float*>(scratch + 2 * kPanelBytes);
  parts.totals = parts.sums + kSumFloats;
  parts.staged = parts.totals + kStretchStrips * kMostColumns * kSumFloats;
  return parts;
}

/// The scales of a stretch are staged only where groups cover blocks.
inline int64_t tile_scratch_bytes(int64_t k) {
  const int64_t blocks = (k + kBlockInputs - 1) / kBlockInputs;
  const int64_t floats = kSumFloats * (1 + kStretchStrips * kMostColumns) +
                         staged_floats((k + 7) / 8) +
                         kStretchStrips * kStripRows * staged_floats(blocks);
  return 2 * kPanelBytes + 4 * floats;
}

/// One pass over the rows of a task, for the columns [first_column, first_column + columns).
struct TilePass {
  const MatmulTask* task;
  const TileDecoding* decoding;
  TileScratch scratch;
  int64_t first_column;
  int64_t columns;
  int64_t blocks;        // of a row
  int64_t group_blocks;  // INT64_MAX: the whole row, or not known to sums
  int64_t panel_blocks;
  int64_t stretch_strips;
  bool ahead;     // decode the next panel between products
  bool resident;  // sums stay in the tiles from one panel to the next
};

/// Some blocks of one strip.
struct TilePanel {
  int64_t stretch = 0;  // its first row
  int64_t strip = 0;    // in the stretch
  int64_t block = 0;    // the first

  int64_t n() const { return stretch + strip * kStripRows; }
};

/// Moves on to the panel after this one; false behind the last.
inline bool next_panel(const TilePass& pass, TilePanel& panel) {
  const int64_t row_end = pass.task->row_end;
  ++panel.strip;
  if (panel.strip < pass.stretch_strips && panel.n() < row_end) return true;
  panel.strip = 0;
  panel.block += pass.panel_blocks;
  if (panel.block < pass.blocks) return true;
  panel.block = 0;
  panel.stretch += pass.stretch_strips * kStripRows;
  return panel.stretch < row_end;
}

inline BlockRange blocks_of(const TilePass& pass, const TilePanel& panel) {
  const int64_t left = pass.blocks - panel.block;
  BlockRange range = {.begin = panel.block, .whole_blocks = pass.decoding->whole_blocks};
  range.end = panel.block + (left < pass.panel_blocks ? left : pass.panel_blocks);
  range.group_blocks = pass.group_blocks;
  range.group = range.begin / range.group_blocks;
  range.left = range.group_blocks - range.begin % range.group_blocks;
  return range;
}

inline int64_t rows_of(const TilePass& pass, const TilePanel& panel) {
  const int64_t left = pass.task->row_end - panel.n();
  return left < kStripRows ? left : kStripRows;
}

inline float* scales_of(const TilePass& pass, const TilePanel& panel) {
  // With one strip in a stretch the next one's scales are staged while these are in use.
  const int64_t slot = panel.n() / kStripRows % kStretchStrips;
  return pass.scratch.scales + slot * kStripRows * staged_floats(pass.task->weights.groups);
}

/// Decodes one panel, at once or a few rows at a time. Rows that the strip does not have stay what
/// they were: what comes of them is not stored.
class PanelDecoder {
 public:
  PanelDecoder(const TilePass& pass, const TilePanel& panel, uint8_t* to)
      : pass_(pass), blocks_(blocks_of(pass, panel)), rows_(rows_of(pass, panel)), n_(panel.n()) {
    const bool stretch = pass.stretch_strips > 1;
    out_ = {.panel = to,
            .scales = scales_of(pass, panel),
            .staged = pass.scratch.staged,
            .prefetch_rows = stretch ? 0 : kStripRows,
            .prefetch_blocks = stretch ? pass.panel_blocks : 0};
    if (panel.block == 0 && pass.decoding->stage != nullptr) stage(scales_of(pass, panel));
  }
  void decode_rows(int64_t count) {
    const int64_t end = next_ + count < rows_ ? next_ + count : rows_;
    if (next_ == end) return;
    pass_.decoding->decode(pass_.task->weights, {n_, next_, end}, blocks_, out_);
    next_ = end;
  }

 private:
  void stage(float* scales) const {
    const Weights& weights = pass_.task->weights;
    const int64_t staged = staged_floats(weights.groups);
    for (int64_t i = 0; i < rows_; ++i) {
      pass_.decoding->stage(weights, n_ + i, 0, weights.groups, scales + i * staged);
    }
  }

  const TilePass& pass_;
  BlockRange blocks_;
  int64_t rows_;
  int64_t n_;
  TileOutput out_;
  int64_t next_ = 0;  // row of the strip
};

/// totals += scale * sums, the scale of each row of C being that of its output.
inline void add_scaled(const TilePass& pass, const float* scales, int64_t rows, float* totals) {
  const int64_t staged = staged_floats(pass.task->weights.groups);
  store_sums(pass.scratch.sums);
  for (int64_t i = 0; i < rows; ++i) {
    const Float sums = load(pass.scratch.sums + i * kTileRows);
    float* total = totals + i * kTileRows;
    store(total, fma(broadcast(scales[i * staged]), sums, load(total)));
  }
}

/// One panel times one column of activations, added to `totals`. Every few products, `decode_rows`
/// rows of another panel are decoded.
template <int kTerms>
void multiply_panel(const TilePass& pass, const TilePanel& panel, const uint8_t* tiles,
                    int64_t column, float* totals, PanelDecoder* next, int64_t decode_rows) {
  const TileDecoding& decoding = *pass.decoding;
  const BlockRange range = blocks_of(pass, panel);
  const int64_t tile_stride = (range.end - range.begin) * kBlockTileBytes;
  const uint8_t* x = pass.task->x.data + (pass.first_column + column) * pass.task->x.stride +
                     range.begin * kTerms * kBlockTileBytes;
  const float* scales = scales_of(pass, panel) + range.group;
  const int64_t rows = rows_of(pass, panel);
  if (range.begin == 0) {
    for (int64_t i = 0; i < kSumFloats; i += kLanes) store(totals + i, zero());
  }
  const bool last = range.end == pass.blocks;
  if (decoding.scales_sums || (pass.resident && range.begin == 0)) {
    zero_tiles();
  } else if (!pass.resident) {
    load_sums(totals);
  }
  int64_t left = range.left;
  for (int64_t b = range.begin; b < range.end; ++b) {
    for (int t = 0; t < kTerms; ++t) {
      for (int j = 0; j < 4; ++j) {
        multiply_step(tiles + j * kStepBytes, tile_stride, x);
        if (next != nullptr) next->decode_rows(decode_rows);
        x += kStepBytes;
      }
    }
    tiles += kBlockTileBytes;
    if (decoding.scales_sums && (--left == 0 || b + 1 == range.end)) {
      add_scaled(pass, scales, rows, totals);
      zero_tiles();
      ++scales;
      left = range.group_blocks;
    }
  }
  if (!decoding.scales_sums && (last || !pass.resident)) store_sums(totals);
}

/// y[m][n] from the totals of one strip and column.
inline void store_tiles(const TilePass& pass, const float* totals, int64_t n, int64_t column) {
  const MatmulTask& task = *pass.task;
  const float factor = task.weights.tensor_scale;
  const int64_t first_m = (pass.first_column + column) * kTileRows;
  const int64_t count = task.x.rows - first_m < 16 ? task.x.rows - first_m : 16;
  for (int64_t tile = 0; tile < kStripTiles; ++tile) {
    const int64_t first_n = n + tile * kTileRows;
    if (first_n >= task.row_end) return;
    alignas(64) float transposed[256];
    transpose_16x16(totals + tile * 256, transposed);
    const int64_t rows = task.row_end - first_n < 16 ? task.row_end - first_n : 16;
    Float bias = zero();
    if (task.bias != nullptr) bias = load_first(task.bias + first_n, rows);
    for (int64_t m = 0; m < count; ++m) {
      const Float result = add(mul(load(transposed + m * 16), broadcast(factor)), bias);
      store_first(task.y + (first_m + m) * task.y_stride + first_n, result, rows);
    }
  }
}

/// All columns of one panel, and the results after the last panel of a strip.
template <int kTerms>
void multiply_columns(const TilePass& pass, const TilePanel& panel, const uint8_t* tiles,
                      PanelDecoder* next) {
  const int64_t steps = 4 * kTerms * pass.panel_blocks * pass.columns;
  const int64_t decode_rows = (kStripRows + steps - 1) / steps;
  float* totals = pass.scratch.totals + panel.strip * pass.columns * kSumFloats;
  for (int64_t c = 0; c < pass.columns; ++c, totals += kSumFloats) {
    multiply_panel<kTerms>(pass, panel, tiles, c, totals, next, decode_rows);
    if (panel.block + pass.panel_blocks >= pass.blocks) store_tiles(pass, totals, panel.n(), c);
  }
}

template <int kTerms>
void run_pass(const TilePass& pass) {
  const TileSession session;
  TilePanel panel = {.stretch = pass.task->row_begin};
  int buffer = 0;
  PanelDecoder(pass, panel, pass.scratch.panels[0]).decode_rows(kStripRows);
  for (;;) {
    TilePanel following = panel;
    if (!next_panel(pass, following)) {
      return multiply_columns<kTerms>(pass, panel, pass.scratch.panels[buffer], nullptr);
    }
    const int other = pass.ahead ? 1 - buffer : buffer;
    PanelDecoder next(pass, following, pass.scratch.panels[other]);
    multiply_columns<kTerms>(pass, panel, pass.scratch.panels[buffer],
                             pass.ahead ? &next : nullptr);
    next.decode_rows(kStripRows);
    panel = following;
    buffer = other;
  }
}

template <int kTerms>
void tile_rows(const MatmulTask& task, const TileDecoding& decoding) {
  const Weights& weights = task.weights;
  TilePass pass{};
  pass.task = &task;
  pass.decoding = &decoding;
  pass.scratch = tile_scratch(task.scratch);
  pass.scratch.scales = pass.scratch.staged + staged_floats((weights.cols + 7) / 8);
  pass.blocks = (weights.cols + kBlockInputs - 1) / kBlockInputs;
  const bool groups = decoding.stage != nullptr && weights.group_size < weights.cols;
  pass.group_blocks = groups ? weights.group_size / kBlockInputs : INT64_MAX;
  const int64_t columns = (task.x.rows + kTileRows - 1) / kTileRows;
  const int64_t passes = (columns + kMostColumns - 1) / kMostColumns;
  const int64_t each = (columns + passes - 1) / passes;
  pass.ahead = each <= kAheadColumns;
  pass.stretch_strips = pass.ahead ? 1 : kStretchStrips;
  // Sums end with a panel, which must not depend on the number of columns.
  const bool one_block = pass.ahead && (!decoding.scales_sums || pass.group_blocks == 1);
  pass.panel_blocks = one_block ? 1 : kMostPanelBlocks;
  for (int64_t c = 0; c < columns; c += each) {
    pass.first_column = c;
    pass.columns = columns - c < each ? columns - c : each;
    pass.resident = pass.columns == 1 && pass.stretch_strips == 1;
    run_pass<kTerms>(pass);
  }
}
