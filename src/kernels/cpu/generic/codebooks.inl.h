// What codes of two to five bits stand for, as constants. Included inside the namespace of an
// instruction set, before its elements.

/// The inputs that meet value<j>() of an element, in lane i of a block: kK8 8 * i + j, kContiguous
/// kLanes * j + i.
enum class InputOrder : uint8_t { kK8, kContiguous };

template <Format kElement>
struct Codebook;

/// Unsigned integers, less their centre: what zero points lie near, and subtracting it early keeps
/// sums small.
template <int kCodeBits>
struct IntegerCodebook {
  static constexpr int kBits = kCodeBits;
  static constexpr int kCenter = 1 << (kBits - 1);
  static constexpr double value(int code) { return code - kCenter; }
};

template <int kCodeBits, const double (&kHalf)[1 << (kCodeBits - 1)]>
struct SymmetricCodebook {
  static constexpr int kBits = kCodeBits;
  static constexpr int kCenter = 0;
  static constexpr double value(int code) {
    constexpr int kMiddle = 1 << (kBits - 1);
    return code < kMiddle ? -kHalf[kMiddle - 1 - code] : kHalf[code - kMiddle];
  }
};

template <>
struct Codebook<Format::kU2> : IntegerCodebook<2> {};
template <>
struct Codebook<Format::kU3> : IntegerCodebook<3> {};
template <>
struct Codebook<Format::kU4> : IntegerCodebook<4> {};
template <>
struct Codebook<Format::kNFL2> : SymmetricCodebook<2, formats::kNfl2Half> {};
template <>
struct Codebook<Format::kNFL3> : SymmetricCodebook<3, formats::kNfl3Half> {};
template <>
struct Codebook<Format::kNFL4> : SymmetricCodebook<4, formats::kNfl4Half> {};
template <>
struct Codebook<Format::kNFL5> : SymmetricCodebook<5, formats::kNfl5Half> {};

template <>
struct Codebook<Format::kNF4> {
  static constexpr int kBits = 4;
  static constexpr int kCenter = 0;
  static constexpr double value(int code) { return formats::kNf4Table[code]; }
};

template <>
struct Codebook<Format::kE2M1> {
  static constexpr int kBits = 4;
  static constexpr int kCenter = 0;
  static constexpr double value(int code) {
    constexpr double kMagnitudes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return code < 8 ? kMagnitudes[code] : -kMagnitudes[code - 8];
  }
};

/// A codebook as floats, repeated until there are kSize: then the bits of the next code, which
/// follow in the same word, may stay in an index.
template <int kSize>
struct FloatTable {
  alignas(64) float values[kSize];
};

template <Format kElement, int kSize>
constexpr FloatTable<kSize> make_float_table() {
  FloatTable<kSize> table{};
  constexpr int kCodes = 1 << Codebook<kElement>::kBits;
  for (int i = 0; i < kSize; ++i) {
    table.values[i] = static_cast<float>(Codebook<kElement>::value(i % kCodes));
  }
  return table;
}

template <Format kElement, int kSize>
constexpr FloatTable<kSize> kFloatTable = make_float_table<kElement, kSize>();

/// Sixteen floats for two codes of two bits: what the second stands for.
template <Format kElement>
constexpr FloatTable<16> make_second_float_table() {
  FloatTable<16> table{};
  for (int i = 0; i < 16; ++i) {
    table.values[i] = static_cast<float>(Codebook<kElement>::value(i / 4));
  }
  return table;
}

template <Format kElement>
constexpr FloatTable<16> kSecondFloatTable = make_second_float_table<kElement>();

template <Format kElement>
constexpr bool has_codebook() {
  return requires {
    Codebook<kElement>::kBits;
  };
}
