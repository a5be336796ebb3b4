// What a gated delta net has beside products and norms: its convolution, the recurrence over tokens
// and sigmoid gates. Included inside the namespace of an instruction set, after elementwise.inl.h.
//
// The recurrence takes a tile of columns of the state through all tokens while it is in the first
// level of the cache: [keys = 128][32] floats are 16 KiB. For a token there are two passes over it,
//
//   read     sums += k_i S_i                                  one load and one product a number
//   write    S_i = decay S_i + k_i d, y += q_i S_i            one load, three products, one store
//
// which are four products for each number of the state. The chunked form, which makes products of
// matrices of it, has as many where chunks are half as long as heads (for 64 tokens and heads of
// 128: S k, S q and k d cost three, what tokens of a chunk have to do with each other another one
// and the inverse of a triangle), so on vectors it gains nothing; and in this one a token has the
// same bits however a prompt is cut.

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

/// One token, for kVectors vectors of columns; of the only one `last` columns where it is less than
/// a vector.
template <int kVectors, bool kIsPart>
[[gnu::always_inline]] inline void delta_token(const DeltaRule& rule, int64_t token, int64_t column,
                                               int64_t last) {
  const auto get = [last](const float* p) {
    if constexpr (kIsPart) return load_part(p, last);
    return load(p);
  };
  const auto put = [last](float* p, Float v) {
    if constexpr (kIsPart) return store_part(p, v, last);
    store(p, v);
  };
  const float* const q = rule.q + token * rule.key_stride;
  const float* const k = rule.k + token * rule.key_stride;
  float* const state = rule.state + column;
  // Rows by turns, so that sums do not wait for each other.
  Float even[kVectors];
  Float odd[kVectors];
  for (int i = 0; i < kVectors; ++i) even[i] = odd[i] = zero();
  int64_t row = 0;
  for (; row + 2 <= rule.keys; row += 2) {
    const float* const s = state + row * rule.state_stride;
    const Float k0 = broadcast(k[row]);
    const Float k1 = broadcast(k[row + 1]);
    for (int i = 0; i < kVectors; ++i) {
      even[i] = fma(k0, get(s + i * kLanes), even[i]);
      odd[i] = fma(k1, get(s + rule.state_stride + i * kLanes), odd[i]);
    }
  }
  if (row < rule.keys) {
    const float* const s = state + row * rule.state_stride;
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
  for (row = 0; row < rule.keys; ++row) {
    float* const s = state + row * rule.state_stride;
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

inline void delta_rule(const DeltaRule& rule) {
  int64_t column = 0;
  for (; column + kDeltaVectors * kLanes <= rule.columns; column += kDeltaVectors * kLanes) {
    for (int64_t t = 0; t < rule.tokens; ++t) delta_token<kDeltaVectors, false>(rule, t, column, 0);
  }
  for (; column + kLanes <= rule.columns; column += kLanes) {
    for (int64_t t = 0; t < rule.tokens; ++t) delta_token<1, false>(rule, t, column, 0);
  }
  if (column == rule.columns) return;
  for (int64_t t = 0; t < rule.tokens; ++t) {
    delta_token<1, true>(rule, t, column, rule.columns - column);
  }
}
