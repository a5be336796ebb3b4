// Products: how one block of codes meets one block of activations. Included inside the namespace
// of an instruction set, after pack.inl.h. The mainloops take one of these, so that a number
// format, the arithmetic and the scales can be combined freely.
//
//   FloatProduct   float32 activations, eight fused multiply-adds per lane
// and where there are instructions for them HiLoProduct (bf16x2_products.inl.h) and Int8x3Product
// (int8x3_products.inl.h).
//
// A product has
//   kName                      of the variant that multiplies each row of activations so
//   kLayout, kActivationBytes  how activations are packed, and the bytes of one block
//   kBlockBytes                of codes
//   kFactor                    what results are to be multiplied by
//   kRowsManyM                 rows of weights that go through together with M = 3 and 4
//   Decoder                    whose load() reads the codes
//   Codes codes_at(p)
//   add(codes, x, part)        part[r][m] = sum over the lane's run of 8 of (element - centre) * x
//   sums(x)                    where the sums of the runs of 8 lie

template <class E>
struct FloatProduct {
  using Decoder = E;
  using Codes = typename E::Codes;
  static constexpr const char* kName = "gemv/f32";
  static constexpr const PackedLayout& kLayout = *kPackedFloats<E>;
  static constexpr int64_t kActivationBytes = kFloatBlockBytes<E>;
  static constexpr int64_t kBlockBytes = E::kBits * kLanes;
  static constexpr float kFactor = 1;
  static constexpr int kRowsManyM = kGemvRowsManyM;

  static Codes codes_at(const uint8_t* p) { return E::load(p); }
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
