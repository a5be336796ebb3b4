// Attention of one tile of query rows over a run of positions, with a running softmax. Included
// inside the namespace of an instruction set, after elementwise.inl.h and kv_numbers.inl.h.
//
// The tile walks over blocks of positions, which lie in one page of the cache each. Each block
// gives a panel of scores [row][position], the scores of a row become weights relative to the
// largest score so far, and the weighted values are added to the softmax partial of the row. When a
// larger score appears, what is there is scaled down first.
//
//   few rows (a token that is decoded)   scores are dot products of four keys at a time with up to
//                                        kAttentionDotRows queries: each key and value is read once
//   more (a prompt)                      the keys of the block are transposed, so that scores, like
//                                        the weighted values, are a product of two panels without
//                                        sums across lanes: see multiply()
//
// Keys and values in e4m3 are multiplied as they are: the scale of a key, a power of two, is
// applied to its scores, and that of a value to the weights that it gets.
//
// Accuracy of a row, with u = 2^-24, d the head_dim, n the positions and b the blocks, to first
// order: a score is off by (d + 2) u sum |q k scale| at most, whatever the order of the additions.
// exp makes that a relative error of the weight, and adds 3 u and b u for the rescalings. The sum
// of weights gets 20 u at most from a block (128 u where kLanes is 1) and nothing to speak of
// between blocks, where it is in double precision; the weighted values get (n + b) u of the largest
// running sum.

constexpr int64_t kMaxAttentionRows = 128;
constexpr int64_t kFewRows = 15;
constexpr int64_t kFewRowsBlock = 128;  // positions; long runs for the hardware's prefetcher
constexpr int64_t kManyRowsBlock = 64;  // all panels together stay in the second cache
static_assert(kPagePositions % kFewRowsBlock == 0 && kPagePositions % kManyRowsBlock == 0,
              "a block lies in one page");
constexpr int64_t kPanelFloats = kMaxAttentionRows * kManyRowsBlock;
static_assert((kFewRows + 1) * kFewRowsBlock <= kPanelFloats);
static_assert(kManyRowsBlock % kLanes == 0);

constexpr float kLowest = -3.402823466e38F;

/// Where the key of a position lies, and its value. Those after it in its page follow.
template <class Kv>
inline const Kv* run_at(const AttentionTile& tile, int64_t run, int64_t position) {
  const int64_t page = tile.pages[position / kPagePositions];
  return reinterpret_cast<const Kv*>(tile.cache + page * tile.page_bytes + run) +
         position % kPagePositions * tile.head_dim;
}
template <class Kv>
inline const Kv* keys_at(const AttentionTile& tile, int64_t position) {
  return run_at<Kv>(tile, tile.keys, position);
}
template <class Kv>
inline const Kv* values_at(const AttentionTile& tile, int64_t position) {
  return run_at<Kv>(tile, tile.values, position);
}

inline int64_t vectors_of(int64_t floats) {
  return (floats + kLanes - 1) / kLanes;
}

/// Room for the accumulated values of a row, padded to vectors; after them the largest score and
/// the sum.
inline int64_t acc_floats(int64_t head_dim) {
  return (head_dim + 15) / 16 * 16;
}

inline int64_t attention_partial_floats(int64_t head_dim) {
  return acc_floats(head_dim) + 16;
}

/// Scores; transposed keys; values as floats, in rows that end at a whole vector.
inline int64_t attention_scratch_floats(int64_t head_dim) {
  return kPanelFloats + head_dim * kManyRowsBlock + kFewRowsBlock * acc_floats(head_dim);
}

/// One row of the tile.
struct AttentionRow {
  const float* query;
  int64_t begin;  // positions that it sees
  int64_t end;
  float* acc;  // its softmax partial: weighted values, then the largest score and the sum
  float* scores;
  float largest;
  double sum;
};

struct AttentionBlock {
  int64_t begin;  // position
  int64_t count;
  /// First position that `row` sees of it, from 0.
  int64_t first(const AttentionRow& row) const { return row.begin > begin ? row.begin - begin : 0; }
  int64_t last(const AttentionRow& row) const {
    return row.end - begin < count ? row.end - begin : count;
  }
};

/// Blocks begin at multiples of their size, but for the first: so one lies in one page.
inline int64_t block_end(int64_t begin, int64_t end, int64_t block_size) {
  const int64_t next = begin - begin % block_size + block_size;
  return next < end ? next : end;
}

/// Calls visit.template run<n>(first) for runs of kRows rows, then of half as many, ...
template <int kRows, class Visit>
inline void in_runs(int64_t first, int64_t rows, const Visit& visit) {
  for (; first + kRows <= rows; first += kRows) visit.template operator()<kRows>(first);
  if constexpr (kRows > 1) in_runs<kRows / 2>(first, rows, visit);
}

/// c[r][kVectors] (+)= sum over i < k of a[r][i] * b[i][kVectors], in the order of i.
template <int kRows, int kVectors, class Kv>
inline void multiply_vectors(float* const (&c)[kRows], const float* const (&a)[kRows], const Kv* b,
                             int64_t b_stride, int64_t k, bool accumulate) {
  Float acc[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      acc[r][v] = accumulate ? load(c[r] + v * kLanes) : zero();
    }
  }
  for (int64_t i = 0; i < k; ++i, b += b_stride) {
    Float row[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) row[v] = load_kv(b + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Float factor = broadcast(a[r][i]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) acc[r][v] = fma(factor, row[v], acc[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) store(c[r] + v * kLanes, acc[r][v]);
  }
}

/// The same for any number of vectors. One row alone has only its vectors to hide latencies with.
template <int kRows, class Kv>
inline void multiply(float* const (&to)[kRows], const float* const (&a)[kRows], const Kv* b,
                     int64_t b_stride, int64_t k, int64_t vectors, bool accumulate) {
  constexpr int kVectors = kAttentionSums / kRows < 8 ? kAttentionSums / kRows : 8;
  int64_t v = 0;
  const auto some_vectors = [&]<int kCount>() {
    float* c[kRows];
    for (int r = 0; r < kRows; ++r) c[r] = to[r] + v * kLanes;
    multiply_vectors<kRows, kCount>(c, a, b + v * kLanes, b_stride, k, accumulate);
    v += kCount;
  };
  while (v + kVectors <= vectors) some_vectors.template operator()<kVectors>();
  if constexpr (kVectors > 4) {
    if (v + 4 <= vectors) some_vectors.template operator()<4>();
  }
  if constexpr (kVectors > 2) {
    if (v + 2 <= vectors) some_vectors.template operator()<2>();
  }
  if (v < vectors) some_vectors.template operator()<1>();
}

/// Prefetches `count` numbers from p[begin] on, which may lie after the end of what p points to.
template <class Kv>
inline void prefetch(const Kv* p, int64_t begin, int64_t count) {
  if (kLanes == 1) return;
  constexpr int64_t kBytes = sizeof(Kv);
  const auto first = reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(kBytes * begin);
  for (int64_t i = 0; i < kBytes * count; i += 64) {
    __builtin_prefetch(reinterpret_cast<const void*>(first + static_cast<uintptr_t>(i)), 0,
                       4 - kPrefetchLevel);
  }
}

/// Scores of kRows queries with four keys at a time. After the last key it is taken again: the
/// panel has room. The next keys are prefetched on the way, and the values of these, as the
/// hardware's prefetcher stops at the end of a small page; unless `values` is null, because others
/// have come by before.
template <int kRows, class Kv>
inline void dot_scores(const AttentionRow* rows, const Kv* keys, const Kv* values, int64_t count,
                       int64_t dim) {
  for (int64_t p = 0; p < count; p += 4) {
    if (values != nullptr) {
      prefetch(keys, (p + 4) * dim, 4 * dim);
      prefetch(values, p * dim, 4 * dim);
    }
    const Kv* key[4];
    for (int j = 0; j < 4; ++j) key[j] = keys + (p + j < count ? p + j : count - 1) * dim;
    Float acc[kRows][4];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) acc[r][j] = zero();
    }
    int64_t i = 0;
    for (; i + kLanes <= dim; i += kLanes) {
      Float k[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) k[j] = load_kv(key[j] + i);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const Float q = load(rows[r].query + i);
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) acc[r][j] = fma(q, k[j], acc[r][j]);
      }
    }
    if (i < dim) {
      Float k[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) k[j] = load_kv_part(key[j] + i, dim - i);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const Float q = load_part(rows[r].query + i, dim - i);
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) acc[r][j] = fma(q, k[j], acc[r][j]);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) sum4(acc[r], rows[r].scores + p);
  }
}

/// panel[d][kManyRowsBlock]: element d of the keys, which are zero from `count` on.
template <class Kv>
inline void transpose_keys(float* panel, const Kv* keys, int64_t count, int64_t dim) {
  for (int64_t p = 0; p < count; p += kLanes) {
    for (int64_t d = 0; d < dim; d += kLanes) {
      Float part[kLanes];
      for (int64_t i = 0; i < kLanes; ++i) {
        const Kv* key = keys + (p + i) * dim + d;
        part[i] = p + i >= count      ? zero()
                  : d + kLanes <= dim ? load_kv(key)
                                      : load_kv_part(key, dim - d);
      }
      transpose(part);
      for (int64_t j = 0; j < kLanes && d + j < dim; ++j) {
        store(panel + (d + j) * kManyRowsBlock + p, part[j]);
      }
    }
  }
}

/// Scores of all rows with the keys of a block. What a row does not see is not looked at later.
template <class Kv>
inline void score_block(AttentionRow* rows, int64_t num_rows, const AttentionBlock& block,
                        const AttentionTile& tile, float* panel) {
  const int64_t dim = tile.head_dim;
  const Kv* keys = keys_at<Kv>(tile, block.begin);
  if (num_rows <= kFewRows) {
    in_runs<kAttentionDotRows>(0, num_rows, [&]<int kRows>(int64_t r) {
      const Kv* values = r == 0 ? values_at<Kv>(tile, block.begin) : nullptr;
      dot_scores<kRows>(rows + r, keys, values, block.count, dim);
    });
    return;
  }
  transpose_keys(panel, keys, block.count, dim);
  in_runs<kAttentionRows>(0, num_rows, [&]<int kRows>(int64_t r) {
    const float* queries[kRows];
    float* scores[kRows];
    for (int i = 0; i < kRows; ++i) {
      queries[i] = rows[r + i].query;
      scores[i] = rows[r + i].scores;
    }
    const int64_t seen = block.last(rows[r + kRows - 1]);  // later rows see further
    if (seen <= 0) return;
    multiply<kRows>(scores, queries, panel, kManyRowsBlock, dim, vectors_of(seen), false);
  });
}

/// The factors of the positions of a block, whose run (keys or values) of the cache is `run`.
inline void load_factors(float* factors, const AttentionTile& tile, int64_t run,
                         const AttentionBlock& block) {
  const int64_t page = tile.pages[block.begin / kPagePositions];
  const uint8_t* scales = tile.cache + page * tile.page_bytes + run +
                          kPagePositions * tile.head_dim + block.begin % kPagePositions;
  for (int64_t i = 0; i < block.count; ++i) factors[i] = float_of(e4m3::factor_bits(scales[i]));
}

/// Multiplies what the rows have of the positions that they see by the factors of these: nothing,
/// where numbers have no scales.
template <class Kv>
inline void apply_scales(AttentionRow* rows, int64_t num_rows, const AttentionBlock& block,
                         const AttentionTile& tile, int64_t run) {
  if constexpr (!kHasScales<Kv>) return;
  float factors[kFewRowsBlock];
  load_factors(factors, tile, run, block);
  for (int64_t r = 0; r < num_rows; ++r) {
    float* s = rows[r].scores;
    const int64_t end = block.last(rows[r]);
    int64_t i = block.first(rows[r]);
    for (; i + kLanes <= end; i += kLanes) store(s + i, mul(load(s + i), load(factors + i)));
    if (i < end) {
      const int64_t left = end - i;
      store_part(s + i, mul(load_part(s + i, left), load_part(factors + i, left)), left);
    }
  }
}

/// Turns the scores [begin, end) of a row into weights relative to its largest score so far.
/// That is a finite number from the start, so that scores of -infinity weigh nothing; NaN is never
/// the largest, and gives a weight of NaN.
inline void weigh_scores(AttentionRow& row, int64_t begin, int64_t end, float scale, int64_t dim) {
  if (begin >= end) return;
  float* s = row.scores;
  const Float factor = broadcast(scale);
  Float top = broadcast(row.largest);
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    const Float v = mul(load(s + i), factor);
    store(s + i, v);
    top = max(v, top);
  }
  const int64_t left = end - i;
  Float last = zero();
  if (left > 0) {
    last = mul(load_part(s + i, left), factor);
    top = first_or(max(last, top), left, top);
  }
  const float largest = max_across(top);
  if (largest != row.largest) {
    const float shrink = exponential_of_one(row.largest - largest);
    row.largest = largest;
    row.sum *= static_cast<double>(shrink);
    for (int64_t d = 0; d < dim; d += kLanes) {
      store(row.acc + d, mul(load(row.acc + d), broadcast(shrink)));
    }
  }
  const Float base = broadcast(largest);
  Float total = zero();
  for (i = begin; i + kLanes <= end; i += kLanes) {
    const Float weight = exponential(sub(load(s + i), base));
    store(s + i, weight);
    total = add(total, weight);
  }
  if (left > 0) {
    const Float weight = exponential(sub(last, base));
    store_part(s + i, weight, left);
    total = add(total, first_or(weight, left, zero()));
  }
  row.sum += static_cast<double>(sum(total));
}

/// Adds the weighted values of a block. Positions that all rows of a run see are worked off
/// together; those before and after by each row that sees them, because what the others have there
/// may be infinite or NaN and must not meet them with a weight of 0. A row's order is the same.
template <class Kv>
inline void add_values(const AttentionRow* rows, int64_t num_rows, const AttentionBlock& block,
                       const Kv* values, int64_t stride, int64_t vectors) {
  in_runs<kAttentionRows>(0, num_rows, [&]<int kRows>(int64_t r) {
    const auto alone = [&](int64_t row, int64_t begin, int64_t end) {
      if (begin >= end) return;
      float* const to[1] = {rows[row].acc};
      const float* const weights[1] = {rows[row].scores + begin};
      multiply<1>(to, weights, values + begin * stride, stride, end - begin, vectors, true);
    };
    // Later rows see further at both ends.
    const int64_t begin = block.first(rows[r + kRows - 1]);
    const int64_t end = block.last(rows[r]);
    if (begin >= end) {
      for (int64_t i = r; i < r + kRows; ++i) alone(i, block.first(rows[i]), block.last(rows[i]));
      return;
    }
    float* to[kRows];
    const float* weights[kRows];
    for (int i = 0; i < kRows; ++i) {
      alone(r + i, block.first(rows[r + i]), begin);
      to[i] = rows[r + i].acc;
      weights[i] = rows[r + i].scores + begin;
    }
    multiply<kRows>(to, weights, values + begin * stride, stride, end - begin, vectors, true);
    for (int i = 0; i < kRows; ++i) alone(r + i, end, block.last(rows[r + i]));
  });
}

/// Copies rows of values to rows of floats that end with zeros at a whole vector.
template <class Kv>
inline void stage_values(float* staged, int64_t stride, const Kv* values, int64_t count,
                         int64_t dim) {
  for (int64_t p = 0; p < count; ++p, staged += stride, values += dim) {
    int64_t d = 0;
    for (; d + kLanes <= dim; d += kLanes) store(staged + d, load_kv(values + d));
    if (d < dim) store(staged + d, load_kv_part(values + d, dim - d));
  }
}

/// Says whether values are multiplied where they lie: whole vectors, which many rows would convert
/// again and again.
template <class Kv>
inline bool takes_values_directly(int64_t num_rows, int64_t dim) {
  return dim % kLanes == 0 && (sizeof(Kv) == sizeof(float) || num_rows <= kFewRows);
}

/// Fills `rows` with what `tile` says.
inline void start_rows(AttentionRow* rows, const AttentionTile& tile, int64_t block_size) {
  const int64_t partial_floats = attention_partial_floats(tile.head_dim);
  for (int64_t r = tile.row_begin; r < tile.row_end; ++r) {
    const int64_t i = r - tile.row_begin;
    const int64_t end = tile.first_position + r / tile.q_per_kv + 1;
    int64_t begin = tile.window > 0 && end > tile.window ? end - tile.window : 0;
    if (tile.in_chunks && tile.window > 0) begin = (end - 1) / tile.window * tile.window;
    rows[i] = {tile.q + r / tile.q_per_kv * tile.q_stride + r % tile.q_per_kv * tile.head_dim,
               begin > tile.begin ? begin : tile.begin,
               end < tile.end ? end : tile.end,
               tile.partials + i * partial_floats,
               tile.scratch + i * block_size,
               kLowest,
               0};
  }
}

template <class Kv>
inline void attend(const AttentionTile& tile) {
  const int64_t dim = tile.head_dim;
  const int64_t num_rows = tile.row_end - tile.row_begin;
  const int64_t block_size = num_rows <= kFewRows ? kFewRowsBlock : kManyRowsBlock;
  AttentionRow rows[kMaxAttentionRows];
  start_rows(rows, tile, block_size);
  for (int64_t i = 0; i < num_rows * attention_partial_floats(dim); i += kLanes) {
    store(tile.partials + i, zero());
  }
  float* panel = tile.scratch + kPanelFloats;
  float* staged = panel + dim * kManyRowsBlock;
  const int64_t end = rows[num_rows - 1].end;
  for (int64_t begin = rows[0].begin; begin < end;) {
    const AttentionBlock block = {begin, block_end(begin, end, block_size) - begin};
    score_block<Kv>(rows, num_rows, block, tile, panel);
    apply_scales<Kv>(rows, num_rows, block, tile, tile.keys);
    for (int64_t r = 0; r < num_rows; ++r) {
      const int64_t first = block.first(rows[r]);
      const int64_t last = block.last(rows[r]);
      const bool is_capped = tile.cap > 0 && first < last;
      if (is_capped) soft_cap(rows[r].scores + first, last - first, tile.scale, tile.cap);
      weigh_scores(rows[r], first, last, is_capped ? 1 : tile.scale, dim);
    }
    apply_scales<Kv>(rows, num_rows, block, tile, tile.values);
    const Kv* values = values_at<Kv>(tile, begin);
    if (takes_values_directly<Kv>(num_rows, dim)) {
      add_values(rows, num_rows, block, values, dim, dim / kLanes);
    } else {
      stage_values(staged, acc_floats(dim), values, block.count, dim);
      add_values(rows, num_rows, block, staged, acc_floats(dim), vectors_of(dim));
    }
    begin += block.count;
  }
  for (int64_t r = 0; r < num_rows; ++r) {
    rows[r].acc[acc_floats(dim)] = rows[r].largest;
    rows[r].acc[acc_floats(dim) + 1] = static_cast<float>(rows[r].sum);
  }
}

inline void merge_attention(float* out, const float* partials, int64_t count, int64_t stride,
                            const float* sink, int64_t head_dim) {
  const int64_t at = acc_floats(head_dim);
  float largest = kLowest;
  for (int64_t s = 0; s < count; ++s)
    largest = first_lane(max(broadcast(partials[s * stride + at]), broadcast(largest)));
  if (sink != nullptr && *sink > largest) largest = *sink;
  double total = sink == nullptr ? 0 : static_cast<double>(exponential_of_one(*sink - largest));
  float factors[kMaxAttentionSplits];
  for (int64_t s = 0; s < count; ++s) {
    const float* partial = partials + s * stride;
    factors[s] = exponential_of_one(partial[at] - largest);
    total += static_cast<double>(factors[s]) * static_cast<double>(partial[at + 1]);
  }
  const auto inverse = static_cast<float>(1 / total);
  for (int64_t s = 0; s < count; ++s) factors[s] *= inverse;
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    Float value = mul(load(partials + d), broadcast(factors[0]));
    for (int64_t s = 1; s < count; ++s) {
      value = fma(load(partials + s * stride + d), broadcast(factors[s]), value);
    }
    if (d + kLanes <= head_dim) {
      store(out + d, value);
    } else {
      store_part(out + d, value, head_dim - d);
    }
  }
}
