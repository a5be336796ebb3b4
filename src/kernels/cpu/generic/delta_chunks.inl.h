// The recurrence of a gated delta net in chunks of kLanes tokens, which makes products of matrices
// of it. Included inside the namespace of an instruction set, after delta_net.inl.h.
//
// With g_t = the product of the decays of a chunk up to token t, and r_tj = that of the tokens from
// j + 1 to t, which is g_t / g_j without the division:
//
//   d_t = beta_t (v_t - g_t S^T k_t - sum over j < t of r_tj (k_t k_j) d_j)
//   y_t = g_t S^T q_t + sum over j <= t of r_tj (q_t k_j) d_j
//   S   = g_end S + sum over t of k_t (r_end,t d_t)^T
//
// The first line is a triangle of equations that is solved from the first token on: rows of d are
// never multiplied by an inverse. For a token and chunks of C, heads of n by n numbers, it takes
//
//   recurrence  4 n^2                            a load for each, a store for each number of S
//   chunks      3 n^2 + n^2 / C + 4 C n          a load and a store of S for each chunk
//
// multiply-adds, of which the last term counts half of each square, so that C = 8 or 16, what a
// vector holds, needs fewest for heads of 128: 0.82 of the recurrence's. C = 64 would need as many.
//
//   for each 64 tokens                            their queries and keys packed, 64 KiB
//     for each chunk: r_tj (k_t k_j), r_tj (q_t k_j)
//     for each tile of columns of the state       [keys = 128][4 vectors], in the first level
//       for each chunk: the three lines above
//
// A rule that does not correct has d_t = beta_t v_t, and no product with keys but that of S.
//
// A token after which numbers are not finite makes those of its whole chunk so.
//
// Accuracy of a number of d or y, with u = 2^-24, besides the errors of its inputs: (keys + 3 C) u
// of the sum of the magnitudes that it adds up, as k_t k_j is at most 1.

constexpr int64_t kDeltaChunk = kLanes;
constexpr int64_t kDeltaBlock = 64;  // tokens that are packed together
constexpr int64_t kDeltaBlockChunks = kDeltaBlock / kDeltaChunk;
constexpr int64_t kDeltaTileColumns = kDeltaVectors * kLanes;
constexpr int kDeltaRows = 4;
constexpr int kDeltaProductVectors = kLanes >= 16 ? 4 : 2;  // with their rows the accumulators

/// y = scale y + x m, of rows of y that follow each other.
struct DeltaProduct {
  const float* x;  // of row r and depth i: x[r * x_row + i * x_depth]
  int64_t x_row, x_depth;
  const float* m;  // [depth], rows that are m_stride apart
  int64_t m_stride;
  int64_t depth;
  const float* scale;  // of row r: scale[r * scale_row]; nullptr: y begins at 0
  int64_t scale_row;
  float* y;  // rows that are y_stride apart
  int64_t y_stride;
};

template <int kVectors>
[[gnu::always_inline]] inline void delta_product(const DeltaProduct& p, int64_t row,
                                                 int64_t column) {
  Float sums[kDeltaRows][kVectors];
  float* const y = p.y + row * p.y_stride + column;
  const float* const x = p.x + row * p.x_row;
  const float* const m = p.m + column;
#pragma GCC unroll 4
  for (int r = 0; r < kDeltaRows; ++r) {
    const Float scale = p.scale == nullptr ? zero() : broadcast(p.scale[(row + r) * p.scale_row]);
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      sums[r][i] = p.scale == nullptr ? zero() : mul(scale, load(y + r * p.y_stride + i * kLanes));
    }
  }
  for (int64_t d = 0; d < p.depth; ++d) {
    Float v[kVectors];
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) v[i] = load(m + d * p.m_stride + i * kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < kDeltaRows; ++r) {
      const Float factor = broadcast(x[r * p.x_row + d * p.x_depth]);
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) sums[r][i] = fma(factor, v[i], sums[r][i]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kDeltaRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) store(y + r * p.y_stride + i * kLanes, sums[r][i]);
  }
}

/// `rows` is a multiple of kDeltaRows, `vectors` of kVectors.
template <int kVectors>
inline void delta_product(const DeltaProduct& p, int64_t rows, int vectors) {
  for (int i = 0; i < vectors; i += kVectors) {
    for (int64_t row = 0; row < rows; row += kDeltaRows) {
      delta_product<kVectors>(p, row, int64_t{i} * kLanes);
    }
  }
}

/// Numbers of a chunk that all columns of a state read. Tokens after the last have no decay and
/// zeros, so that they change nothing.
struct DeltaChunk {
  float* keys_queries;  // [2][kDeltaChunk][keys]
  float* with_keys;     // [kDeltaChunk][kDeltaChunk] beta_t r_tj (k_t k_j), 0 from j = t on
  float* with_queries;  // the same without beta for queries, 0 after j = t
  float* decays;        // g_t
  float* to_end;        // r_end,t
  float* betas;
};

constexpr int64_t delta_chunk_floats(int64_t keys) {
  return 2 * kDeltaChunk * keys + 2 * kDeltaChunk * kDeltaChunk + 3 * kDeltaChunk;
}

inline DeltaChunk delta_chunk_at(float* p, int64_t keys) {
  DeltaChunk chunk;
  chunk.keys_queries = p;
  chunk.with_keys = p + 2 * kDeltaChunk * keys;
  chunk.with_queries = chunk.with_keys + kDeltaChunk * kDeltaChunk;
  chunk.decays = chunk.with_queries + kDeltaChunk * kDeltaChunk;
  chunk.to_end = chunk.decays + kDeltaChunk;
  chunk.betas = chunk.to_end + kDeltaChunk;
  return chunk;
}

/// Packs `count` tokens from `first` on. `transposed` has room for [keys][kDeltaChunk].
inline void pack_delta_chunk(const DeltaRule& rule, const DeltaChunk& chunk, int64_t first,
                             int64_t count, float* transposed) {
  const int64_t keys = rule.keys;
  float* const queries = chunk.keys_queries + kDeltaChunk * keys;
  for (int64_t i = 0; i < keys; i += kLanes) {
    Float rows[kDeltaChunk];
    for (int64_t t = 0; t < kDeltaChunk; ++t) {
      const int64_t at = (first + t) * rule.key_stride + i;
      rows[t] = t < count ? load(rule.k + at) : zero();
      store(chunk.keys_queries + t * keys + i, rows[t]);
      store(queries + t * keys + i, t < count ? load(rule.q + at) : zero());
    }
    transpose(rows);
    for (int64_t t = 0; t < kDeltaChunk; ++t) store(transposed + (i + t) * kDeltaChunk, rows[t]);
  }
  DeltaProduct dots = {};
  dots.x = rule.corrects ? chunk.keys_queries : queries;
  dots.x_row = keys;
  dots.x_depth = 1;
  dots.m = transposed;
  dots.m_stride = kDeltaChunk;
  dots.depth = keys;
  dots.y = rule.corrects ? chunk.with_keys : chunk.with_queries;
  dots.y_stride = kDeltaChunk;
  delta_product<1>(dots, (rule.corrects ? 2 : 1) * kDeltaChunk, 1);
  alignas(64) float decays[kDeltaChunk] = {};  // r_tj of this token for all j
  float all = 1;
  for (int64_t t = 0; t < kDeltaChunk; ++t) {
    const int64_t gate = (first + t) * rule.gate_stride;
    const float decay = t < count ? rule.decay[gate] : 1;
    const float beta = t < count ? rule.beta[gate] : 0;
    all *= decay;
    chunk.decays[t] = all;
    chunk.betas[t] = beta;
    store(decays, mul(load(decays), broadcast(decay)));
    if (rule.corrects) {
      float* const keys_row = chunk.with_keys + t * kDeltaChunk;
      store(keys_row, mul(mul(load(decays), broadcast(beta)), load(keys_row)));
    }
    decays[t] = 1;
    float* const queries_row = chunk.with_queries + t * kDeltaChunk;
    store(queries_row, mul(load(decays), load(queries_row)));
  }
  store(chunk.to_end, load(decays));
}

/// The equations of kDeltaChunk tokens, for a tile of columns.
struct DeltaEquations {
  const float* factors;  // beta_t r_tj (k_t k_j), rows that are factors_row apart; 0 from j = t on
  int64_t factors_row;
  const float* decays;    // g_t
  const float* to_end;    // r_end,t
  const float* betas;     // 0 of tokens after the last
  const float* products;  // S^T k_t: vector i of token t at t * product_row + i * product_vector
  int64_t product_row, product_vector;
  const float* earlier;  // sums over tokens before these, as d lies; nullptr: there are none
  float* d;              // [kDeltaChunk][kDeltaTileColumns]
  float* ends;           // d times r_end,t
};

/// Solves for d. `first` is the first token's place in the rule, of which there are `count`.
inline void solve_delta(const DeltaRule& rule, const DeltaEquations& e, int64_t first,
                        int64_t count, int64_t column) {
  for (int64_t t = 0; t < kDeltaChunk; ++t) {
    const int64_t row = t * kDeltaTileColumns;
    const float* const v = rule.v + (first + t) * rule.v_stride + column;
    const float* const products = e.products + t * e.product_row;
    const float* const factors = e.factors + t * e.factors_row;
    const Float decay = broadcast(e.decays[t]);
    const Float beta = broadcast(e.betas[t]);
    // Rows by turns, so that sums do not wait for each other.
    Float even[kDeltaVectors], odd[kDeltaVectors];
    for (int i = 0; i < kDeltaVectors; ++i) {
      const Float value = t < count ? load(v + i * kLanes) : zero();
      even[i] = mul(beta, fnma(decay, load(products + i * e.product_vector), value));
      odd[i] = e.earlier == nullptr ? zero() : sub(zero(), load(e.earlier + row + i * kLanes));
    }
    int64_t j = 0;
    for (; j + 2 <= t; j += 2) {
      const Float f0 = broadcast(factors[j]);
      const Float f1 = broadcast(factors[j + 1]);
      const float* const rows = e.d + j * kDeltaTileColumns;
      for (int i = 0; i < kDeltaVectors; ++i) {
        even[i] = fnma(f0, load(rows + i * kLanes), even[i]);
        odd[i] = fnma(f1, load(rows + kDeltaTileColumns + i * kLanes), odd[i]);
      }
    }
    const Float last = broadcast(factors[j]);  // 0 where t is even
    const Float to_end = broadcast(e.to_end[t]);
    for (int i = 0; i < kDeltaVectors; ++i) {
      if (j < t) odd[i] = fnma(last, load(e.d + j * kDeltaTileColumns + i * kLanes), odd[i]);
      const Float now = add(even[i], odd[i]);
      store(e.d + row + i * kLanes, now);
      store(e.ends + row + i * kLanes, mul(to_end, now));
    }
  }
}

/// The same without equations, of a rule that does not correct: d is beta v.
inline void take_values(const DeltaRule& rule, const DeltaEquations& e, int64_t first,
                        int64_t count, int64_t column) {
  for (int64_t t = 0; t < kDeltaChunk; ++t) {
    const float* const v = rule.v + (first + t) * rule.v_stride + column;
    const Float beta = broadcast(e.betas[t]);
    const Float to_end = broadcast(e.to_end[t]);
    for (int i = 0; i < kDeltaVectors; ++i) {
      const Float now = t < count ? mul(beta, load(v + i * kLanes)) : zero();
      store(e.d + t * kDeltaTileColumns + i * kLanes, now);
      store(e.ends + t * kDeltaTileColumns + i * kLanes, mul(to_end, now));
    }
  }
}

/// Memory of a tile of columns.
struct DeltaTileMemory {
  float* state;     // [keys][kDeltaTileColumns]
  float* products;  // [2][kDeltaChunk][kDeltaTileColumns]: of keys, then of queries
  float* d;         // [kDeltaChunk][kDeltaTileColumns]
  float* ends;      // the same
};

/// One chunk, for a tile of columns.
inline void delta_chunk(const DeltaRule& rule, const DeltaChunk& chunk, int64_t first,
                        int64_t count, int64_t column, const DeltaTileMemory& tile) {
  DeltaProduct p = {};
  const int64_t skipped = rule.corrects ? 0 : kDeltaChunk;  // products with keys
  p.x = chunk.keys_queries + skipped * rule.keys;
  p.x_row = rule.keys;
  p.x_depth = 1;
  p.m = tile.state;
  p.m_stride = kDeltaTileColumns;
  p.depth = rule.keys;
  p.y = tile.products + skipped * kDeltaTileColumns;
  p.y_stride = kDeltaTileColumns;
  delta_product<kDeltaProductVectors>(p, 2 * kDeltaChunk - skipped, kDeltaVectors);
  DeltaEquations e = {};
  e.factors = chunk.with_keys;
  e.factors_row = kDeltaChunk;
  e.decays = chunk.decays;
  e.to_end = chunk.to_end;
  e.betas = chunk.betas;
  e.products = tile.products;
  e.product_row = kDeltaTileColumns;
  e.product_vector = kLanes;
  e.d = tile.d;
  e.ends = tile.ends;
  rule.corrects ? solve_delta(rule, e, first, count, column)
                : take_values(rule, e, first, count, column);
  float* const y = tile.products + kDeltaChunk * kDeltaTileColumns;
  p.x = chunk.with_queries;
  p.x_row = kDeltaChunk;
  p.m = tile.d;
  p.depth = kDeltaChunk;
  p.scale = chunk.decays;
  p.scale_row = 1;
  p.y = y;
  delta_product<kDeltaProductVectors>(p, kDeltaChunk, kDeltaVectors);
  for (int64_t t = 0; t < count; ++t) {
    float* const to = rule.y + (first + t) * rule.y_stride + column;
    for (int i = 0; i < kDeltaVectors; ++i) {
      store(to + i * kLanes, load(y + t * kDeltaTileColumns + i * kLanes));
    }
  }
  p.x = chunk.keys_queries;
  p.x_row = 1;
  p.x_depth = rule.keys;
  p.m = tile.ends;
  p.scale = chunk.decays + kDeltaChunk - 1;
  p.scale_row = 0;
  p.y = tile.state;
  delta_product<kDeltaProductVectors>(p, rule.keys, kDeltaVectors);
}

/// Floats of scratch that delta_chunks() works in; 0: it does not take such heads.
inline int64_t delta_chunk_scratch_floats(int64_t keys, int64_t columns) {
  if (keys % kDeltaRows != 0 || keys % kLanes != 0 || columns % kDeltaTileColumns != 0) return 0;
  return keys * kDeltaTileColumns + 4 * kDeltaChunk * kDeltaTileColumns + keys * kDeltaChunk +
         kDeltaBlockChunks * delta_chunk_floats(keys);
}

inline void delta_chunks(const DeltaRule& rule) {
  DeltaTileMemory tile;
  tile.state = rule.scratch;
  tile.products = tile.state + rule.keys * kDeltaTileColumns;
  tile.d = tile.products + 2 * kDeltaChunk * kDeltaTileColumns;
  tile.ends = tile.d + kDeltaChunk * kDeltaTileColumns;
  float* const transposed = tile.ends + kDeltaChunk * kDeltaTileColumns;
  float* const packed = transposed + rule.keys * kDeltaChunk;
  const auto chunk_of = [&rule, packed](int64_t i) {
    return delta_chunk_at(packed + i * delta_chunk_floats(rule.keys), rule.keys);
  };
  for (int64_t begin = 0; begin < rule.tokens; begin += kDeltaBlock) {
    const int64_t left = rule.tokens - begin;
    const int64_t count = left < kDeltaBlock ? left : kDeltaBlock;
    const auto count_of = [count](int64_t at) {
      return count - at < kDeltaChunk ? count - at : kDeltaChunk;
    };
    for (int64_t at = 0; at < count; at += kDeltaChunk) {
      pack_delta_chunk(rule, chunk_of(at / kDeltaChunk), begin + at, count_of(at), transposed);
    }
    for (int64_t column = 0; column < rule.columns; column += kDeltaTileColumns) {
      const StateTile state = {rule.state + column, rule.state_stride};
      const StateTile copy = {tile.state, kDeltaTileColumns};
      copy_state<kDeltaVectors>(copy, state, rule.keys);
      for (int64_t at = 0; at < count; at += kDeltaChunk) {
        delta_chunk(rule, chunk_of(at / kDeltaChunk), begin + at, count_of(at), column, tile);
      }
      copy_state<kDeltaVectors>(state, copy, rule.keys);
    }
  }
}

/// A vector of one lane has no chunk. Fewer tokens than two chunks do not pay for the copies.
constexpr DeltaChunks kDeltaChunks =
    kLanes == 1 ? DeltaChunks{}
                : DeltaChunks{&delta_chunk_scratch_floats, &delta_chunks, 2 * kDeltaChunk};
