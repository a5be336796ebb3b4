// The panels of the tiles' mainloop: which part of the weights is decoded when, and where to.
// Included inside the namespace of an instruction set with tiles, after tile_decoders.inl.h.
// tile_squares.inl.h and tiles.inl.h, which come next, say how they are used.

constexpr int64_t kMostPanelBlocks = 2;
constexpr int64_t kPanelBytes = kStripTiles * kMostPanelBlocks * kBlockTileBytes;
constexpr int64_t kStretchStrips = 4;
constexpr int64_t kMostColumns = 32;               // in one pass over the weights
constexpr int64_t kAheadColumns = 2;               // up to so many: decode between products
constexpr int64_t kSumFloats = kStripTiles * 256;  // of a strip and a column: [tile][n][m]
// Of tile_squares.inl.h:
constexpr int64_t kSquareRows = 2 * kTileRows;  // of a strip
constexpr int64_t kSquareStrips = 16;           // of a stretch
constexpr int64_t kSquareBlocks = 4;            // of a panel, which takes kPanelBytes
constexpr int64_t kSquareColumns = 4;           // in one pass, at least
static_assert(kSquareRows * kSquareBlocks == kStripRows * kMostPanelBlocks);

constexpr int64_t kMostSums = kSquareStrips * kMostColumns / 2;
static_assert(kMostSums >= kStretchStrips * kMostColumns);
static_assert(kSumFloats >= kSquareStrips * kSquareRows);

/// Where the parts of a thread's scratch memory lie.
struct TileScratch {
  uint8_t* panels[2];
  float* sums;  // of one group; of squares: what the results of each row of a stretch are times
  /// [strip of the stretch][column][kSumFloats], as tiles or, with SumScaling::kGroups,
  /// [row][kSplitRows]. Of squares: [strip][two columns][kSumFloats].
  float* totals;
  float* scales;  // [strip of the stretch][64][staged_floats]
  float* staged;  // of a row with the smallest groups
};

inline TileScratch tile_scratch(uint8_t* scratch) {
  TileScratch parts{};
  parts.panels[0] = scratch;
  parts.panels[1] = scratch + kPanelBytes;
  parts.sums = reinterpret_cast<float*>(scratch + 2 * kPanelBytes);
  parts.totals = parts.sums + kSumFloats;
  parts.staged = parts.totals + kMostSums * kSumFloats;
  return parts;
}

/// The scales of a stretch are staged only where groups cover blocks.
inline int64_t tile_scratch_bytes(int64_t k) {
  const int64_t blocks = (k + kBlockInputs - 1) / kBlockInputs;
  const int64_t floats = kSumFloats * (1 + kMostSums) + staged_floats((k + 7) / 8) +
                         kStretchStrips * kStripRows * staged_floats(blocks);
  return 2 * kPanelBytes + 4 * floats;
}

/// What scales multiply.
enum class SumScaling : uint8_t {
  kNone,    // nothing: weights have been multiplied by them
  kGroups,  // the sums of each group, which are then added to those of the column
  kRows,    // the sums of the column: the group is the whole row
};

/// One pass over the rows of a task, for the columns [first_column, first_column + columns).
struct TilePass {
  const MatmulTask* task;
  const TileDecoding* decoding;
  TileScratch scratch;
  int64_t rows_of_x;  // in a tile of activations
  int64_t first_column;
  int64_t columns;
  int64_t blocks;        // of a row
  int64_t block_bytes;   // of codes, about
  int64_t group_blocks;  // INT64_MAX: the whole row, or not known to sums
  SumScaling scaling;
  int64_t panel_blocks;
  int64_t terms;  // of the weights
  int64_t stretch_strips;
  bool ahead;     // decode the next panel between products
  bool resident;  // sums stay in the tiles from one panel to the next
};

/// Some blocks of one strip.
struct TilePanel {
  int64_t stretch = 0;  // its first row
  int64_t strip = 0;    // in the stretch
  int64_t block = 0;    // the first
  int64_t strip_rows = kStripRows;

  int64_t n() const { return stretch + strip * strip_rows; }
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
  panel.stretch += pass.stretch_strips * panel.strip_rows;
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
  return left < panel.strip_rows ? left : panel.strip_rows;
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
            .prefetch = !stretch,
            .block_bytes = pass.terms * kBlockTileBytes};
    if (panel.block == 0 && pass.decoding->stage != nullptr) stage(scales_of(pass, panel));
  }
  /// Asks for the codes of some more rows: in time for what decodes them, not so early that they
  /// would leave the second-level cache again.
  void fetch_rows(int64_t count) {
    const Weights& weights = pass_.task->weights;
    const int64_t bytes = (blocks_.end - blocks_.begin) * pass_.block_bytes;
    for (; count > 0 && fetched_ < rows_; --count, ++fetched_) {
      const uint8_t* row = weights.codes + (n_ + fetched_) * weights.row_bytes;
      const int64_t begin = blocks_.begin * pass_.block_bytes;
      for (int64_t i = 0; i < bytes; i += 64) prefetch<64>(row, begin + i);
      prefetch<64>(row, begin + bytes - 1);
    }
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
  int64_t fetched_ = 0;  // rows of the strip
  int64_t next_ = 0;
};
