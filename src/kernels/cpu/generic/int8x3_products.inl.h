// The product of instruction sets with dot products of bytes: float32 activations by three of them,
// for weights that are small integers. Included inside the namespace of such an instruction set,
// after products.inl.h.
//
// A run of 8 activations becomes integers of 24 bits under one scale, a power of two, and these
// become three signed limbs:
//
//   x[j] ~ scale * t[j],    t[j] = 2^16 d2[j] + 2^8 d1[j] + d0[j],    d from -128 to 127
//
//   bits     23 .. 16  15 .. 8   7 .. 0      t + 0x808080 has d2 + 128, d1 + 128 and d0 + 128 in
//           +---------+---------+---------+  these bits, so that no carry has to be thought of
//           |   d2    |   d1    |   d0    |
//           +---------+---------+---------+
//
// With e the exponent of the largest magnitude of the 8 the scale is 2^(e - 22), or twice that if
// t would be more than 127 * 0x010101. Then a dot product of bytes adds four products to each
// lane, and six are all that 128 weights need. Their sums are integers without any rounding:
// (code - centre) * t is 12 * 2^23 (E2M1, doubled) or less, eight of them below 2^31, and what
// overflows on the way comes back, as sums are modulo 2^32. Codes of 8 bits, and those that stand
// for integers of 8 bits, would need 34, so that their upper 26 and the sums of d0 become floats by
// themselves.
//
// Accuracy, with u = 2^-24, b blocks and c the centre:
//   |y - exact| <= sum_k |scale| * |element - zero| * (1.004 * 2^-23 max |x of its 8| + 2^-127)
//                + g * sum_k |scale| * (|element - c| + |zero - c|) * |x|,
//   g = n u / (1 - n u),  n = 6 + b + log2(kLanes)
// The first is half a step of t. (At its worst the largest is just above 127 * 0x010101 steps, of
// which the next are twice as long: 2^22 / (127 * 0x010101 / 2) = 1.004. Below 2^-104 scales stay
// at 2^-126.) The roundings are those of the sum of 8, two with 8 bits, and of the inputs' for
// the zero, of their difference, b, those of sum4, the tensor's scale and the bias. The sums for
// the zero are those of t, so that both have the same rounded inputs. Inputs that are
// integers below 2^22 times a power of two, the same for all 8, meet no rounding.
// An input that is not finite makes its scale NaN, and with it every result.

/// Source of the scales of runs of 8: v[j] holds element j of each.
struct LargestOfK8 {
  Float largest;           // magnitude
  Float nan_if_nonfinite;  // NaN where an input is NaN or infinite, else zero
};
inline LargestOfK8 largest_of_k8(const Float* v) {
  Float largest = magnitude(v[0]);
  Float nan_if_nonfinite = mul(v[0], zero());
  for (int j = 1; j < 8; ++j) {
    largest = max(largest, magnitude(v[j]));
    nan_if_nonfinite = fma(v[j], zero(), nan_if_nonfinite);
  }
  return {largest, nan_if_nonfinite};
}

/// Where things lie in a block of kPackedInt8x3, in bytes: the limbs, highest first, each as the
/// inputs 2 * b and 2 * b + 1 of the runs of 8; the sums of t, negated; scales; sums as floats.
constexpr int64_t kInt8x3Sums = 6 * kVectorBytes;
constexpr int64_t kInt8x3Scales = 7 * kVectorBytes;
constexpr int64_t kInt8x3FloatSums = 8 * kVectorBytes;
constexpr int64_t kInt8x3BlockBytes = 9 * kVectorBytes;

/// The bytes 0, 1 and 2 of four integers, none of which has a byte 3.
struct LimbBytes {
  Int limbs[3];  // byte b is from integer b
};
inline LimbBytes deal_bytes(const Int (&t)[4]) {
  Int outer[2];  // bytes 0 of t[0], 0 of t[1], 2 of t[0], 2 of t[1]; the same of t[2] and t[3]
  Int inner[2];  // bytes 1 of t[0], 1 of t[1]
  for (int i = 0; i < 2; ++i) {
    const Int a = t[2 * i];
    const Int b = t[2 * i + 1];
    outer[i] = or_bits(and_bits(a, 0x00FF00FFu), shift_left<8>(and_bits(b, 0x00FF00FFu)));
    inner[i] = or_bits(and_bits(shift_right<8>(a), 0x000000FFu), and_bits(b, 0x0000FF00u));
  }
  return {{or_bits(and_bits(outer[0], 0x0000FFFFu), shift_left<16>(outer[1])),
           or_bits(inner[0], shift_left<16>(inner[1])),
           or_bits(shift_right<16>(outer[0]), and_bits(outer[1], 0xFFFF0000u))}};
}

/// One block of kPackedInt8x3 from runs of 8 that are transposed: v[j] holds element j of each.
inline void pack_int8x3(uint8_t* packed, int64_t, const Float* v) {
  const auto [largest, nan_if_nonfinite] = largest_of_k8(v);
  // The exponent in its place, and one more from 127 * 0x010101 steps on: mantissa 0x7EFEFF.
  constexpr uint32_t kRoundUp = 0x800000u - 0x7EFEFFu;
  const Int next = and_bits(add_int(bits_of(largest), broadcast_int(kRoundUp)), 0x7F800000u);
  const Int exponent = max_int(next, broadcast_int(23u << 23));  // both scales stay normal
  const Float scale =
      add(float_of_bits(sub_int(exponent, broadcast_int(22u << 23))), nan_if_nonfinite);
  const Float inverse = float_of_bits(sub_int(broadcast_int(276u << 23), exponent));
  Int sum = zero_int();
  for (int h = 0; h < 2; ++h) {
    Int shifted[4];
    for (int b = 0; b < 4; ++b) {
      const Int t = round_to_int(mul(v[2 * b + h], inverse));
      sum = add_int(sum, t);
      shifted[b] = add_int(t, broadcast_int(0x808080u));
    }
    const LimbBytes bytes = deal_bytes(shifted);
    for (int limb = 0; limb < 3; ++limb) {
      store_int(packed + (2 * (2 - limb) + h) * kVectorBytes,
                xor_bits(bytes.limbs[limb], 0x80808080u));
    }
  }
  store_int(packed + kInt8x3Sums, sub_int(zero_int(), sum));
  store(reinterpret_cast<float*>(packed + kInt8x3Scales), scale);
  store(reinterpret_cast<float*>(packed + kInt8x3FloatSums), mul(int_to_float(sum), scale));
}
constexpr PackedLayout kPackedInt8x3 = {.name = "int8x3",
                                        .bytes = &packed_bytes<kInt8x3BlockBytes>,
                                        .pack = &pack_k8<kInt8x3BlockBytes, &pack_int8x3>};

/// Parts that products of bytes have in common, however many limbs an activation has: a block has
/// `kActivations` bytes, with the scales of the runs of 8 at kScalesAt and then their sums.
template <Format kElement, int64_t kActivations, int64_t kScalesAt>
struct K8Product {
  using Bytes = K8Bytes<kElement>;
  static_assert(IsByteDecoder<Bytes>,
                "K8Bytes decodes one block of codes to bytes, value / kFactor "
                "+ (1 << kShift): see IsByteDecoder in concepts.inl.h");
  using Decoder = Bytes;
  using Codes = typename Bytes::Codes;
  static constexpr int64_t kActivationBytes = kActivations;
  static constexpr int64_t kBlockBytes = Bytes::kBits * kLanes;
  static constexpr int kLaneInputs = 8;
  static constexpr float kFactor = 1;  // Bytes' would let large results overflow on the way

  static Codes codes_at(const uint8_t* p, const float*) { return Bytes::load(p); }
  static const float* sums(const uint8_t* x) { return floats(x, kScalesAt + kVectorBytes); }
  [[gnu::always_inline]] static Float scale(const uint8_t* x) {
    const Float scale = load(floats(x, kScalesAt));
    return Bytes::kFactor == 1 ? scale : mul(scale, broadcast(Bytes::kFactor));
  }

 private:
  static const float* floats(const uint8_t* x, int64_t at) {
    return reinterpret_cast<const float*>(x + at);
  }
};

template <Format kElement>
struct Int8x3Product : K8Product<kElement, kInt8x3BlockBytes, kInt8x3Scales> {
  using Base = K8Product<kElement, kInt8x3BlockBytes, kInt8x3Scales>;
  using typename Base::Bytes;
  using typename Base::Codes;
  static constexpr const char* kName = "gemv/int8x3";
  static constexpr const PackedLayout& kLayout = kPackedInt8x3;
  // With four, activations are read half as often as with two. M = 4 of them do not fit into the
  // first-level cache, and sums that do not fit into registers cost less than that.
  static constexpr int kRowsManyM = kGemvRows;

  template <int kM, int kRows>
  [[gnu::always_inline]] static void add(const Codes (&codes)[kRows], const uint8_t* const (&x)[kM],
                                         Float (&part)[kRows][kM]) {
    constexpr int kAtOnce = kRows < kLimbRowsAtOnce ? kRows : kLimbRowsAtOnce;
    static_assert(kRows % kAtOnce == 0);
#pragma GCC unroll 4
    for (int m = 0; m < kM; ++m) {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; r += kAtOnce) {
        Codes some[kAtOnce];
#pragma GCC unroll 4
        for (int i = 0; i < kAtOnce; ++i) some[i] = codes[r + i];
        Float sums[kAtOnce];
        add_rows<kAtOnce>(some, x[m], sums);
#pragma GCC unroll 4
        for (int i = 0; i < kAtOnce; ++i) part[r + i][m] = sums[i];
      }
    }
  }

 private:
  template <int kRows>
  [[gnu::always_inline]] static void add_rows(const Codes (&codes)[kRows], const uint8_t* x,
                                              Float (&part)[kRows]) {
    // Two chains, as each addition waits for the one before it: 2^8 d2 + d1, and d0.
    Int high[kRows];
    Int low[kRows];
    begin<kRows>(load_int(x + kInt8x3Sums), high, low);
    add_limb<0, kRows>(codes, x, high);
    add_limb<2, kRows>(codes, x, low);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) high[r] = shift_left<8>(high[r]);
    add_limb<1, kRows>(codes, x, high);
    const Float scale = Base::scale(x);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) part[r] = end(high[r], low[r], scale);
  }

  /// True where sums of eight products are below 2^31.
  static constexpr bool kFits = Bytes::kBits <= 4 && Bytes::kShift <= 4;

  /// Sets what the sums begin with: minus the products of the centre. Those of 8-bit codes have too
  /// many bits for `low`; what 2^16 of them are is one in `high` before that is shifted.
  template <int kRows>
  [[gnu::always_inline]] static void begin(Int minus_sums, Int (&high)[kRows], Int (&low)[kRows]) {
    constexpr int kShift = Bytes::kShift;
    const Int first = kFits ? zero_int() : shift_right_signed<16 - kShift>(minus_sums);
    const Int rest = kFits ? minus_sums : and_bits(minus_sums, (1u << (16 - kShift)) - 1);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      high[r] = first;
      low[r] = shift_left<kShift>(rest);
    }
  }
  static Float end(Int high, Int low, Float scale) {
    if (kFits) return mul(int_to_float(add_int(shift_left<8>(high), low)), scale);
    return fma(int_to_float(high), mul(scale, broadcast(256)), mul(int_to_float(low), scale));
  }

  /// sums += the products with one limb.
  template <int kLimb, int kRows>
  [[gnu::always_inline]] static void add_limb(const Codes (&codes)[kRows], const uint8_t* x,
                                              Int (&sums)[kRows]) {
    const Int even = load_int(x + 2 * kLimb * kVectorBytes);
    const Int odd = load_int(x + (2 * kLimb + 1) * kVectorBytes);
    add_k8_products<kRows>(codes, even, odd, sums);
  }
};
