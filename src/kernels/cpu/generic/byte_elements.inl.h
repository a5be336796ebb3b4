// Integers of five to eight bits as floats, as AVX2 and AVX-512 have them alike. Included inside
// the namespace of an instruction set, where load_long_codes() and load_eight_bytes() are.

/// Integers of five to seven bits. A run of 8 takes as many bytes as a code has bits: its first
/// four have the codes 0 to 3 in their lower bits, its last four 4 to 7 in their upper ones, as
/// signed numbers around the centre once the top bit of each is flipped.
template <int kCodeBits>
struct LongInteger : ElementTraits<kCodeBits, 1 << (kCodeBits - 1)> {
  using Codes = WordPair;
  static Codes load(const uint8_t* p) {
    const Codes words = load_long_codes<kCodeBits>(p);
    return {xor_bits(words.low, top_bits(kCodeBits, 0)),
            xor_bits(words.high, top_bits(kCodeBits, 32 - 4 * kCodeBits))};
  }
  template <int j>
  static Float value(const Codes& codes) {
    constexpr int kBegin = j < 4 ? kCodeBits * j : 32 - kCodeBits * (8 - j);
    const Int at_top = shift_left<32 - kCodeBits - kBegin>(j < 4 ? codes.low : codes.high);
    return int_to_float(shift_right_signed<32 - kCodeBits>(at_top));
  }
};
template <>
struct Element<Format::kU5> : LongInteger<5> {};
template <>
struct Element<Format::kU6> : LongInteger<6> {};
template <>
struct Element<Format::kU7> : LongInteger<7> {};

/// Flipping the top bit turns 0..255 into the signed byte code - 128.
template <>
struct Element<Format::kU8> : ElementTraits<8, 128> {
  using Codes = WordPair;
  static Codes load(const uint8_t* p) {
    const Codes codes = load_eight_bytes(p);
    return {xor_bits(codes.low, 0x80808080u), xor_bits(codes.high, 0x80808080u)};
  }
  template <int j>
  static Float value(const Codes& codes) {
    const Int word = j < 4 ? codes.low : codes.high;
    return int_to_float(shift_right_signed<24>(shift_left<24 - 8 * (j % 4)>(word)));
  }
};
