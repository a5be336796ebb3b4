// y += a x. Included inside the namespace of an instruction set.

inline void axpy(float* y, float a, const float* x, int64_t n) {
  const Float factor = broadcast(a);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, fma(factor, load(x + i), load(y + i)));
  const int64_t left = n - i;
  if (left > 0)
    store_part(y + i, fma(factor, load_part(x + i, left), load_part(y + i, left)), left);
}
