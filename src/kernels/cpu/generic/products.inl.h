// Products: how one block of codes meets one block of activations. Included inside the namespace
// of an instruction set, after scaling.inl.h. The mainloops take one of these, so that a number
// format, the arithmetic and the scales can be combined freely.
//
//   FloatProduct   float32 activations, eight fused multiply-adds per lane
//   ByteProduct    activations in 8 bits with a scale for each octet, exact integer sums
// and where there are instructions for them PairProduct (pair_products.inl.h) and TripleProduct
// (triple_products.inl.h).
//
// A product has
//   kOrder, kActivationBytes   how activations are packed, and the bytes of one block
//   kBlockBytes                of codes
//   kFactor                    what results are to be multiplied by
//   kRowsManyM                 rows of weights that go through together with M = 3 and 4
//   Decoder                    whose load() reads the codes
//   Codes codes_at(p)
//   add(codes, x, part)        part[r][m] = sum over the lane's octet of (element - centre) * x
//   sums(x)                    where the sums of the octets lie

template <class E>
struct FloatProduct {
  using Decoder = E;
  using Codes = typename E::Codes;
  static constexpr ActivationOrder kOrder = E::kOrder;
  static constexpr int64_t kActivationBytes = activation_bytes(kOrder);
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

/// What scales of octets are made from: v[j] holds element j of each.
struct LargestOfOctets {
  Float largest;  // magnitude
  Float poison;   // NaN where an input is NaN or infinite, else zero
};
inline LargestOfOctets largest_of_octets(const Float* v) {
  Float largest = magnitude(v[0]);
  Float poison = mul(v[0], zero());
  for (int j = 1; j < 8; ++j) {
    largest = max(largest, magnitude(v[j]));
    poison = fma(v[j], zero(), poison);
  }
  return {largest, poison};
}

/// Byte b of each lane: code 2 * b + h of its octet. Codes of an octet lie in the low bits.
template <int kBits, int h>
inline Int code_bytes(Int codes) {
  if constexpr (kBits == 4) {
    return and_bits(shift_right<4 * h>(codes), 0x0F0F0F0Fu);
  } else if constexpr (kBits == 3) {
    const Int all = shift_right<3 * h>(codes);
    const Int halves =
        or_bits(and_bits(all, 0x00000FFFu), and_bits(shift_left<4>(all), 0x0FFF0000u));
    return or_bits(and_bits(halves, 0x00070007u), and_bits(shift_left<2>(halves), 0x07000700u));
  } else {
    static_assert(kBits == 2);
    const Int all = shift_right<2 * h>(codes);
    const Int halves = and_bits(or_bits(all, shift_left<8>(all)), 0x00FF00FFu);
    return and_bits(or_bits(halves, shift_left<4>(halves)), 0x03030303u);
  }
}

/// The integers of an element in the bytes of a lane: value * kScaleUp + (1 << kShift), unsigned.
template <Format kElement>
struct ByteElement {
  static constexpr bool kExists = false;
};

template <Format kElement>
struct IntegerByteElement {
  using E = Element<kElement>;
  static constexpr bool kExists = true;
  static constexpr int kShift = E::kBits - 1;  // the centre
  static constexpr float kFactor = 1;
  template <int h>
  static Int dot(Int sum, Int codes, Int x) {
    return dot_bytes(sum, code_bytes<E::kBits, h>(codes), x);
  }
};

template <>
struct ByteElement<Format::kU2> : IntegerByteElement<Format::kU2> {};
template <>
struct ByteElement<Format::kU3> : IntegerByteElement<Format::kU3> {};
template <>
struct ByteElement<Format::kU4> : IntegerByteElement<Format::kU4> {};

template <>
struct ByteElement<Format::kE2M1> {
  static constexpr bool kExists = true;
  static constexpr int kShift = 4;        // bytes are twice the value, plus 16
  static constexpr float kFactor = 0.5f;  // which this takes back
  template <int h>
  static Int dot(Int sum, Int codes, Int x) {
    return dot_bytes(sum, lookup_bytes(kE2m1Unsigned.bytes, code_bytes<4, h>(codes)), x);
  }
};

template <>
struct ByteElement<Format::kU8> {
  static constexpr bool kExists = true;
  static constexpr int kShift = -1;  // signed already
  static constexpr float kFactor = 1;
  template <int h>
  static Int dot(Int sum, const Element<Format::kU8>::Codes& codes, Int x) {
    return dot_signed_bytes(sum, Element<Format::kU8>::template octet_bytes<h>(codes), x);
  }
};

/// Where things lie in one block of kBytes, in bytes.
constexpr int64_t kVectorBytes = 4 * kLanes;
constexpr int64_t kByteSums = 2 * kVectorBytes;
constexpr int64_t kByteScales = 3 * kVectorBytes;
constexpr int64_t kByteFloatSums = 4 * kVectorBytes;

template <Format kElement>
struct ByteProduct {
  using E = Element<kElement>;
  using Decoder = E;
  using Bytes = ByteElement<kElement>;
  using Codes = typename E::Codes;
  static constexpr ActivationOrder kOrder = ActivationOrder::kBytes;
  static constexpr int64_t kActivationBytes = activation_bytes(kOrder);
  static constexpr int64_t kBlockBytes = E::kBits * kLanes;
  static constexpr float kFactor = 1;
  static constexpr int kRowsManyM = kGemvRowsManyM;

  static Codes codes_at(const uint8_t* p) { return E::load(p); }
  static const float* sums(const uint8_t* x) {
    return reinterpret_cast<const float*>(x + kByteFloatSums);
  }
  template <int kM, int kRows>
  [[gnu::always_inline]] static void add(const Codes (&codes)[kRows], const uint8_t* const (&x)[kM],
                                         Float (&part)[kRows][kM]) {
#pragma GCC unroll 4
    for (int m = 0; m < kM; ++m) {
      const Int even = load_int(x[m]);
      const Int odd = load_int(x[m] + kVectorBytes);
      Float scale = load(reinterpret_cast<const float*>(x[m] + kByteScales));
      if constexpr (Bytes::kFactor != 1) scale = mul(scale, broadcast(Bytes::kFactor));
      Int start = zero_int();
      if constexpr (Bytes::kShift >= 0) {
        start = sub_int(start, shift_left<Bytes::kShift>(load_int(x[m] + kByteSums)));
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        Int sum = Bytes::template dot<0>(start, codes[r], even);
        sum = Bytes::template dot<1>(sum, codes[r], odd);
        part[r][m] = mul(int_to_float(sum), scale);
      }
    }
  }
};
