// The words of vec.h that AVX2 and AVX-512 have alike, by operators that compilers know for vectors
// and make the same instructions of as of intrinsics. Included inside the namespace of an
// instruction set, where Float and Int, 32-bit integers, are registers.

// Registers: what a loop keeps in accumulators must leave a few for operands.
constexpr int kGemvRows = 4;       // M = 1 and 2
constexpr int kGemvRowsManyM = 2;  // M = 3 and 4
constexpr int kGemmTileRows = 3;   // activations

// Whether the rows that gemv takes together are neighbours.
constexpr bool kGemvRowsAdjoin = true;

// Into which cache weights, keys and values are prefetched, and how far. The first level has few
// places for lines on their way, which alone would halve the bandwidth of a core (Zen 4: 16 against
// 27 GB/s).
constexpr int kPrefetchLevel = 2;
constexpr int64_t kGemvPrefetchDistance = 4096;

inline Float zero() {
  return Float{};
}
inline Float add(Float a, Float b) {
  return a + b;
}
inline Float sub(Float a, Float b) {
  return a - b;
}
inline Float mul(Float a, Float b) {
  return a * b;
}
inline Float div(Float a, Float b) {
  return a / b;
}

inline Int zero_int() {
  return Int{};
}
inline Int bits_of(Float v) {
  return reinterpret_cast<Int>(v);
}
inline Float float_of_bits(Int bits) {
  return reinterpret_cast<Float>(bits);
}
