// Products: how one block of codes meets one block of activations. Included inside the namespace
// of an instruction set, after pack.inl.h. The mainloops take one of these, so that a number
// format, the arithmetic and the scales can be combined freely.
//
//   FloatProduct   float32 activations, eight fused multiply-adds per lane
// and where there are instructions for them HiLoProduct (bf16x2_products.inl.h) and Int8x3Product
// (int8x3_products.inl.h).

template <class P>
concept IsProduct = requires(const uint8_t* p, const typename P::Codes (&codes)[1],
                             const uint8_t* const (&x)[1], Float (&part)[1][1],
                             const float* codebook) {
  requires IsDecoder<typename P::Decoder>;                  // whose load() reads the codes
  requires IsLayout<P::kLayout>;                            // of the activations
  requires(P::kActivationBytes > 0 && P::kBlockBytes > 0);  // of a block of them, and of codes
  requires(P::kLaneInputs % 8 == 0);                        // of a row in a lane of a block
  requires(P::kFactor > 0);                                 // that results are to be multiplied by
  requires(P::kRowsManyM > 0);  // rows of weights that go through together with M = 3 and 4
  requires(*P::kName != '\0');  // of the variant that multiplies each row of activations so
  { P::codes_at(p, codebook) } -> IsSame<typename P::Codes>;
  { P::sums(p) } -> IsSame<const float*>;  // where the sums of the inputs of each lane lie
  // part[r][m] = sum over the inputs of a lane of (element - centre) * x
  P::template add<1, 1>(codes, x, part);
};

template <class E>
struct FloatProduct {
  static_assert(IsElement<E>,
                "An Element decodes one block of codes to 8 vectors of floats: see "
                "IsElement in concepts.inl.h");
  using Decoder = E;
  using Codes = typename E::Codes;
  static constexpr const char* kName = "gemv/f32";
  static constexpr const PackedLayout& kLayout = *kPackedFloats<E>;
  static constexpr int64_t kActivationBytes = kFloatBlockBytes<E>;
  static constexpr int64_t kBlockBytes = E::kBits * kLanes;
  static constexpr int kLaneInputs = 8;
  static constexpr float kFactor = 1;
  static constexpr int kRowsManyM = kGemvRowsManyM;

  static Codes codes_at(const uint8_t* p, const float* codebook) {
    return load_codes<E>(p, codebook);
  }
  static const float* sums(const uint8_t* x) {
    return reinterpret_cast<const float*>(x) + kBlockInputs;
  }
  template <int kM, int kRows>
  [[gnu::always_inline]] static void add(const Codes (&codes)[kRows], const uint8_t* const (&x)[kM],
                                         Float (&part)[kRows][kM]) {
    add_vector<0, kM, kRows>(codes, x, part);
    add_vector<1, kM, kRows>(codes, x, part);
    add_vector<2, kM, kRows>(codes, x, part);
    add_vector<3, kM, kRows>(codes, x, part);
    add_vector<4, kM, kRows>(codes, x, part);
    add_vector<5, kM, kRows>(codes, x, part);
    add_vector<6, kM, kRows>(codes, x, part);
    add_vector<7, kM, kRows>(codes, x, part);
  }

 private:
  template <int j, int kM, int kRows>
  [[gnu::always_inline]] static void add_vector(const Codes (&codes)[kRows],
                                                const uint8_t* const (&x)[kM],
                                                Float (&part)[kRows][kM]) {
    Float values[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) values[r] = E::template value<j>(codes[r]);
#pragma GCC unroll 4
    for (int m = 0; m < kM; ++m) {
      const Float inputs = load(reinterpret_cast<const float*>(x[m]) + j * kLanes);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        part[r][m] = j == 0 ? mul(values[r], inputs) : fma(values[r], inputs, part[r][m]);
      }
    }
  }
};
