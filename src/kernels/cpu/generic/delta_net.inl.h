// What a gated delta net has beside products and norms: its convolution, the recurrence over tokens
// and sigmoid gates. Included inside the namespace of an instruction set, after elementwise.inl.h.
//
// The recurrence takes a tile of columns of the state through all tokens while it is in the first
// level of the cache: [keys = 128][32] floats are 16 KiB, with AVX-512 [128][64] 32. For a token
// there are two passes over it, the second one from the last row back, as that was read last:
//
//   read     sums += k_i S_i                                  one load and one product a number
//   write    S_i = decay S_i + k_i d, y += q_i S_i            one load, three products, one store
//
// of which a rule that does not correct has the second alone: its d is beta v.
//
// Rows of a state are 512 bytes apart, so those of a tile would share a half or a quarter of the
// sets of the cache, which do not hold them: for more than a few tokens the tile is copied to
// memory of its own, whose rows follow each other.
//
// A token has the same bits however a prompt is cut, which chunks of tokens have not
// (delta_chunks.inl.h).

inline void sigmoid_gate(float* y, const float* x, const float* gate, int64_t n) {
  const auto sigmoid_times = [](Float v, Float g) {
    return div(v, add(broadcast(1), exponential(sub(zero(), g))));
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, sigmoid_times(load(x + i), load(gate + i)));
  if (i == n) return;
  store_part(y + i, sigmoid_times(load_part(x + i, n - i), load_part(gate + i, n - i)), n - i);
}

inline void convolve_silu(float* y, const float* const* x, const float* const* filters,
                          int64_t taps, int64_t n) {
  const Float one = broadcast(1);
  int64_t i = 0;
  for (; i + kSwishVectors * kLanes <= n; i += kSwishVectors * kLanes) {
    Float sums[kSwishVectors];
    for (int v = 0; v < kSwishVectors; ++v) {
      sums[v] = mul(load(filters[0] + i + v * kLanes), load(x[0] + i + v * kLanes));
    }
    for (int64_t t = 1; t < taps; ++t) {
      const float* const filter = filters[t] + i;
      const float* const input = x[t] + i;
      for (int v = 0; v < kSwishVectors; ++v) {
        sums[v] = fma(load(filter + v * kLanes), load(input + v * kLanes), sums[v]);
      }
    }
    swish(sums);
    for (int v = 0; v < kSwishVectors; ++v) store(y + i + v * kLanes, sums[v]);
  }
  for (; i + kLanes <= n; i += kLanes) {
    Float sum = mul(load(filters[0] + i), load(x[0] + i));
    for (int64_t t = 1; t < taps; ++t) sum = fma(load(filters[t] + i), load(x[t] + i), sum);
    store(y + i, swish(sum, one));
  }
  if (i == n) return;
  Float sum = mul(load_part(filters[0] + i, n - i), load_part(x[0] + i, n - i));
  for (int64_t t = 1; t < taps; ++t) {
    sum = fma(load_part(filters[t] + i, n - i), load_part(x[t] + i, n - i), sum);
  }
  store_part(y + i, swish(sum, one), n - i);
}

/// Vectors of a row of the state that a tile has.
constexpr int kDeltaVectors = 4;

/// Fewer tokens than this do not pay for a copy of their tile.
constexpr int64_t kDeltaCopyTokens = 4;

/// Columns of a state: those of its first row, and floats from one row to the next.
struct StateTile {
  float* first;
  int64_t stride;
};

template <int kVectors>
inline void copy_state(const StateTile& to, const StateTile& from, int64_t rows) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int i = 0; i < kVectors; ++i) {
      store(to.first + row * to.stride + i * kLanes,
            load(from.first + row * from.stride + i * kLanes));
    }
  }
}

/// One token, for kVectors vectors of columns; of the only one `last` columns where it is less than
/// a vector.
template <int kVectors, bool kIsPart>
[[gnu::always_inline]] inline void delta_token(const DeltaRule& rule, const StateTile& tile,
                                               int64_t token, int64_t column, int64_t last) {
  const auto get = [=](const float* p) {
    if constexpr (kIsPart) return load_part(p, last);
    return load(p);
  };
  const auto put = [=](float* p, Float v) {
    if constexpr (kIsPart) return store_part(p, v, last);
    store(p, v);
  };
  const float* const q = rule.q + token * rule.key_stride;
  const float* const k = rule.k + token * rule.key_stride;
  // Rows by turns, so that sums do not wait for each other.
  Float even[kVectors];
  Float odd[kVectors];
  for (int i = 0; i < kVectors; ++i) even[i] = odd[i] = zero();
  int64_t row = 0;
  for (; rule.corrects && row + 2 <= rule.keys; row += 2) {
    const float* const s = tile.first + row * tile.stride;
    const Float k0 = broadcast(k[row]);
    const Float k1 = broadcast(k[row + 1]);
    for (int i = 0; i < kVectors; ++i) {
      even[i] = fma(k0, get(s + i * kLanes), even[i]);
      odd[i] = fma(k1, get(s + tile.stride + i * kLanes), odd[i]);
    }
  }
  if (rule.corrects && row < rule.keys) {
    const float* const s = tile.first + row * tile.stride;
    for (int i = 0; i < kVectors; ++i) {
      even[i] = fma(broadcast(k[row]), get(s + i * kLanes), even[i]);
    }
  }
  const Float decay = broadcast(rule.decay[token * rule.gate_stride]);
  const Float beta = broadcast(rule.beta[token * rule.gate_stride]);
  const float* const v = rule.v + token * rule.v_stride + column;
  Float d[kVectors];
  Float y[kVectors];
  for (int i = 0; i < kVectors; ++i) {
    d[i] = mul(beta, fnma(decay, add(even[i], odd[i]), get(v + i * kLanes)));
    y[i] = zero();
  }
  for (row = rule.keys - 1; row >= 0; --row) {
    float* const s = tile.first + row * tile.stride;
    const Float k0 = broadcast(k[row]);
    const Float q0 = broadcast(q[row]);
    for (int i = 0; i < kVectors; ++i) {
      const Float now = fma(k0, d[i], mul(decay, get(s + i * kLanes)));
      put(s + i * kLanes, now);
      y[i] = fma(q0, now, y[i]);
    }
  }
  float* const to = rule.y + token * rule.y_stride + column;
  for (int i = 0; i < kVectors; ++i) put(to + i * kLanes, y[i]);
}

/// All tokens, for kVectors vectors of columns.
template <int kVectors>
inline void delta_columns(const DeltaRule& rule, int64_t column) {
  static_assert(kVectors * kLanes <= kDeltaScratchColumns);
  const StateTile state = {rule.state + column, rule.state_stride};
  const bool copies = rule.scratch != nullptr && rule.tokens >= kDeltaCopyTokens;
  const StateTile tile = copies ? StateTile{rule.scratch, kVectors * kLanes} : state;
  if (copies) copy_state<kVectors>(tile, state, rule.keys);
  for (int64_t t = 0; t < rule.tokens; ++t) delta_token<kVectors, false>(rule, tile, t, column, 0);
  if (copies) copy_state<kVectors>(state, tile, rule.keys);
}

inline void delta_rule(const DeltaRule& rule) {
  int64_t column = 0;
  for (; column + kDeltaVectors * kLanes <= rule.columns; column += kDeltaVectors * kLanes) {
    delta_columns<kDeltaVectors>(rule, column);
  }
  for (; column + kLanes <= rule.columns; column += kLanes) delta_columns<1>(rule, column);
  if (column == rule.columns) return;
  const StateTile tile = {rule.state + column, rule.state_stride};
  for (int64_t t = 0; t < rule.tokens; ++t) {
    delta_token<1, true>(rule, tile, t, column, rule.columns - column);
  }
}
