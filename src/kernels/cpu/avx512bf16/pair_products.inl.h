// The products of instruction sets with bf16 dot products. Included inside the namespace of such an
// instruction set, after products.inl.h.
//
//   PairProduct<element>   x = high + low, both bf16: |error| <= 2^-16 |x| (and 2^-126, below
//                          which bf16 counts as zero)
// (A codebook that bf16 holds up to a factor only has |error| <= 2^-17 |weight| besides: kbit 2.)
//
// A block is four vectors of two bf16 for each lane, x[8 i + j] and x[8 i + 4 + j], twice: high,
// then low; then the sums of the octets.
//
// A dot product adds two products to each lane, so that half as many instructions do as with
// floats; decoding, too, yields twice as many weights at a time.

constexpr int kPairTerms = 2;
constexpr int64_t kSplitPairBlockBytes = (4 * kPairTerms + 1) * kVectorBytes;

/// One block of kPackedSplitPairs from octets that are transposed. The sums are those of what the
/// pairs stand for.
inline void pack_split_pairs(uint8_t* packed, const Float* v) {
  Float rest[8];
  Float sum = zero();
  for (int j = 0; j < 8; ++j) rest[j] = v[j];
  for (int t = 0; t < kPairTerms; ++t) {
    for (int j = 0; j < 4; ++j) {
      const Pairs pair = round_to_pairs(rest[j], rest[4 + j]);
      store_pairs(packed + (4 * t + j) * kVectorBytes, pair);
      sum = add(sum, add(low_of_pairs(pair), high_of_pairs(pair)));
      rest[j] = sub(rest[j], low_of_pairs(pair));
      rest[4 + j] = sub(rest[4 + j], high_of_pairs(pair));
    }
  }
  store(reinterpret_cast<float*>(packed + kPairTerms * 4 * kVectorBytes), sum);
}
constexpr PackedLayout kPackedSplitPairs = {
    .name = "split pairs",
    .bytes = &packed_bytes<kSplitPairBlockBytes>,
    .pack = &pack_octets_of_row<kSplitPairBlockBytes, &pack_split_pairs>};

template <Format kElement>
struct PairProduct {
  static_assert(has_pairs<kElement>());
  using E = PairElement<kElement>;
  using Decoder = E;
  using Codes = typename E::Codes;
  static constexpr const char* kName = "gemv/hi-lo";
  static constexpr const PackedLayout& kLayout = kPackedSplitPairs;
  static constexpr int64_t kActivationBytes = kSplitPairBlockBytes;
  static constexpr int64_t kBlockBytes = E::kBits * kLanes;
  static constexpr float kFactor = PairCodebook<kElement>::kFactor;
  static constexpr int kRowsManyM = kGemvRowsManyM;

  static Codes codes_at(const uint8_t* p) { return E::load(p); }
  static const float* sums(const uint8_t* x) {
    return reinterpret_cast<const float*>(x + kPairTerms * 4 * kVectorBytes);
  }
  template <int kM, int kRows>
  [[gnu::always_inline]] static void add(const Codes (&codes)[kRows], const uint8_t* const (&x)[kM],
                                         Float (&part)[kRows][kM]) {
    // A sum for each term: with one, each addition would wait for the one before it (6 cycles).
    Float sums[kPairTerms][kRows][kM];
    add_vector<0, kM, kRows>(codes, x, sums);
    add_vector<1, kM, kRows>(codes, x, sums);
    add_vector<2, kM, kRows>(codes, x, sums);
    add_vector<3, kM, kRows>(codes, x, sums);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int m = 0; m < kM; ++m) part[r][m] = plus(sums[0][r][m], sums[1][r][m]);
    }
  }

 private:
  template <int j, int kM, int kRows>
  [[gnu::always_inline]] static void add_vector(const Codes (&codes)[kRows],
                                                const uint8_t* const (&x)[kM],
                                                Float (&sums)[kPairTerms][kRows][kM]) {
    Pairs values[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) values[r] = E::template value<j>(codes[r]);
#pragma GCC unroll 4
    for (int m = 0; m < kM; ++m) {
#pragma GCC unroll 2
      for (int t = 0; t < kPairTerms; ++t) {
        const Pairs inputs = load_pairs(x[m] + (4 * t + j) * kVectorBytes);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          Float& sum = sums[t][r][m];
          sum = dot_pairs(j == 0 ? zero() : sum, values[r], inputs);
        }
      }
    }
  }
};
