// The recurrence of a gated delta net in chunks of 64 tokens on tiles. Included inside the
// namespace of an instruction set with tiles, after generic/delta_chunks.inl.h, which has the
// formulas, and attention_panels.inl.h.
//
// An operand is 32 rows or columns by a depth of 32, as attention has it: [hi, lo][2] tiles, or hi
// alone for --activations bf16. Word l of a row is of the depths l and 16 + l.
//
//   of a chunk        rows        columns     depth     blocks of 32 x 32 x 32
//   k k, q k          128         64          keys      32, of which 8 are above the diagonal
//   S^T k, S^T q      128         columns     keys      64
//   d                 on vectors, 16 tokens at a time
//   (q k) d           64          columns     64        16, of which 4 are above the diagonal
//   k d               keys        columns     64        32
//
// The state is [32 keys][32 columns][4] tiles of 16 x 16 floats while the tokens go through, which
// is how tiles are stored, and is multiplied by the decay of a chunk when it becomes an operand.
//
// Accuracy: each number that becomes an operand is off by 2^-16 of itself in two bf16, as in
// attention_tiles.inl.h, so that a sum is off by 3 * 2^-16 of the sum of magnitudes besides what
// delta_chunks.inl.h has; in one bf16 by 2^-8, and the sum by 2^-7.

constexpr int64_t kDeltaTokens = 64;
constexpr int64_t kDeltaSubchunks = kDeltaTokens / kDeltaChunk;
constexpr int64_t kDeltaAccFloats = 1024;  // of 32 x 32 sums: tile i + 2 j is of rows 16 i on

/// Where the parts of a chunk lie. Blocks of operands and sums are numbered row first, then depth
/// or column.
struct DeltaTiles {
  uint8_t* keys_queries;      // operand A, [128 rows][keys]
  uint8_t* transposed_keys;   // operand B, [64 columns][keys]
  uint8_t* keys_by_token;     // operand A, [keys rows][64]
  uint8_t* state_operand;     // operand B, [columns][keys]
  uint8_t* d_operand;         // operand B, [columns][64]
  uint8_t* ends_operand;      // the same
  uint8_t* queries_by_token;  // operand A, [64 rows][64]: r_tj (q_t k_j)
  float* state;               // sums, [keys][columns]
  float* products;            // sums, [128][columns]
  float* dots;                // sums, [128][64]
  float* results;             // sums, [64][columns]
  float* transposed;          // [keys][64]
  float* factors;             // [64][64] beta_t r_tj (k_t k_j)
  float* d;                   // [64][kDeltaTileColumns]
  float* ends;                // the same
  float* earlier;             // [kDeltaChunk][kDeltaTileColumns]
  float* decays;              // [64]
  float* to_end;              // [64]
  float* betas;               // [64]
};

inline int64_t take_delta_tiles(int64_t keys, int64_t columns, float* memory, DeltaTiles& to) {
  int64_t taken = 0;
  const auto take = [&](float*& p, int64_t floats) {
    p = memory + taken;
    taken += floats;
  };
  const auto operand = [&](uint8_t*& p, int64_t rows, int64_t depth) {
    p = reinterpret_cast<uint8_t*>(memory + taken);
    taken += rows / 32 * (depth / 32) * kOperandBytes / 4;
  };
  operand(to.keys_queries, 2 * kDeltaTokens, keys);
  operand(to.transposed_keys, kDeltaTokens, keys);
  operand(to.keys_by_token, keys, kDeltaTokens);
  operand(to.state_operand, columns, keys);
  operand(to.d_operand, columns, kDeltaTokens);
  operand(to.ends_operand, columns, kDeltaTokens);
  operand(to.queries_by_token, kDeltaTokens, kDeltaTokens);
  take(to.state, keys * columns);
  take(to.products, 2 * kDeltaTokens * columns);
  take(to.dots, 2 * kDeltaTokens * kDeltaTokens);
  take(to.results, kDeltaTokens * columns);
  take(to.transposed, keys * kDeltaTokens);
  take(to.factors, kDeltaTokens * kDeltaTokens);
  take(to.d, kDeltaTokens * kDeltaTileColumns);
  take(to.ends, kDeltaTokens * kDeltaTileColumns);
  take(to.earlier, kDeltaChunk * kDeltaTileColumns);
  take(to.decays, kDeltaTokens);
  take(to.to_end, kDeltaTokens);
  take(to.betas, kDeltaTokens);
  return taken;
}

/// Floats from the first sum of 32 x 32 to 16 of a row: of row r and from column c on, of which
/// there are `columns` in all.
inline int64_t delta_sums_at(int64_t r, int64_t c, int64_t columns) {
  const int64_t block = r / 32 * (columns / 32) + c / 32;
  return block * kDeltaAccFloats + (r % 32 / 16 + c % 32 / 16 * 2) * 256 + r % 16 * 16;
}

/// The gated delta net on tiles: kSplit: numbers are two bf16.
template <bool kSplit>
class TileDeltaNet {
 public:
  explicit TileDeltaNet(const DeltaRule& rule) : rule_(rule) {
    take_delta_tiles(rule.keys, rule.columns, rule.scratch, w_);
  }

  void run() {
    const TileSession session;
    for (int64_t k = 0; k < rule_.keys; ++k) copy_row<true>(k);
    for (int64_t first = 0; first < rule_.tokens; first += kDeltaTokens) {
      const int64_t left = rule_.tokens - first;
      first_ = first;
      count_ = left < kDeltaTokens ? left : kDeltaTokens;
      chunk();
    }
    for (int64_t k = 0; k < rule_.keys; ++k) copy_row<false>(k);
  }

 private:
  template <bool kIn>
  void copy_row(int64_t k) {
    float* const row = rule_.state + k * rule_.state_stride;
    for (int64_t c = 0; c < rule_.columns; c += kLanes) {
      float* const sums = w_.state + delta_sums_at(k, c, rule_.columns);
      kIn ? store(sums, load(row + c)) : store(row + c, load(sums));
    }
  }

  void chunk() {
    const int64_t steps = rule_.keys / 32;
    pack_keys_and_queries();
    for (int64_t i = 0; i < 4; ++i) {
      for (int64_t j = 0; j <= i % 2; ++j) {
        multiply<true>(w_.keys_queries + i * steps * kOperandBytes,
                       w_.transposed_keys + j * steps * kOperandBytes, steps,
                       w_.dots + (i * 2 + j) * kDeltaAccFloats);
      }
    }
    scale_dots();
    pack_state();
    for (int64_t j = 0; j < rule_.columns / 32; ++j) {
      for (int64_t i = 0; i < 4; ++i) {
        multiply<true>(w_.keys_queries + i * steps * kOperandBytes,
                       w_.state_operand + j * steps * kOperandBytes, steps,
                       w_.products + (i * (rule_.columns / 32) + j) * kDeltaAccFloats);
      }
    }
    for (int64_t c = 0; c < rule_.columns; c += kDeltaTileColumns) solve(c);
    add_results();
    for (int64_t j = 0; j < rule_.columns / 32; ++j) {
      for (int64_t i = 0; i < steps; ++i) {
        multiply<false>(w_.keys_by_token + i * 2 * kOperandBytes,
                        w_.ends_operand + j * 2 * kOperandBytes, 2,
                        w_.state + (i * (rule_.columns / 32) + j) * kDeltaAccFloats);
      }
    }
  }

  /// Sums of 32 x 32 over `steps` of 32, from zero or added to what is there.
  template <bool kFromZero>
  static void multiply(const uint8_t* a, const uint8_t* b, int64_t steps, float* sums) {
    kFromZero ? zero_tiles() : load_accumulators(sums);
    for (int64_t step = 0; step < steps; ++step) {
      multiply_hi(a, b);
      if constexpr (kSplit) {
        multiply_hi_lo(b);
        multiply_lo_hi(a, b);
      }
      a += kOperandBytes;
      b += kOperandBytes;
    }
    store_accumulators(sums);
  }

  /// Stores one row of a tile of an operand.
  static void put(uint8_t* to, Float low, Float high) {
    const SplitBf16x2 v = split_to_bf16x2(low, high);
    store_bf16x2(to, v.hi);
    if constexpr (kSplit) store_bf16x2(to + kHalfOperandBytes, v.lo);
  }

  /// Where row r of an operand A lies, of the step that begins at depth d.
  static uint8_t* row_of(uint8_t* operand, int64_t r, int64_t d, int64_t depth) {
    return operand + (r / 32 * (depth / 32) + d / 32) * kOperandBytes + r % 32 * 64;
  }
  /// Where row l of an operand B lies: 16 columns from c on, of the depths d + l and d + 16 + l.
  static uint8_t* column_of(uint8_t* operand, int64_t c, int64_t d, int64_t l, int64_t depth) {
    return operand + (c / 32 * (depth / 32) + d / 32) * kOperandBytes + c % 32 / 16 * kTmmBytes +
           l * 64;
  }

  void pack_row(const float* from, int64_t token, uint8_t* operand, int64_t row) const {
    const float* const x = from + (first_ + token) * rule_.key_stride;
    for (int64_t d = 0; d < rule_.keys; d += 32) {
      const bool is_there = token < count_;
      put(row_of(operand, row, d, rule_.keys), is_there ? load(x + d) : zero(),
          is_there ? load(x + d + kLanes) : zero());
    }
  }

  void pack_keys_and_queries() {
    const int64_t keys = rule_.keys;
    for (int64_t t = 0; t < kDeltaTokens; ++t) {
      pack_row(rule_.k, t, w_.keys_queries, t);
      pack_row(rule_.q, t, w_.keys_queries, kDeltaTokens + t);
    }
    for (int64_t t = 0; t < kDeltaTokens; t += kLanes) {
      for (int64_t d = 0; d < keys; d += kLanes) {
        Float rows[kLanes];
        for (int64_t i = 0; i < kLanes; ++i) {
          const float* const x = rule_.k + (first_ + t + i) * rule_.key_stride + d;
          rows[i] = t + i < count_ ? load(x) : zero();
        }
        transpose(rows);
        for (int64_t i = 0; i < kLanes; ++i) {
          store(w_.transposed + (d + i) * kDeltaTokens + t, rows[i]);
        }
      }
    }
    for (int64_t k = 0; k < keys; ++k) {
      const float* const row = w_.transposed + k * kDeltaTokens;
      for (int64_t d = 0; d < kDeltaTokens; d += 32) {
        put(row_of(w_.keys_by_token, k, d, kDeltaTokens), load(row + d), load(row + d + kLanes));
      }
    }
    pack_columns(w_.transposed, kDeltaTokens, keys, w_.transposed_keys, 0);
  }

  /// Packs [depth][64] floats as 64 columns of an operand B, from column `to_column` on.
  static void pack_columns(const float* from, int64_t stride, int64_t depth, uint8_t* operand,
                           int64_t to_column) {
    for (int64_t d = 0; d < depth; d += 32) {
      for (int64_t l = 0; l < kLanes; ++l) {
        const float* const low = from + (d + l) * stride;
        const float* const high = low + kLanes * stride;
        for (int64_t c = 0; c < 64; c += kLanes) {
          put(column_of(operand, to_column + c, d, l, depth), load(low + c), load(high + c));
        }
      }
    }
  }

  /// Decays and gates of the chunk, and products of its tokens with each other times these.
  void scale_dots() {
    alignas(64) float decays[kDeltaTokens] = {};  // r_tj of this token for all j
    float all = 1;
    for (int64_t t = 0; t < kDeltaTokens; ++t) {
      const int64_t gate = (first_ + t) * rule_.gate_stride;
      const float decay = t < count_ ? rule_.decay[gate] : 1;
      const float beta = t < count_ ? rule_.beta[gate] : 0;
      all *= decay;
      w_.decays[t] = all;
      w_.betas[t] = beta;
      for (int64_t j = 0; j < kDeltaTokens; j += kLanes) {
        const Float now = mul(load(decays + j), broadcast(decay));
        store(decays + j, now);
        // What lies above the diagonal was not multiplied, but is multiplied by zero: it may be
        // anything but a number.
        const bool is_below = j <= t;
        const Float dots = is_below ? dots_of(t, j) : zero();
        store(w_.factors + t * kDeltaTokens + j, mul(mul(now, broadcast(beta)), dots));
      }
      decays[t] = 1;
      for (int64_t j = 0; j < kDeltaTokens; j += 32) {
        Float two[2];
        for (int64_t i = 0; i < 2; ++i) {
          const int64_t at = j + i * kLanes;
          two[i] = at <= t ? mul(load(decays + at), dots_of(kDeltaTokens + t, at)) : zero();
        }
        put(row_of(w_.queries_by_token, t, j, kDeltaTokens), two[0], two[1]);
      }
    }
    for (int64_t j = 0; j < kDeltaTokens; ++j) w_.to_end[j] = decays[j];
  }
  Float dots_of(int64_t row, int64_t column) const {
    return load(w_.dots + delta_sums_at(row, column, kDeltaTokens));
  }

  /// Makes an operand of the state, and multiplies it by the decay of the chunk.
  void pack_state() {
    const Float decay = broadcast(w_.decays[kDeltaTokens - 1]);
    for (int64_t d = 0; d < rule_.keys; d += 32) {
      for (int64_t c = 0; c < rule_.columns; c += kLanes) {
        float* low = w_.state + delta_sums_at(d, c, rule_.columns);
        float* high = low + 256;  // the tile of the next 16 keys
        uint8_t* const to = column_of(w_.state_operand, c, d, 0, rule_.keys);
        for (int64_t l = 0; l < kLanes; ++l) {
          const Float a = load(low + l * kLanes);
          const Float b = load(high + l * kLanes);
          put(to + l * 64, a, b);
          store(low + l * kLanes, mul(a, decay));
          store(high + l * kLanes, mul(b, decay));
        }
      }
    }
  }

  /// d of all tokens, for a tile of columns.
  void solve(int64_t column) {
    for (int64_t t = 0; t < kDeltaTokens; t += kDeltaChunk) {
      DeltaEquations e = {};
      e.factors = w_.factors + t * kDeltaTokens + t;
      e.factors_row = kDeltaTokens;
      e.decays = w_.decays + t;
      e.to_end = w_.to_end + t;
      e.betas = w_.betas + t;
      e.products = w_.products + delta_sums_at(t, column, rule_.columns);
      e.product_row = kLanes;
      e.product_vector = 512;  // a tile and that of 16 rows below it
      e.d = w_.d + t * kDeltaTileColumns;
      e.ends = w_.ends + t * kDeltaTileColumns;
      if (t > 0) {
        DeltaProduct p = {};
        p.x = w_.factors + t * kDeltaTokens;
        p.x_row = kDeltaTokens;
        p.x_depth = 1;
        p.m = w_.d;
        p.m_stride = kDeltaTileColumns;
        p.depth = t;
        p.y = w_.earlier;
        p.y_stride = kDeltaTileColumns;
        delta_product<kDeltaProductVectors>(p, kDeltaChunk, kDeltaVectors);
        e.earlier = w_.earlier;
      }
      solve_delta(rule_, e, first_ + t, count_ - t, column);
    }
    pack_columns(w_.d, kDeltaTileColumns, kDeltaTokens, w_.d_operand, column);
    pack_columns(w_.ends, kDeltaTileColumns, kDeltaTokens, w_.ends_operand, column);
  }

  /// y of all tokens.
  void add_results() {
    const int64_t blocks = rule_.columns / 32;
    for (int64_t j = 0; j < blocks; ++j) {
      for (int64_t i = 0; i < 2; ++i) {
        multiply<true>(w_.queries_by_token + i * 2 * kOperandBytes,
                       w_.d_operand + j * 2 * kOperandBytes, i + 1,
                       w_.results + (i * blocks + j) * kDeltaAccFloats);
      }
    }
    for (int64_t t = 0; t < count_; ++t) {
      const Float decay = broadcast(w_.decays[t]);
      float* const y = rule_.y + (first_ + t) * rule_.y_stride;
      for (int64_t c = 0; c < rule_.columns; c += kLanes) {
        const float* const of_state =
            w_.products + delta_sums_at(kDeltaTokens + t, c, rule_.columns);
        const float* const of_chunk = w_.results + delta_sums_at(t, c, rule_.columns);
        store(y + c, fma(decay, load(of_state), load(of_chunk)));
      }
    }
  }

  const DeltaRule& rule_;
  DeltaTiles w_;
  int64_t first_ = 0;  // token of the rule
  int64_t count_ = 0;
};

/// As many tokens at the end take as long in chunks of kDeltaTokens as one by one.
constexpr int64_t kDeltaTileTokens = 32;

inline bool takes_delta_tiles(int64_t keys, int64_t columns) {
  return keys % 32 == 0 && columns % kDeltaTileColumns == 0;
}

inline int64_t delta_tile_scratch_floats(int64_t keys, int64_t columns) {
  if (!takes_delta_tiles(keys, columns)) return delta_chunk_scratch_floats(keys, columns);
  DeltaTiles tiles;
  const int64_t floats = take_delta_tiles(keys, columns, nullptr, tiles);
  const int64_t vectors = keys * kDeltaScratchColumns;  // of the last tokens
  return floats > vectors ? floats : vectors;
}

template <bool kSplit>
inline void delta_tiles(const DeltaRule& rule) {
  if (!takes_delta_tiles(rule.keys, rule.columns)) return delta_chunks(rule);
  const int64_t after = rule.tokens % kDeltaTokens;
  const int64_t single = after < kDeltaTileTokens ? after : 0;
  DeltaRule chunks = rule;
  chunks.tokens = rule.tokens - single;
  if (chunks.tokens > 0) TileDeltaNet<kSplit>(chunks).run();
  if (single == 0) return;
  DeltaRule last = rule;
  last.tokens = single;
  last.q += chunks.tokens * rule.key_stride;
  last.k += chunks.tokens * rule.key_stride;
  last.v += chunks.tokens * rule.v_stride;
  last.y += chunks.tokens * rule.y_stride;
  last.decay += chunks.tokens * rule.gate_stride;
  last.beta += chunks.tokens * rule.gate_stride;
  delta_rule(last);
}

constexpr VectorKernels with_delta_tiles(VectorKernels table) {
  table.delta_chunks = {&delta_tile_scratch_floats, &delta_tiles<true>, kDeltaTileTokens};
  table.delta_chunks_bf16 = {&delta_tile_scratch_floats, &delta_tiles<false>, kDeltaTileTokens};
  return table;
}
