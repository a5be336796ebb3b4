// The exponential, norms, rotary embedding and gates. Included inside the namespace of an
// instruction set, after its vector_math.h.

/// x = e^x within 3u of the exact value, u = 2^-24, and half of the smallest denormal number, of
/// several vectors step by step: one alone waits for each of its instructions.
///
/// x = n ln 2 + r, n an integer, |r| < 0.3466. n * kHigh is exact (kHigh has nine bits, n eight)
/// and so is x - n * kHigh; n * kLow brings at most 0.02 u where fma() rounds twice, the
/// subtraction 0.35 u and kLow itself nothing to speak of. The polynomial is the Taylor series to
/// r^7 / 7!; what it leaves out is below r^8 / 8! * 1.05 < 0.1 u of e^r > 0.7. Its last addition
/// rounds by u at most (e^r >= 1) or 0.71 u (below); the rounding of what is added, at most
/// 0.5 * 1.2 u and 0.42 u more where fma() rounds twice, comes in times r; those before it in times
/// r^2 and less: 0.2 u. Together below 2.5 u. 2^n is exact unless the result is denormal.
template <int kVectors>
[[gnu::always_inline]] inline void exponentials(Float (&x)[kVectors]) {
  constexpr float kHigh = 0.693359375F;             // 355 / 512
  constexpr float kLow = -2.12194440054690581e-4F;  // ln 2 - kHigh
  constexpr float kRest[] = {1.0F / 720, 1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1, 1};
  Float n[kVectors];
  Float p[kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; ++i) {
    // Below, e^x is less than half of the smallest denormal number; above, infinite. NaN stays.
    x[i] = min(broadcast(89), max(broadcast(-104), x[i]));
    n[i] = nearest(mul(x[i], broadcast(1.44269504088896341F)));
    x[i] = fnma(n[i], broadcast(kLow), fnma(n[i], broadcast(kHigh), x[i]));
    p[i] = broadcast(1.0F / 5040);
  }
#pragma GCC unroll 8
  for (const float coefficient : kRest) {
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) p[i] = fma(p[i], x[i], broadcast(coefficient));
  }
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; ++i) x[i] = times_power_of_two(p[i], n[i]);
}

inline Float exponential(Float x) {
  Float one[1] = {x};
  exponentials(one);
  return one[0];
}

inline float exponential_of_one(float x) {
  return first_lane(exponential(broadcast(x)));
}

inline void exp(float* y, const float* x, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, exponential(load(x + i)));
  if (i < n) store_part(y + i, exponential(load_part(x + i, n - i)), n - i);
}

/// 1 / sqrt(mean + eps)
inline float inverse_rms(double squares, int64_t n, float eps) {
  const auto mean = static_cast<float>(squares / static_cast<double>(n));
  return 1.0F / square_root(mean + eps);
}

inline double sum_of_squares(const float* x, int64_t n) {
  Doubles sums = no_doubles();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) sums = add_squares(sums, load(x + i));
  if (i < n) sums = add_squares(sums, load_part(x + i, n - i));
  return sum(sums);
}

/// y = x * factor * weight, from left to right
inline void scale_row(float* y, const float* x, float factor, const float* weight, int64_t n) {
  const Float f = broadcast(factor);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, mul(mul(load(x + i), f), load(weight + i)));
  if (i == n) return;
  const Float scaled = mul(load_part(x + i, n - i), f);
  store_part(y + i, mul(scaled, load_part(weight + i, n - i)), n - i);
}

inline void rms_norm(float* y, const float* x, const float* weight, int64_t n, float eps) {
  scale_row(y, x, inverse_rms(sum_of_squares(x, n), n, eps), weight, n);
}

inline void add_rms_norm(float* y, float* x, const float* delta, const float* weight, int64_t n,
                         float eps) {
  Doubles sums = no_doubles();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Float v = add(load(x + i), load(delta + i));
    store(x + i, v);
    sums = add_squares(sums, v);
  }
  if (i < n) {
    const Float v = add(load_part(x + i, n - i), load_part(delta + i, n - i));
    store_part(x + i, v, n - i);
    sums = add_squares(sums, v);
  }
  scale_row(y, x, inverse_rms(sum(sums), n, eps), weight, n);
}

/// The pair (a, b) turned.
struct Pair {
  Float a, b;
};
inline Pair turned(Pair v, Float cos, Float sin) {
  return {fnma(v.b, sin, mul(v.a, cos)), fma(v.a, sin, mul(v.b, cos))};
}

inline void norm_rotate(float* out, const float* x, const float* weight, float eps,
                        const float* cos, const float* sin, int64_t n) {
  const int64_t half = n / 2;
  if (weight != nullptr) {
    rms_norm(out, x, weight, n, eps);
    x = out;
  }
  int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const Pair v = turned({load(x + i), load(x + half + i)}, load(cos + i), load(sin + i));
    store(out + i, v.a);
    store(out + half + i, v.b);
  }
  if (const int64_t left = half - i; left > 0) {
    const Pair v = turned({load_part(x + i, left), load_part(x + half + i, left)},
                          load_part(cos + i, left), load_part(sin + i, left));
    store_part(out + i, v.a, left);
    store_part(out + half + i, v.b, left);
  }
  if (n % 2 != 0) out[n - 1] = x[n - 1];
}

/// x / (1 + e^-(alpha x))
inline Float swish(Float x, Float alpha) {
  const Float one = broadcast(1);
  return div(x, add(one, exponential(fnma(x, alpha, zero()))));
}

/// x / (1 + e^-x) of several vectors at a time.
constexpr int kSwishVectors = 4;
[[gnu::always_inline]] inline void swish(Float (&x)[kSwishVectors]) {
  const Float one = broadcast(1);
  Float power[kSwishVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kSwishVectors; ++i) power[i] = fnma(x[i], one, zero());
  exponentials(power);
#pragma GCC unroll 4
  for (int i = 0; i < kSwishVectors; ++i) x[i] = div(x[i], add(one, power[i]));
}

inline void silu_gate(float* gate, const float* up, int64_t n) {
  const Float one = broadcast(1);
  int64_t i = 0;
  for (; i + kSwishVectors * kLanes <= n; i += kSwishVectors * kLanes) {
    Float g[kSwishVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kSwishVectors; ++v) g[v] = load(gate + i + v * kLanes);
    swish(g);
#pragma GCC unroll 4
    for (int v = 0; v < kSwishVectors; ++v) {
      store(gate + i + v * kLanes, mul(g[v], load(up + i + v * kLanes)));
    }
  }
  for (; i + kLanes <= n; i += kLanes) {
    store(gate + i, mul(swish(load(gate + i), one), load(up + i)));
  }
  if (i == n) return;
  const Float g = swish(load_part(gate + i, n - i), one);
  store_part(gate + i, mul(g, load_part(up + i, n - i)), n - i);
}

/// As 1 + tanh(z) = 2 / (1 + e^-2z), the factor of x is one of swish.
inline Float gelu(Float x) {
  const Float one = broadcast(1);
  const Float cubic = fma(mul(x, x), broadcast(0.044715f), one);
  const Float twice = mul(mul(x, cubic), broadcast(1.5957691216f));  // 2 sqrt(2 / pi)
  return div(x, add(one, exponential(sub(zero(), twice))));
}

inline void gelu_gate(float* gate, const float* up, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    store(gate + i, mul(gelu(load(gate + i)), load(up + i)));
  }
  if (i == n) return;
  const Float g = gelu(load_part(gate + i, n - i));
  store_part(gate + i, mul(g, load_part(up + i, n - i)), n - i);
}

/// cap tanh(x / cap), of which `twice` is -2 / cap: tanh(z) = 2 / (1 + e^-2z) - 1. Small scores
/// lose what 1 has of bits, 2^-24 cap.
inline Float capped(Float x, Float twice, Float cap) {
  const Float one = broadcast(1);
  const Float tanh = sub(div(broadcast(2), add(one, exponential(mul(x, twice)))), one);
  return mul(cap, tanh);
}

inline void soft_cap(float* x, int64_t n, float factor, float cap) {
  const Float twice = broadcast(-2 * factor / cap);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(x + i, capped(load(x + i), twice, broadcast(cap)));
  if (i == n) return;
  store_part(x + i, capped(load_part(x + i, n - i), twice, broadcast(cap)), n - i);
}

inline void clamped_swiglu(float* out, const float* gate_up, int64_t n, float alpha, float limit,
                           float up_offset) {
  const auto gated = [alpha, limit, up_offset](const float* p) {
    Float gate;
    Float up;
    load_alternating(p, &gate, &up);
    // NaN is the second argument and stays.
    gate = min(broadcast(limit), gate);
    up = min(broadcast(limit), max(broadcast(-limit), up));
    return mul(swish(gate, broadcast(alpha)), add(up, broadcast(up_offset)));
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, gated(gate_up + 2 * i));
  if (i == n) return;
  float last[2 * kLanes] = {};
  for (int64_t k = 0; k < 2 * (n - i); ++k) last[k] = gate_up[2 * i + k];
  store_part(out + i, gated(last), n - i);
}

/// Flat, so that no function of others is compiled here, and fma() is an instruction.
[[gnu::flatten]] inline uint64_t weigh_tokens(TokenCandidate* candidates, int64_t n, float best,
                                              double temperature) {
  uint64_t total = 0;
  for (int64_t i = 0; i < n; ++i) {
    candidates[i].weight = token_weight(candidates[i].logit, best, temperature);
    total += candidates[i].weight;
  }
  return total;
}
