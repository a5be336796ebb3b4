// The vector operations of attention. Included inside the namespace of an instruction set, after
// scaling.inl.h.

/// The `count` < kLanes floats at p, then zeros.
inline Float load_first(const float* p, int64_t count) {
  float lanes[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) lanes[i] = p[i];
  return load(lanes);
}

/// Four sums, because each addition waits for the one before it in its own sum only.
inline float dot(const float* a, const float* b, int64_t n) {
  Float acc[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) {
      acc[s] = fma(load(a + i + s * kLanes), load(b + i + s * kLanes), acc[s]);
    }
  }
  for (; i + kLanes <= n; i += kLanes) acc[0] = fma(load(a + i), load(b + i), acc[0]);
  if (i < n) acc[1] = fma(load_first(a + i, n - i), load_first(b + i, n - i), acc[1]);
  float sums[4];
  sum4(acc, sums);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

inline void axpy(float* y, float a, const float* x, int64_t n) {
  const Float factor = broadcast(a);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, fma(factor, load(x + i), load(y + i)));
  if (i == n) return;
  float lanes[kLanes];
  store(lanes, fma(factor, load_first(x + i, n - i), load_first(y + i, n - i)));
  for (int64_t k = 0; i + k < n; ++k) y[i + k] = lanes[k];
}
