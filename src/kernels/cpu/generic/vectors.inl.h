// y += a x. Included inside the namespace of an instruction set, after
// scaling.inl.h.

/// The `count` < kLanes floats at p, then zeros.
inline Float load_first(const float* p, int64_t count) {
  float lanes[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) lanes[i] = p[i];
  return load(lanes);
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
