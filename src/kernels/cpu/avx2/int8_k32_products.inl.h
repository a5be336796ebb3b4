// The product of int8_products.inl.h for codes of four bits in groups of a multiple of 32: a lane
// has the sum of a k32, so that a quarter as many sums become floats and are scaled. Included
// inside the namespace of an instruction set, after that file.
//
//   block of 256 inputs    quarter 0      1      2      3         32 bytes of codes each
//   k32                    0      1    2    3  4    5  6    7
//   sums of 4 products     8      8    8    8  8    8  8    8     words, a vector for each quarter
//   sums of 16 products    2      2    2    2  2    2  2    2     words, one vector
//   sums of 32 products    1      1    1    1  1    1  1    1     lane i: k32 number i
//
// Codes are at most 15 and activations 127, so that sums of 16 products are below 2^15.
//
// A block of kPackedInt8K32, in bytes: q of each quarter as kPackedInt8x1 has them; sums of q of
// each k32, negated; scales; sums as floats. The bound is that of kPackedInt8x1, with fewer blocks.

constexpr int64_t kQuarters = 4;
constexpr int64_t kK32Inputs = kQuarters * kBlockInputs;
constexpr int64_t kK32Sums = 2 * kQuarters * kVectorBytes;
constexpr int64_t kK32Scales = kK32Sums + kVectorBytes;
constexpr int64_t kK32FloatSums = kK32Scales + kVectorBytes;
constexpr int64_t kK32BlockBytes = kK32FloatSums + kVectorBytes;

inline int64_t packed_k32_bytes(int64_t k) {
  const int64_t bytes = (k + kK32Inputs - 1) / kK32Inputs * kK32BlockBytes;
  return (bytes + 63) / 64 * 64;
}

/// Lanes 0 and 4, which are those of two k32.
inline void store_two_k32(uint8_t* to, Float v) {
  const __m128 two = _mm_unpacklo_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  _mm_storel_pi(reinterpret_cast<__m64*>(to), two);
}

/// Quarter i of a block: v[j] holds element j of each run of 8.
inline void pack_quarter(uint8_t* block, int64_t i, const Float* v) {
  const BlockBytes bytes = bytes_of_block(v);
  store_int(block + 2 * i * kVectorBytes, bytes.words[0]);
  store_int(block + (2 * i + 1) * kVectorBytes, bytes.words[1]);
  const Float sums = sum_of_4_lanes(int_to_float(bytes.sums));
  store_two_k32(block + kK32Sums + 8 * i, float_of_bits(round_to_int(sub(zero(), sums))));
  store_two_k32(block + kK32Scales + 8 * i, bytes.scale);
  store_two_k32(block + kK32FloatSums + 8 * i, mul(sums, bytes.scale));
}
inline void pack_int8_k32(uint8_t* packed, const float* x, int64_t, const uint32_t* gather,
                          int64_t k) {
  alignas(64) float inputs[kBlockInputs];
  for (int64_t begin = 0; begin < k; begin += kK32Inputs, packed += kK32BlockBytes) {
    __builtin_memset(packed, 0, static_cast<unsigned long>(kK32BlockBytes));
    for (int64_t i = 0; i < kQuarters && begin + i * kBlockInputs < k; ++i) {
      Float v[8];
      transpose_k8(block_inputs(x, gather, begin + i * kBlockInputs, k, inputs), v);
      pack_quarter(packed, i, v);
    }
  }
}
constexpr PackedLayout kPackedInt8K32 = {
    .name = "int8 k32", .bytes = &packed_k32_bytes, .pack = &pack_int8_k32};

/// The 32 bytes at p, in a register: the compiler would load them again for each use.
inline Int load_once(const uint8_t* p) {
  Int v = load_int(p);
  asm("" : "+x"(v));
  return v;
}

/// Sums of words of two quarters: k32 0 and 2 in the lower half of the vector, 1 and 3 above.
inline Int add_quarters(Int a, Int b) {
  return _mm256_add_epi16(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}
/// Adds two of these up: lane i has k32 number i.
inline Int add_halves(Int a, Int b) {
  const Float first = float_of_bits(a);
  const Float last = float_of_bits(b);
  const Int words = _mm256_add_epi16(bits_of(_mm256_shuffle_ps(first, last, 0x88)),
                                     bits_of(_mm256_shuffle_ps(first, last, 0xDD)));
  const Lanes in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return _mm256_permutevar8x32_epi32(sum_of_halves(words), in_order);
}

struct Int8K32Product {
  using Bytes = K8Bytes<Format::kU4>;
  using Decoder = Bytes;
  using Codes = const uint8_t*;
  static constexpr const char* kName = "gemv/int8-k32";
  static constexpr const PackedLayout& kLayout = kPackedInt8K32;
  static constexpr int64_t kActivationBytes = kK32BlockBytes;
  static constexpr int64_t kBlockBytes = kQuarters * kVectorBytes;
  static constexpr int kLaneInputs = 32;
  static constexpr float kFactor = 1;
  static constexpr int kRowsManyM = kGemvRowsManyM;

  static Codes codes_at(const uint8_t* p, const float*) { return p; }
  static const float* sums(const uint8_t* x) {
    return reinterpret_cast<const float*>(x + kK32FloatSums);
  }
  template <int kM, int kRows>
  [[gnu::always_inline]] static void add(const Codes (&codes)[kRows], const uint8_t* const (&x)[kM],
                                         Float (&part)[kRows][kM]) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      Int halves[2][kM];
      add_half<kM>(codes[r], x, 0, halves[0]);
      add_half<kM>(codes[r], x, 1, halves[1]);
#pragma GCC unroll 4
      for (int m = 0; m < kM; ++m) {
        const Int center = shift_left<Bytes::kShift>(load_int(x[m] + kK32Sums));
        const Int sum = add_int(add_halves(halves[0][m], halves[1][m]), center);
        const Float scale = load(reinterpret_cast<const float*>(x[m] + kK32Scales));
        part[r][m] = mul(int_to_float(sum), scale);
      }
    }
  }

 private:
  /// Quarters 2 * half and the next.
  template <int kM>
  [[gnu::always_inline]] static void add_half(const uint8_t* codes, const uint8_t* const (&x)[kM],
                                              int64_t half, Int (&sums)[kM]) {
    const ByteCodes first = Bytes::unpack(load_once(codes + 2 * half * kVectorBytes));
    const ByteCodes last = Bytes::unpack(load_once(codes + (2 * half + 1) * kVectorBytes));
#pragma GCC unroll 4
    for (int m = 0; m < kM; ++m) {
      const uint8_t* q = x[m] + 4 * half * kVectorBytes;
      sums[m] = add_quarters(add_products(first, q), add_products(last, q + 2 * kVectorBytes));
    }
  }
  [[gnu::always_inline]] static Int add_products(const ByteCodes& codes, const uint8_t* q) {
    return _mm256_add_epi16(_mm256_maddubs_epi16(codes.even, load_int(q)),
                            _mm256_maddubs_epi16(codes.odd, load_int(q + kVectorBytes)));
  }
};
