// The products of instruction sets with bf16 dot products. Included inside the namespace of such an
// instruction set, after products.inl.h.
//
//   HiLoProduct<element>   x = hi + lo, both bf16: |error| <= 2^-16 |x| (and 2^-126, below
//                          which bf16 counts as zero)
// (A codebook that bf16 holds up to a factor only has |error| <= 2^-17 |weight| besides: kbit 2.)
//
// A block is four vectors of two bf16 for each lane, x[8 i + j] and x[8 i + 4 + j], twice: hi,
// then lo; then the sums of the runs of 8.
//
// A dot product adds two products to each lane, so that half as many instructions do as with
// floats; decoding, too, yields twice as many weights at a time.

constexpr int kSplits = 2;
constexpr int64_t kHiLoBlockBytes = (4 * kSplits + 1) * kVectorBytes;

/// One block of kPackedHiLo from runs of 8 that are transposed. The sums are those of what the
/// bf16 stand for.
inline void pack_hi_lo(uint8_t* packed, int64_t, const Float* v) {
  Float rest[8];
  Float sum = zero();
  for (int j = 0; j < 8; ++j) rest[j] = v[j];
  for (int t = 0; t < kSplits; ++t) {
    for (int j = 0; j < 4; ++j) {
      const Bf16x2 both = round_to_bf16x2(rest[j], rest[4 + j]);
      store_bf16x2(packed + (4 * t + j) * kVectorBytes, both);
      sum = add(sum, add(low_of_bf16x2(both), high_of_bf16x2(both)));
      rest[j] = sub(rest[j], low_of_bf16x2(both));
      rest[4 + j] = sub(rest[4 + j], high_of_bf16x2(both));
    }
  }
  store(reinterpret_cast<float*>(packed + kSplits * 4 * kVectorBytes), sum);
}
constexpr PackedLayout kPackedHiLo = {.name = "hi-lo",
                                      .keeps_bf16 = true,
                                      .bytes = &packed_bytes<kHiLoBlockBytes>,
                                      .pack = &pack_k8<kHiLoBlockBytes, &pack_hi_lo>};

template <Format kElement>
struct HiLoProduct {
  static_assert(has_bf16<kElement>());
  using E = Bf16x2Element<kElement>;
  using Decoder = E;
  using Codes = typename E::Codes;
  static constexpr const char* kName = "gemv/hi-lo";
  static constexpr const PackedLayout& kLayout = kPackedHiLo;
  static constexpr int64_t kActivationBytes = kHiLoBlockBytes;
  static constexpr int64_t kBlockBytes = E::kBits * kLanes;
  static constexpr int kLaneInputs = 8;
  static constexpr float kFactor = Bf16Codebook<kElement>::kFactor;
  static constexpr int kRowsManyM = kGemvRowsManyM;

  static Codes codes_at(const uint8_t* p, const float*) { return E::load(p); }
  static const float* sums(const uint8_t* x) {
    return reinterpret_cast<const float*>(x + kSplits * 4 * kVectorBytes);
  }
  template <int kM, int kRows>
  [[gnu::always_inline]] static void add(const Codes (&codes)[kRows], const uint8_t* const (&x)[kM],
                                         Float (&part)[kRows][kM]) {
    // An accumulator for each split: with one, each addition would wait for the one before it (6
    // cycles).
    Float acc[kSplits][kRows][kM];
    add_vector<0, kM, kRows>(codes, x, acc);
    add_vector<1, kM, kRows>(codes, x, acc);
    add_vector<2, kM, kRows>(codes, x, acc);
    add_vector<3, kM, kRows>(codes, x, acc);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int m = 0; m < kM; ++m) part[r][m] = plus(acc[0][r][m], acc[1][r][m]);
    }
  }

 private:
  template <int j, int kM, int kRows>
  [[gnu::always_inline]] static void add_vector(const Codes (&codes)[kRows],
                                                const uint8_t* const (&x)[kM],
                                                Float (&acc)[kSplits][kRows][kM]) {
    Bf16x2 values[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) values[r] = E::template value<j>(codes[r]);
#pragma GCC unroll 4
    for (int m = 0; m < kM; ++m) {
#pragma GCC unroll 2
      for (int t = 0; t < kSplits; ++t) {
        const Bf16x2 inputs = load_bf16x2(x[m] + (4 * t + j) * kVectorBytes);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          Float& one = acc[t][r][m];
          one = dot_bf16x2(j == 0 ? zero() : one, values[r], inputs);
        }
      }
    }
  }
};
