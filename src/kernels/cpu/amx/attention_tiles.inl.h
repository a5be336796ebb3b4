// Attention of a prompt with AMX: tiles of 16 rows by 32 bf16. Included inside the
// namespace of an instruction set with tiles, after attention_panels.inl.h. The running softmax is
// that of attention.inl.h.
//
// All is transposed: a query row is a lane, so that the largest score and the sum of weights of 16
// rows are one vector each, and weights leave the softmax in the order that the next product wants.
//
//     scores [position][row]  = keys   [position][d] * queries [d][row]
//     acc    [d][row]        += values [d][position] * weights [position][row]
//
//   for each block of kTilePositions    keys and values become panels that stay in the caches
//     for each panel of 32 rows         scores, and between these products the weights of the
//                                       panel before
//     for each 32 d                     a panel's share, in the first-level cache
//       for each panel of 32 rows       weighted values
//
// Every number x is two bf16, x = hi + lo + error: each rounds to nearest, |lo| <= 2^-8 |x| and
// |error| <= 2^-16 |x|. A product of two numbers is three of bf16, without lo * lo. Scores are
// exponents of 2, because queries are multiplied by scale * log2(e) first. Weights are relative to
// a score that the largest exceeds by kSlack at most, so that sums are seldom rescaled.
//
// Accuracy of a row, with u = 2^-24, d the head_dim, n the positions and b the blocks, to first
// order: a product is off by 3 * 2^-16 of itself (an error of each number, and lo * lo), a sum by
// u for each of its additions. So a score is off by (3 * 2^-16 + (3 d + 4) u) sum |q k scale| at
// most. The exponential makes that a relative error of the weight, and adds 6 u and b u for the
// rescalings. The weighted values are off by (3 * 2^-16 + (3 n + b) u) sum |weight value| besides;
// the sum of weights, which is that of the floats, by kTilePositions u. Tiles count subnormal bf16
// as zero: 2^-126 for each number; weights below 2^-125 are zero.
//
// What the two bf16 cannot hold, infinities, NaN and magnitudes from kTileLimit on, is zero in the
// panels and added by itself to the rows that see it: other rows get the same bits as without it.

/// v = 2^v for v <= 16, within 6 u: the polynomial, which interpolates 2^f at Chebyshev's points,
/// is within 3.4 u for |f| <= 0.5, and its last two additions round. Below 2^-125 it is zero,
/// because results that underflow take many times as long. NaN stays. Several vectors at a time,
/// step by step: one alone waits for each of its instructions.
template <int kVectors>
[[gnu::always_inline]] inline void powers_of_two(Float (&v)[kVectors]) {
  constexpr float kCoefficients[] = {0.00966636837F, 0.0555038117F, 0.240223497F, 0.693147182F, 1};
  Float n[kVectors];
  Float p[kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) n[i] = nearest(v[i]);
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) v[i] = sub(v[i], n[i]);
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) p[i] = broadcast(0.00133813126F);
#pragma GCC unroll 8
  for (const float coefficient : kCoefficients) {
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) p[i] = fma(p[i], v[i], broadcast(coefficient));
  }
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) v[i] = times_power_above(p[i], n[i], -126);
}

template <class Kv>
inline float dot(const float* a, const Kv* b, int64_t dim) {
  Float total = zero();
  int64_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) total = fma(load(a + d), load_kv(b + d), total);
  if (d < dim) total = fma(load_part(a + d, dim - d), load_kv_part(b + d, dim - d), total);
  return sum(total);
}

inline bool sees(const QueryPanel& panel, const AttentionBlock& block) {
  return panel.first < block.begin + block.count && panel.last > block.begin;
}
/// How many positions of the block some row of the panel may see, from its first.
inline int64_t seen_of(const QueryPanel& panel, const AttentionBlock& block) {
  return panel.last - block.begin < block.count ? panel.last - block.begin : block.count;
}

/// The softmax of one panel and block, a few positions at a time.
class TileWeights {
 public:
  TileWeights(TileAttention& work, const AttentionBlock& block) : work_(work), block_(block) {}

  /// The scores of `panel` are there. They are to be weights after `parts` calls of advance().
  void begin(QueryPanel& panel, float* scores, int64_t parts) {
    panel_ = &panel;
    scores_ = scores;
    next_ = 0;
    end_ = (seen_of(panel, block_) + 1) / 2 * 2;
    share_ = end_ * 65536 / parts + 1;
    shared_ = 0;
    masked_ = panel.common_first > block_.begin || panel.common_last < block_.begin + end_ ||
              end_ > block_.count;
    if (masked_) {
      for (int64_t n = 0; n < kQueryPanelRows; ++n) {
        first_[n] = static_cast<float>(block_.first(*panel.rows[n]));
        last_[n] = static_cast<float>(block_.last(*panel.rows[n]));
      }
    }
    if (panel.special || work_.any_special_key) add_special_scores();
    for (int half = 0; half < 2; ++half) {
      masked_ ? find_largest<true>(half) : find_largest<false>(half);
      total_[half] = zero();
    }
  }

  [[gnu::always_inline]] void advance() {
    shared_ += share_;
    const int64_t end = shared_ / 65536 < end_ ? shared_ / 65536 : end_;
    masked_ ? exponentials_to<true>(end) : exponentials_to<false>(end);
  }

  void end() {
    masked_ ? exponentials_to<true>(end_) : exponentials_to<false>(end_);
    // The products go on to the end of a step.
    for (int64_t p = end_; p % kTileDepth != 0; p += 2) {
      for (int64_t tile = 0; tile < 4; ++tile) {
        store_bf16x2(weights_at(p) + tile * kTmmBytes, zero_split().lo);
      }
    }
    float lanes[kQueryPanelRows];
    store(lanes, total_[0]);
    store(lanes + kLanes, total_[1]);
    for (int64_t n = 0; n < kQueryPanelRows; ++n) panel_->total[n] += static_cast<double>(lanes[n]);
  }

 private:
  template <bool kMasked>
  Float seen_or(Float v, int64_t p, int half, float other) const {
    if constexpr (!kMasked) return v;
    return between_or(static_cast<float>(p), load(first_ + half * kLanes),
                      load(last_ + half * kLanes), v, broadcast(other));
  }

  const float* scores_at(int64_t position, int half) const {
    const auto p = static_cast<uint64_t>(position);
    return scores_ + p / kTileDepth * kAccFloats + half * kHalfFloats + p % kTileDepth * kLanes;
  }
  /// Weights of an even position.
  uint8_t* weights_at(int64_t position) const {
    const auto p = static_cast<uint64_t>(position);
    return panel_->weights + p / kTileDepth * kOperandBytes + p % kTileDepth * 32;
  }

  template <bool kMasked>
  void find_largest(int half) {
    const Float old = load(panel_->largest + half * kLanes);
    Float top[2] = {old, old};
    for (int64_t p = 0; p < end_; p += 2) {
      const float* scores = scores_at(p, half);
      for (int i = 0; i < 2; ++i) {
        const Float v = load(scores + i * kLanes);
        top[i] = max(seen_or<kMasked>(v, p + i, half, kLowest), top[i]);
      }
    }
    top[0] = max(top[0], top[1]);
    const Float largest = above_or(top[0], add(old, broadcast(kSlack)), top[0], old);
    largest_[half] = largest;
    if (!same_lanes(largest, old)) rescale(half, old);
  }

  /// Everything so far becomes relative to the new largest scores.
  void rescale(int half, Float old) {
    store(panel_->largest + half * kLanes, largest_[half]);
    if (panel_->fresh) return;
    Float shrink[1] = {sub(old, largest_[half])};
    powers_of_two(shrink);
    float lanes[kLanes];
    store(lanes, shrink[0]);
    double* total = panel_->total + half * kLanes;
    for (int64_t n = 0; n < kLanes; ++n) total[n] *= static_cast<double>(lanes[n]);
    for (int64_t step = 0; step < work_.steps; ++step) {
      float* sums = panel_->acc + step * kAccFloats + half * kHalfFloats;
      float* const sums_end = sums + kHalfFloats;
      for (; sums < sums_end; sums += kLanes) store(sums, mul(load(sums), shrink[0]));
    }
  }

  template <bool kMasked>
  [[gnu::always_inline]] void exponentials_to(int64_t end) {
    for (; next_ < end; next_ += 2) {
      Float v[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        v[i] = sub(load(scores_at(next_, i / 2) + i % 2 * kLanes), largest_[i / 2]);
      }
      powers_of_two(v);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) v[i] = seen_or<kMasked>(v[i], next_ + i % 2, i / 2, 0);
      uint8_t* to = weights_at(next_);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        total_[half] = add(total_[half], add(v[2 * half], v[2 * half + 1]));
        const SplitBf16x2 split = split_to_bf16x2(v[2 * half], v[2 * half + 1]);
        store_bf16x2(to + half * kTmmBytes, split.hi);
        store_bf16x2(to + half * kTmmBytes + kHalfOperandBytes, split.lo);
      }
    }
  }

  void add_special_scores() {
    for (int64_t n = 0; n < kQueryPanelRows; ++n) {
      const AttentionRow& row = *panel_->rows[n];
      const bool all = work_.special_query[&row - work_.rows];
      for (int64_t p = block_.first(row); p < block_.last(row); ++p) {
        if (!all && !work_.special_key[p]) continue;
        const float score = with_element(work_.element, work_.block_keys, [&](const auto* keys) {
          return dot(row.query, keys + p * work_.dim, work_.dim);
        });
        scores_[p / kTileDepth * kAccFloats + n / kLanes * kHalfFloats + p % kTileDepth * kLanes +
                n % kLanes] = score * work_.factor;
      }
    }
  }

  TileAttention& work_;
  const AttentionBlock& block_;
  QueryPanel* panel_ = nullptr;
  float* scores_ = nullptr;
  int64_t next_ = 0;  // position of the block
  int64_t end_ = 0;
  int64_t share_ = 0;  // of each part, in positions / 65536
  int64_t shared_ = 0;
  bool masked_ = false;  // not all rows see all positions
  float first_[kQueryPanelRows];
  float last_[kQueryPanelRows];
  Float largest_[2];
  Float total_[2];
};

/// Scores and weights of all panels that see something of the block. Between the products of a
/// panel the scores of the one before become weights, a while after they have left the tiles.
class TileScores {
 public:
  TileScores(TileAttention& work, const AttentionBlock& block)
      : work_(work), block_(block), weights_(work, block) {}

  void run() {
    for (int64_t g = 0; g < work_.num_panels; ++g) {
      QueryPanel& panel = work_.query_panels[g];
      if (!sees(panel, block_)) continue;
      const int64_t parts = (seen_of(panel, block_) + kTileDepth - 1) / kTileDepth;
      turns_ = 3 * (parts * work_.steps - 1);
      for (int64_t i = 0; i < parts; ++i) {
        before_ == nullptr ? multiply<false>(panel, i) : multiply<true>(panel, i);
      }
      if (before_ != nullptr) finish();
      before_ = &panel;
    }
    if (before_ == nullptr) return;
    store_accumulators(acc_to_);
    weights_.begin(*before_, work_.scores[buffer_], 1);
    weights_.end();
  }

 private:
  void finish() {
    if (turns_ == 0) weights_.begin(*before_, work_.scores[buffer_], 1);
    weights_.end();
    buffer_ = 1 - buffer_;
  }

  /// The panel's scores with part `i` of the keys.
  template <bool kSoftmax>
  void multiply(const QueryPanel& panel, int64_t i) {
    const uint8_t* keys = work_.keys + i * work_.steps * kOperandBytes;
    const uint8_t* queries = panel.queries;
    const auto advance = [this, first = i == 0](int64_t step) {
      if (kSoftmax && (!first || step > 0)) weights_.advance();
    };
    for (int64_t step = 0; step < work_.steps; ++step) {
      if (step > 0) {
        multiply_hi(keys, queries);
      } else if (acc_to_ != nullptr) {
        multiply_hi_from_zero(keys, queries, acc_to_);
      } else {
        zero_tiles();
        multiply_hi(keys, queries);
      }
      advance(step);
      multiply_hi_lo(queries);
      advance(step);
      multiply_lo_hi(keys, queries);
      advance(step);
      if (kSoftmax && i == 0 && step == 0 && turns_ > 0) {
        weights_.begin(*before_, work_.scores[buffer_], turns_);
      }
      keys += kOperandBytes;
      queries += kOperandBytes;
    }
    acc_to_ = work_.scores[kSoftmax ? 1 - buffer_ : buffer_] + i * kAccFloats;
  }

  TileAttention& work_;
  const AttentionBlock& block_;
  TileWeights weights_;
  QueryPanel* before_ = nullptr;
  int64_t buffer_ = 0;  // where its scores are
  int64_t turns_ = 0;
  float* acc_to_ = nullptr;  // where the sums in the tiles belong
};

/// Adds what the panel of values lacks.
template <class Kv>
inline void add_special_values(TileAttention& work, QueryPanel& panel, const AttentionBlock& block,
                               const Kv* values) {
  for (int64_t p = 0; p < block.count; ++p) {
    if (!work.special_value[p]) continue;
    const Kv* value = values + p * work.dim;
    for (int64_t n = 0; n < kQueryPanelRows; ++n) {
      if (p < block.first(*panel.rows[n]) || p >= block.last(*panel.rows[n])) continue;
      const uint8_t* at = panel.weights + p / kTileDepth * kOperandBytes + n / kLanes * kTmmBytes +
                          p % kTileDepth / 2 * 64 + n % kLanes * 4 + p % 2 * 2;
      const float weight = float_of_bf16(at) + float_of_bf16(at + kHalfOperandBytes);
      float* sums = panel.acc + n / kLanes * kHalfFloats + n % kLanes;
      for (int64_t d = 0; d < work.dim; ++d) {
        const float number = first_lane(load_kv_part(value + d, 1));
        sums[d / kTileDepth * kAccFloats + d % kTileDepth * kLanes] += weight * number;
      }
    }
  }
}

inline void add_tile_values(TileAttention& work, const AttentionBlock& block) {
  float* acc_to = nullptr;  // where the sums in the tiles belong
  for (int64_t d = 0; d < work.steps; ++d) {
    for (int64_t g = 0; g < work.num_panels; ++g) {
      QueryPanel& panel = work.query_panels[g];
      if (!sees(panel, block)) continue;
      float* sums = panel.acc + d * kAccFloats;
      const uint8_t* values = work.values + d * kTileSteps * kOperandBytes;
      const uint8_t* weights = panel.weights;
      if (acc_to == nullptr) panel.fresh ? zero_tiles() : load_accumulators(sums);
      const int64_t end = seen_of(panel, block);
      for (int64_t p = 0; p < end; p += kTileDepth) {
        if (p > 0 || acc_to == nullptr) {
          multiply_hi(values, weights);
        } else if (panel.fresh) {
          multiply_hi_from_zero(values, weights, acc_to);
        } else {
          multiply_hi_from(values, weights, acc_to, sums);
        }
        multiply_hi_lo(weights);
        multiply_lo_hi(values, weights);
        values += kOperandBytes;
        weights += kOperandBytes;
      }
      acc_to = sums;
      if (d + 1 == work.steps) panel.fresh = false;
    }
  }
  if (acc_to != nullptr) store_accumulators(acc_to);
  if (!work.any_special_value) return;
  for (int64_t g = 0; g < work.num_panels; ++g) {
    if (!sees(work.query_panels[g], block)) continue;
    with_element(work.element, work.block_values, [&](const auto* values) {
      add_special_values(work, work.query_panels[g], block, values);
    });
  }
}

/// Back to a softmax partial for each row. A panel that has seen nothing of these positions has no
/// acc.
inline void end_query_panel(const TileAttention& work, const QueryPanel& panel, int64_t rows) {
  alignas(64) float part[kTmmBytes / 4];
  for (int64_t half = 0; half * kLanes < rows; ++half) {
    const int64_t left = rows - half * kLanes;
    const int64_t count = left < kLanes ? left : kLanes;
    const AttentionRow* const* to = panel.rows + half * kLanes;
    for (int64_t d = 0; d < work.dim; d += kLanes) {
      transpose_lanes(
          panel.acc + d / kTileDepth * kAccFloats + half * kHalfFloats + d % kTileDepth * kLanes,
          part);
      for (int64_t n = 0; n < count; ++n) {
        store(to[n]->acc + d, panel.fresh ? zero() : load(part + n * kLanes));
      }
    }
  }
  const int64_t at = acc_floats(work.dim);
  for (int64_t n = 0; n < rows; ++n) {
    panel.rows[n]->acc[at] = panel.largest[n] * kLn2;
    panel.rows[n]->acc[at + 1] = static_cast<float>(panel.total[n]);
  }
}

/// Attention in vectors, which take fewer rows at once than tiles.
template <class Kv>
inline void attend_vectors(const AttentionTile& tile) {
  for (int64_t row = tile.row_begin; row < tile.row_end; row += kMaxAttentionRows) {
    AttentionTile some = tile;
    some.row_begin = row;
    some.row_end = row + kMaxAttentionRows < tile.row_end ? row + kMaxAttentionRows : tile.row_end;
    some.partials += (row - tile.row_begin) * attention_partial_floats(tile.head_dim);
    attend<Kv>(some);
  }
}

/// Few rows, and scores with a cap, go through vectors.
template <class Kv, Element kElement>
inline void attend_tiles(const AttentionTile& tile) {
  const int64_t num_rows = tile.row_end - tile.row_begin;
  if (num_rows <= kVectorRows || tile.cap > 0) return attend_vectors<Kv>(tile);
  TileAttention work;
  work.tile = &tile;
  work.element = kElement;
  work.dim = tile.head_dim;
  work.steps = depth_steps(tile.head_dim);
  work.factor = tile.scale * kLog2E;
  start_rows(work.rows, tile, 0);
  start_query_panels(work, num_rows);
  const TileSession session;
  const int64_t end = work.rows[num_rows - 1].end;
  for (int64_t begin = work.rows[0].begin; begin < end;) {
    const AttentionBlock block = {begin, block_end(begin, end, kTilePositions) - begin};
    const Kv* keys = keys_at<Kv>(tile, begin);
    const Kv* values = values_at<Kv>(tile, begin);
    work.block_keys = keys;
    work.block_values = values;
    pack_keys(work, block, keys);
    work.any_special_value = false;
    for (int64_t step = 0; step * kTileDepth < block.count; ++step) {
      pack_values(work, block, values, step);
    }
    TileScores(work, block).run();
    add_tile_values(work, block);
    begin += block.count;
  }
  for (int64_t g = 0; g < work.num_panels; ++g) {
    const int64_t rows = num_rows - g * kQueryPanelRows;
    end_query_panel(work, work.query_panels[g], rows < kQueryPanelRows ? rows : kQueryPanelRows);
  }
}

constexpr VectorKernels with_tiles(VectorKernels table) {
  table.attention_rows = kTileAttentionRows;
  table.attention_scratch_floats = &tile_attention_scratch_floats;
  table.attend[0] = &attend_tiles<float, Element::kF32>;
  table.attend[1] = &attend_tiles<KvF16, Element::kF16>;
  table.attend[2] = &attend_tiles<KvBF16, Element::kBF16>;
  table.attend[3] = &attend_vectors<KvE4M3>;
  return table;
}
