// Keys and values as the cache stores them: f32, f16, bf16, and e4m3 with scales (kv_e4m3.h).
// Included inside the namespace of an instruction set, after its vector_math.h.

/// Numbers of the cache in 16 bits and in 8.
struct KvF16 {
  uint8_t bytes[2];
};
struct KvBF16 {
  uint8_t bytes[2];
};
struct KvE4M3 {
  uint8_t code;
};
template <class Kv>
constexpr bool kHasScales = sizeof(Kv) == sizeof(KvE4M3);

inline Float load_kv(const float* p) {
  return load(p);
}
inline Float load_kv(const KvF16* p) {
  return load_f16(p->bytes);
}
inline Float load_kv(const KvBF16* p) {
  return load_bf16(p->bytes);
}
/// 2^-8 times the elements.
inline Float load_kv(const KvE4M3* p) {
  return load_e4m3_as_f16(&p->code);
}
/// The first `count` < kLanes numbers at p, then zeros.
inline Float load_kv_part(const float* p, int64_t count) {
  return load_part(p, count);
}
template <class Kv>
inline Float load_kv_part(const Kv* p, int64_t count) {
  Kv numbers[kLanes] = {};
  __builtin_memcpy(numbers, p, static_cast<uint64_t>(count) * sizeof(Kv));
  return load_kv(numbers);
}

inline void store_kv_vector(float* p, Float v) {
  store(p, v);
}
inline void store_kv_vector(KvF16* p, Float v) {
  store_f16(p->bytes, v);
}
inline void store_kv_vector(KvBF16* p, Float v) {
  store_bf16(p->bytes, v);
}

template <class Kv>
inline void store_kv(uint8_t* y, uint8_t*, const float* x, int64_t n) {
  auto* to = reinterpret_cast<Kv*>(y);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_kv_vector(to + i, load(x + i));
  if (i == n) return;
  Kv numbers[kLanes];
  store_kv_vector(numbers, load_part(x + i, n - i));
  __builtin_memcpy(to + i, numbers, static_cast<uint64_t>(n - i) * sizeof(Kv));
}

inline uint32_t bits_of(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float float_of(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

template <>
inline void store_kv<KvE4M3>(uint8_t* y, uint8_t* scale, const float* x, int64_t n) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = bits_of(x[i]) & 0x7FFFFFFF;
    largest = magnitude > largest ? magnitude : largest;
  }
  const uint32_t code = e4m3::scale_of(largest);
  *scale = static_cast<uint8_t>(code);
  const float inverse = float_of(e4m3::inverse_bits(code));
  for (int64_t i = 0; i < n; ++i) y[i] = e4m3::encode(bits_of(x[i] * inverse));
}
