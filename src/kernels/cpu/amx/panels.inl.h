// What both loops on tiles share: how activations are packed as tiles of bf16, and how the codes of
// some outputs are walked over, block by block. Included inside the namespace of an instruction set
// with tiles, after gemm.inl.h.
//
// A panel is some blocks of 16 to 64 outputs (rows of weights), decoded. A block is 128 inputs and
// has four steps of 32, each a tile of 16 outputs: amx/vec.h says in which order its inputs lie.

constexpr int64_t kBlockTileBytes = 4 * kTmmBytes;  // four steps of 16 rows
constexpr int64_t kPanelOutputs = 64;               // at most
constexpr int64_t kTileRowGrain = 32;               // PackedLayout::row_grain: half of that

/// Packs up to 16 rows as bf16, or, with kSplits 2, up to 8 as x = hi + lo: row m of the tile is
/// the hi part of row m, row 8 + m the lo part. [block][step][lane of A][row][2 bf16].
template <int kSplits>
void pack_bf16_tiles(uint8_t* packed, const float* x, int64_t rows, const uint32_t* gather,
                     int64_t k) {
  constexpr int64_t kLoRows = kTileRows / 2;
  for (int64_t begin = 0; begin < k; begin += kBlockInputs) {
    alignas(64) uint8_t quarters[4][kTileRows][64] = {};  // [l][row]: lane i is k8 i
    for (int64_t m = 0; m < rows; ++m) {
      alignas(64) float block[kBlockInputs];
      Float v[8];
      transpose_k8(block_inputs(x + m * k, gather, begin, k, block), v);
      for (int l = 0; l < 4; ++l) {
        const Bf16x2 hi = round_to_bf16x2(v[l], v[4 + l]);
        store_bf16x2(quarters[l][m], hi);
        if constexpr (kSplits == 2) {
          store_bf16x2(
              quarters[l][kLoRows + m],
              round_to_bf16x2(sub(v[l], low_of_bf16x2(hi)), sub(v[4 + l], high_of_bf16x2(hi))));
        }
      }
    }
    for (int64_t l = 0; l < 4; ++l) {
      transposed_lanes(reinterpret_cast<const float*>(quarters[l]), kTileRows,
                       [&](int64_t k8, Int rows_of_lane) {
                         const int64_t lane = 4 * l + k8 % 4;
                         store_int(packed + k8 / 4 * kTmmBytes + 64 * lane, rows_of_lane);
                       });
    }
    packed += kBlockTileBytes;
  }
}
template <int kSplits>
constexpr PackedLayout kPackedTiles = {.name = kSplits == 2 ? "hi-lo tiles" : "bf16 tiles",
                                       .rows_per_pack = kTileRows / kSplits,
                                       .padding = kPackPadding,
                                       .row_grain = kTileRowGrain,
                                       .keeps_bf16 = true,
                                       .bytes = &packed_bytes<kBlockTileBytes>,
                                       .pack = &pack_bf16_tiles<kSplits>};

/// Bytes that the staged scales of a panel may take, of the smallest groups, 32 inputs.
inline int64_t staged_panel_bytes(int64_t k) {
  return kPanelOutputs * 4 * staged_floats((k + 31) / 32);
}

/// Outputs [begin, end) of the panel whose first output is n, in block b.
struct BlockRows {
  int64_t n = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t b = 0;

  int64_t first() const { return n + begin; }
  int64_t count() const { return end - begin; }
};

/// Line that is prefetched while output i of block b is decoded: one of those that will be needed
/// kPrefetchWindows windows of kWindowBlocks blocks later, in this panel or the next.
///
///              window of 4 blocks, and the next
///   output 0  | b | b |   |   | 0 | 1 | 2 | 3 |      of outputs 0..3, in its first block
///   output 1  | b | b |   |   | 4 | 5 | 6 | 7 |      of outputs 4..7
///
/// Four neighbours in a row, as memory likes, and never more than 16 KB (4 bits) on their way: what
/// is prefetched for a whole panel may have left the second-level cache when it is needed. An
/// address as an integer, as it may lie after the end of the matrix, where no pointer may point.
constexpr int64_t kWindowBlocks = 4;
constexpr int64_t kPrefetchWindows = 1;
struct WindowPrefetch {
  int64_t at;         // for the first output, a multiple of kWindowBlocks in its panel
  int64_t row_bytes;  // to what is prefetched for each kWindowBlocks outputs more
};
template <int64_t kBlockBytes>
inline WindowPrefetch window_prefetch(const Weights& weights, const BlockRows& rows, bool wanted) {
  const int64_t row_bytes = weights.row_bytes;
  auto at = reinterpret_cast<int64_t>(weights.codes + rows.n * row_bytes);
  if (!wanted) return {at, 0};  // which is in a cache
  const int64_t blocks = (weights.cols + kBlockInputs - 1) / kBlockInputs;
  const int64_t windows = (blocks + kWindowBlocks - 1) / kWindowBlocks;
  int64_t window = rows.b / kWindowBlocks + kPrefetchWindows;
  for (; window >= windows; window -= windows) at += kPanelOutputs * row_bytes;
  at += window * kWindowBlocks * kBlockBytes;
  at += rows.b % kWindowBlocks * (kPanelOutputs / kWindowBlocks) * row_bytes;
  return {at + rows.begin / kWindowBlocks * row_bytes, row_bytes};
}

/// Calls decode(i, codes) for output rows.begin + i of one block, where codes may be read as far as
/// load_bytes<Codes>() says: blocks from `whole_blocks` on are copied and filled up with zeros.
template <class Codes, class Decode>
[[gnu::always_inline]] inline void for_rows_of_block(const Weights& weights, const BlockRows& rows,
                                                     int64_t whole_blocks, bool prefetches,
                                                     const Decode& decode) {
  constexpr int64_t kBlockBytes = Codes::kBits * kLanes;
  const int64_t row_bytes = weights.row_bytes;  // in a register: stores could change the other
  const int64_t count = rows.count();
  const uint8_t* codes = weights.codes + rows.first() * row_bytes + rows.b * kBlockBytes;
  if (rows.b >= whole_blocks) {
    for (int64_t i = 0; i < count; ++i) {
      alignas(64) uint8_t padded[load_bytes<Codes>()] = {};
      copy_block<Codes>(weights, codes - rows.b * kBlockBytes, rows.b, padded);
      decode(i, padded);
      codes += row_bytes;
    }
    return;
  }
  const WindowPrefetch window = window_prefetch<kBlockBytes>(weights, rows, prefetches);
  int64_t address = window.at;
  int64_t i = 0;
  for (; i + kWindowBlocks <= count; i += kWindowBlocks) {
#pragma GCC unroll 4
    for (int64_t j = 0; j < kWindowBlocks; ++j) {
      prefetch<kBlockBytes>(nullptr, address + j * kBlockBytes);
      decode(i + j, codes);
      codes += row_bytes;
    }
    address += window.row_bytes;
  }
  for (; i < count; ++i) {
    decode(i, codes);
    codes += row_bytes;
  }
}

/// The groups of the four steps of a block.
struct StepGroups {
  int64_t of_step[4];
};

/// Moves from block to block, without divisions: they would take as long as decoding a row. Groups
/// are multiples of 32 inputs; where they are not, or there are none, all is group 0.
class GroupWalk {
 public:
  GroupWalk() = default;
  GroupWalk(const Weights& weights, int64_t b) : last_(weights.groups - 1) {
    if (weights.group_size % 32 != 0 || weights.group_size >= weights.cols) return;
    steps_ = weights.group_size / 32;
    group_ = 4 * b / steps_;
    left_ = steps_ - 4 * b % steps_;
  }
  /// Those of the block that it stands at; it moves on. Where inputs are zeros, any group does.
  StepGroups next() {
    StepGroups groups;
    for (int64_t& group : groups.of_step) {
      group = group_ < last_ ? group_ : last_;
      if (--left_ > 0) continue;
      ++group_;
      left_ = steps_;
    }
    return groups;
  }

 private:
  int64_t last_ = 0;
  int64_t steps_ = INT64_MAX;  // of a group
  int64_t group_ = 0;
  int64_t left_ = INT64_MAX;  // steps of that group
};
