// Packing of activations, and the vector operations of attention. Included inside the namespace of
// an instruction set, after scaling.inl.h.

inline int64_t packed_floats(int64_t k, ActivationOrder order) {
  return (k + kBlockInputs - 1) / kBlockInputs * block_floats(order);
}

/// The inputs [begin, begin + kBlockInputs) as they lie in x, or gathered and filled up with zeros
/// into `block`.
inline const float* block_inputs(const float* x, const uint32_t* gather, int64_t begin, int64_t k,
                                 float* block) {
  const int64_t count = k - begin < kBlockInputs ? k - begin : kBlockInputs;
  if (gather == nullptr && count == kBlockInputs) return x + begin;
  for (int64_t i = 0; i < count; ++i) {
    block[i] = x[gather == nullptr ? begin + i : static_cast<int64_t>(gather[begin + i])];
  }
  for (int64_t i = count; i < kBlockInputs; ++i) block[i] = 0;
  return block;
}

inline void pack(float* packed, const float* x, const uint32_t* gather, int64_t k,
                 ActivationOrder order) {
  alignas(64) float block[kBlockInputs];
  for (int64_t begin = 0; begin < k; begin += kBlockInputs) {
    const float* inputs = block_inputs(x, gather, begin, k, block);
    Float v[8];
    if (order == ActivationOrder::kOctets) {
      transpose_octets(inputs, v);
      const Float first = add(add(v[0], v[1]), add(v[2], v[3]));
      const Float second = add(add(v[4], v[5]), add(v[6], v[7]));
      store(packed + kBlockInputs, add(first, second));
    } else {
      for (int j = 0; j < 8; ++j) v[j] = load(inputs + j * kLanes);
    }
    for (int j = 0; j < 8; ++j) store(packed + j * kLanes, v[j]);
    packed += block_floats(order);
  }
}

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
