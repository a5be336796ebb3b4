// What attention by tiles multiplies: queries, keys and values as two bf16 each, in panels, and
// where all of it lies. Included inside the namespace of an instruction set with tiles, after
// attention.inl.h. attention_tiles.inl.h, which comes next, says how it is used.

constexpr int64_t kVectorRows = 20;          // up to that many, tiles gain nothing
constexpr int64_t kTileAttentionRows = 512;  // all of them share the work of packing a block
constexpr int64_t kTilePositions = 64;
static_assert(kVectorRows <= kMaxAttentionRows);
constexpr int64_t kTileDepth = 32;  // numbers that a tile sums over
constexpr int64_t kQueryPanelRows = 2 * kLanes;
constexpr int64_t kHalfOperandBytes = 2 * kTmmBytes;      // two tiles
constexpr int64_t kOperandBytes = 2 * kHalfOperandBytes;  // of split products: [hi, lo][2]
constexpr int64_t kAccFloats = kOperandBytes / 4;         // [row half of the panel][32][16 rows]
constexpr int64_t kHalfFloats = kAccFloats / 2;
constexpr int64_t kTileSteps = kTilePositions / kTileDepth;
constexpr int64_t kQueryPanels = kTileAttentionRows / kQueryPanelRows;
constexpr float kSlack = 8;            // in exponents of 2, what weights may grow to
constexpr float kTileLimit = 0x1p56F;  // sums of 2^15 products of smaller numbers are finite
constexpr float kLog2E = 1.44269504088896341F;
constexpr float kLn2 = 0.693147180559945309F;
static_assert(kLanes == 16);

/// 32 rows, one in each lane of two vectors. After the last row it is taken again, and its results
/// are not used.
struct QueryPanel {
  const AttentionRow* rows[kQueryPanelRows];
  float largest[kQueryPanelRows];
  double total[kQueryPanelRows];
  bool special;                       // some rows' queries are zeros in the tiles
  bool fresh;                         // acc was not written yet
  int64_t first, last;                // positions that any of them sees
  int64_t common_first, common_last;  // that all of them see
  uint8_t* queries;                   // [32 d] operands, tiles of [two d][row][2]
  uint8_t* weights;                   // [32 positions] operands, tiles of [two positions][row][2]
  float* acc;                         // [32 d][half of the rows][32 d][16 rows]
};

/// A tile of attention, and where its parts lie.
struct TileAttention {
  const AttentionTile* tile;
  Element element;           // of keys and values
  const void* block_keys;    // of the positions of the block, [position][dim]
  const void* block_values;  // the same
  int64_t dim;
  int64_t steps;  // of 32 d
  float factor;   // of queries
  int64_t num_panels;
  uint8_t* keys;     // [32 positions][32 d] operands, tiles of [position][d]
  uint8_t* values;   // [32 d][32 positions] operands, tiles of [d][position]
  float* scores[2];  // [32 positions][half of the rows][32 positions][16 rows], of a panel each
  uint8_t* staging;
  float* zeros;  // [dim]
  AttentionRow rows[kTileAttentionRows];
  QueryPanel query_panels[kQueryPanels];
  bool special_query[kTileAttentionRows];
  bool special_key[kTilePositions];
  bool special_value[kTilePositions];
  bool any_special_key;
  bool any_special_value;
};

/// Calls visit() with numbers of the cache as what they are.
template <class Visit>
[[gnu::always_inline]] inline auto with_element(Element element, const void* numbers,
                                                const Visit& visit) {
  switch (element) {
    case Element::kF16:
      return visit(static_cast<const KvF16*>(numbers));
    case Element::kBF16:
      return visit(static_cast<const KvBF16*>(numbers));
    case Element::kF32:
    case Element::kE4M3:  // which tiles do not take
      break;
  }
  return visit(static_cast<const float*>(numbers));
}

inline int64_t depth_steps(int64_t head_dim) {
  return (head_dim + kTileDepth - 1) / kTileDepth;
}

/// As start_query_panels() takes it.
inline int64_t tile_attention_scratch_floats(int64_t head_dim) {
  const int64_t steps = depth_steps(head_dim);
  const int64_t panel = 2 * steps * kOperandBytes + kTileSteps * kOperandBytes;
  const int64_t keys_and_values = 2 * kTileSteps * steps * kOperandBytes;
  const int64_t scores = 2 * kTileSteps * kOperandBytes;
  const int64_t staging = steps * kOperandBytes + steps * kTileDepth * 4;
  const int64_t floats = (kQueryPanels * panel + keys_and_values + scores + staging) / 4;
  const int64_t vectors = attention_scratch_floats(head_dim);
  return floats > vectors ? floats : vectors;
}

/// Splits a row of numbers, times `factor`, as bf16x2 of i and 16 + i of each 32: to(step, bf16x2).
/// Beyond `dim` they are zeros. Returns whether all of it is below kTileLimit.
template <class Number, class Store>
[[gnu::always_inline]] inline bool split_row(const Number* x, int64_t dim, float factor,
                                             const Store& to) {
  const Float times = broadcast(factor);
  Float top = zero();
  int64_t step = 0;
  int64_t d = 0;
  for (; d + kTileDepth <= dim; d += kTileDepth) {
    const Float a = mul(load_kv(x + d), times);
    const Float b = mul(load_kv(x + d + kLanes), times);
    top = larger_magnitude(larger_magnitude(top, a), b);
    to(step++, split_to_bf16x2(a, b));
  }
  if (const int64_t left = dim - d; left > 0) {
    const Float first = left < kLanes ? load_kv_part(x + d, left) : load_kv(x + d);
    const Float last = left <= kLanes ? zero() : load_kv_part(x + d + kLanes, left - kLanes);
    const Float a = mul(first, times);
    const Float b = mul(last, times);
    top = larger_magnitude(larger_magnitude(top, a), b);
    to(step, split_to_bf16x2(a, b));
  }
  return all_below(top, kTileLimit);
}

/// The queries of one half of the panel.
inline void pack_queries(TileAttention& work, QueryPanel& panel, int64_t half) {
  for (int64_t n = 0; n < kLanes; ++n) {
    const auto store_split = [to = work.staging + n * 64](int64_t step, const SplitBf16x2& v) {
      store_bf16x2(to + step * kHalfOperandBytes, v.hi);
      store_bf16x2(to + step * kHalfOperandBytes + kTmmBytes, v.lo);
    };
    const AttentionRow& row = *panel.rows[half * kLanes + n];
    const bool special = !split_row(row.query, work.dim, work.factor, store_split);
    work.special_query[&row - work.rows] = special;
    if (!special) continue;
    panel.special = true;
    for (int64_t step = 0; step < work.steps; ++step) store_split(step, zero_split());
  }
  for (int64_t step = 0; step < work.steps; ++step) {
    const auto* from = reinterpret_cast<const float*>(work.staging + step * kHalfOperandBytes);
    uint8_t* to = panel.queries + step * kOperandBytes + half * kTmmBytes;
    transpose_lanes(from, reinterpret_cast<float*>(to));
    transpose_lanes(from + kTmmBytes / 4, reinterpret_cast<float*>(to + kHalfOperandBytes));
  }
}

/// Rows after the last key keep what they had: scores that are not used come of them.
template <class Kv>
inline void pack_keys(TileAttention& work, const AttentionBlock& block, const Kv* keys) {
  work.any_special_key = false;
  for (int64_t p = 0; p < block.count; ++p) {
    uint8_t* to = work.keys + p / kTileDepth * work.steps * kOperandBytes + p % kTileDepth * 64;
    const auto store_split = [to](int64_t step, const SplitBf16x2& v) {
      store_bf16x2(to + step * kOperandBytes, v.hi);
      store_bf16x2(to + step * kOperandBytes + kHalfOperandBytes, v.lo);
    };
    work.special_key[p] = !split_row(keys + p * work.dim, work.dim, 1, store_split);
    if (!work.special_key[p]) continue;
    work.any_special_key = true;
    for (int64_t step = 0; step < work.steps; ++step) store_split(step, zero_split());
  }
}

/// Stages the values of two positions as bf16x2: row `i` of 16. Returns whether all of them are
/// below kTileLimit.
template <class Kv>
inline bool stage_two(TileAttention& work, const Kv* a, const Kv* b, int64_t i) {
  const int64_t dim = work.dim;
  uint8_t* to = work.staging + i * 64;
  Float top = zero();
  const auto store_split = [&](Float of_a, Float of_b) {
    top = larger_magnitude(larger_magnitude(top, of_a), of_b);
    const SplitBf16x2 v = split_to_bf16x2(of_a, of_b);
    store_bf16x2(to, v.hi);
    store_bf16x2(to + kTmmBytes, v.lo);
    to += kHalfOperandBytes;
  };
  int64_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) store_split(load_kv(a + d), load_kv(b + d));
  if (const int64_t left = dim - d; left > 0) {
    store_split(load_kv_part(a + d, left), load_kv_part(b + d, left));
  }
  return all_below(top, kTileLimit);
}

template <class Kv>
inline bool is_special(const Kv* x, int64_t dim) {
  return !split_row(x, dim, 1, [](int64_t, const SplitBf16x2&) {});
}

/// The values of positions [32 step, 32 step + 32) of the block; after the last they are zeros.
template <class Kv>
inline void pack_values(TileAttention& work, const AttentionBlock& block, const Kv* values,
                        int64_t step) {
  const auto* zeros = reinterpret_cast<const Kv*>(work.zeros);
  for (int64_t i = 0; i < kLanes; ++i) {
    const int64_t p = step * kTileDepth + 2 * i;
    const Kv* two[2];
    for (int64_t j = 0; j < 2; ++j) {
      two[j] = p + j < block.count ? values + (p + j) * work.dim : zeros;
      work.special_value[p + j] = false;
    }
    if (stage_two(work, two[0], two[1], i)) continue;
    work.any_special_value = true;
    for (int64_t j = 0; j < 2; ++j) {
      work.special_value[p + j] = is_special(two[j], work.dim);
      if (work.special_value[p + j]) two[j] = zeros;
    }
    stage_two(work, two[0], two[1], i);
  }
  for (int64_t tile = 0; tile * kLanes < work.dim; ++tile) {
    const auto* from = reinterpret_cast<const float*>(work.staging + tile * kHalfOperandBytes);
    uint8_t* to =
        work.values + (tile / 2 * kTileSteps + step) * kOperandBytes + tile % 2 * kTmmBytes;
    transpose_lanes(from, reinterpret_cast<float*>(to));
    transpose_lanes(from + kTmmBytes / 4, reinterpret_cast<float*>(to + kHalfOperandBytes));
  }
}

/// Cuts up the scratch memory, and takes the rows in panels.
inline void start_query_panels(TileAttention& work, int64_t num_rows) {
  auto* memory = reinterpret_cast<uint8_t*>(work.tile->scratch);
  const auto take = [&memory](int64_t bytes) {
    memory += bytes;
    return memory - bytes;
  };
  const int64_t operands = work.steps * kOperandBytes;
  work.keys = take(kTileSteps * operands);
  work.values = take(kTileSteps * operands);
  for (float*& scores : work.scores) {
    scores = reinterpret_cast<float*>(take(kTileSteps * kOperandBytes));
  }
  work.staging = take(operands);
  work.zeros = reinterpret_cast<float*>(take(work.steps * kTileDepth * 4));
  for (int64_t d = 0; d < work.dim; d += kLanes) store(work.zeros + d, zero());
  work.num_panels = (num_rows + kQueryPanelRows - 1) / kQueryPanelRows;
  for (int64_t g = 0; g < work.num_panels; ++g) {
    QueryPanel& panel = work.query_panels[g];
    panel.queries = take(operands);
    panel.weights = take(kTileSteps * kOperandBytes);
    panel.acc = reinterpret_cast<float*>(take(operands));
    panel.fresh = true;
    panel.special = false;
    for (int64_t n = 0; n < kQueryPanelRows; ++n) {
      const int64_t r = g * kQueryPanelRows + n < num_rows ? g * kQueryPanelRows + n : num_rows - 1;
      panel.rows[n] = &work.rows[r];
      panel.largest[n] = kLowest;
      panel.total[n] = 0;
    }
    // Later rows see further at both ends.
    panel.first = panel.rows[0]->begin;
    panel.common_last = panel.rows[0]->end;
    panel.common_first = panel.rows[kQueryPanelRows - 1]->begin;
    panel.last = panel.rows[kQueryPanelRows - 1]->end;
    for (int64_t half = 0; half < 2; ++half) pack_queries(work, panel, half);
  }
}
