// The products of instruction sets with bf16 dot products. Included inside the namespace of such an
// instruction set, after products.inl.h.
//
//   PairProduct<element, 1>   activations rounded to bf16: |error| <= 2^-8 |x| for each
//   PairProduct<element, 2>   x = high + low, both bf16: |error| <= 2^-16 |x| (and 2^-126, below
//                             which bf16 counts as zero)
// (A codebook that bf16 holds up to a factor only has |error| <= 2^-17 |weight| besides: kbit 2.)
//
// A dot product adds two products to each lane, so that half as many instructions do as with
// floats; decoding, too, yields twice as many weights at a time.

template <Format kElement, int kTerms>
struct PairProduct {
  static_assert(has_pairs<kElement>());
  using E = PairElement<kElement>;
  using Decoder = E;
  using Codes = typename E::Codes;
  static constexpr ActivationOrder kOrder =
      kTerms == 1 ? ActivationOrder::kPairs : ActivationOrder::kSplitPairs;
  static constexpr int64_t kActivationBytes = activation_bytes(kOrder);
  static constexpr int64_t kBlockBytes = E::kBits * kLanes;
  static constexpr float kFactor = PairCodebook<kElement>::kFactor;
  static constexpr int kRowsManyM = kGemvRowsManyM;

  static Codes codes_at(const uint8_t* p) { return E::load(p); }
  static const float* sums(const uint8_t* x) {
    return reinterpret_cast<const float*>(x + kTerms * 4 * kVectorBytes);
  }
  template <int kM, int kRows>
  [[gnu::always_inline]] static void add(const Codes (&codes)[kRows], const uint8_t* const (&x)[kM],
                                         Float (&part)[kRows][kM]) {
    // Two sums for each part: with one, each addition would wait for the one before it (6 cycles).
    Float sums[2][kRows][kM];
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
                                                Float (&sums)[2][kRows][kM]) {
    Pairs values[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) values[r] = E::template value<j>(codes[r]);
#pragma GCC unroll 4
    for (int m = 0; m < kM; ++m) {
#pragma GCC unroll 2
      for (int t = 0; t < kTerms; ++t) {
        const int chain = kTerms == 2 ? t : j % 2;
        const bool first = kTerms == 2 ? j == 0 : j < 2;
        const Pairs inputs = load_pairs(x[m] + (4 * t + j) * kVectorBytes);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          Float& sum = sums[chain][r][m];
          sum = dot_pairs(first ? zero() : sum, values[r], inputs);
        }
      }
    }
  }
};
