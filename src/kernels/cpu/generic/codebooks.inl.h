// What codes of two to five bits stand for, as constants. Included inside the namespace of an
// instruction set, before its elements.

/// The inputs that meet value<j>() of an element, in lane i of a block: kK8 8 * i + j, kContiguous
/// kLanes * j + i, kFours 32 * (i / 4) + 4 * j + i % 4, where four lanes share a scale.
enum class InputOrder : uint8_t { kK8, kContiguous, kFours };

/// Traits that every Element has; the contract is IsElement in concepts.inl.h.
template <int kElementBits, int kElementCenter = 0, InputOrder kInputOrder = InputOrder::kK8>
struct ElementTraits {
  static constexpr int kBits = kElementBits;
  static constexpr int kCenter = kElementCenter;
  static constexpr InputOrder kOrder = kInputOrder;
  static constexpr bool kTakesCodebooks = false;
};
/// Dense numbers, which are converted where they lie.
template <int kElementBits, Float (*kLoad)(const uint8_t*)>
struct DenseElement : ElementTraits<kElementBits, 0, InputOrder::kContiguous> {
  using Codes = const uint8_t*;
  static Codes load(const uint8_t* p) { return p; }
  template <int j>
  static Float value(Codes codes) {
    return kLoad(codes + kElementBits / 8 * kLanes * j);
  }
};

/// The top bits of four codes, the first of which begins at bit kBegin.
constexpr uint32_t top_bits(int bits, int begin) {
  return (1u | 1u << bits | 1u << 2 * bits | 1u << 3 * bits) << (bits - 1 + begin);
}

/// Indices of vectors of kSize numbers, which are loaded as they lie in the codebook: each four
/// lanes take 32 inputs, whose group is one.
template <int kSize>
struct VectorElement : ElementTraits<8 / kSize, 0, InputOrder::kFours> {
  static constexpr bool kTakesCodebooks = true;
  struct Codes {
    const uint8_t* indices;
    const float* vectors;
  };
  static Codes load(const uint8_t* p, const float* codebook) { return {p, codebook}; }
  template <int j>
  static Float value(const Codes& codes) {
    constexpr int kIndices = 4 / kSize;  // of four lanes
    const float* vectors[kIndices * kLanes / 4];
#pragma GCC unroll 8
    for (int i = 0; i < kIndices * kLanes / 4; ++i) {
      const int index = i / kIndices * (32 / kSize) + kIndices * j + i % kIndices;
      vectors[i] = codes.vectors + kSize * codes.indices[index];
    }
    return load_parts(vectors);
  }
};

/// Codes of a few bits, which a table turns into floats: in each folder's elements.h, as are the
/// Elements that do it in another way.
template <Format kElement>
struct TableElement;
template <Format kElement>
struct Element : TableElement<kElement> {};
template <>
struct Element<Format::kBF16> : DenseElement<16, &load_bf16> {};
template <>
struct Element<Format::kF16> : DenseElement<16, &load_f16> {};
template <>
struct Element<Format::kF32> : DenseElement<32, &load_f32> {};

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
struct Codebook<Format::kIQ4> {
  static constexpr int kBits = 4;
  static constexpr int kCenter = 0;
  static constexpr double value(int code) { return formats::kIq4Table[code]; }
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

template <Format kElement>
constexpr auto kFloatTable = make_table<float, 1 << Codebook<kElement>::kBits>([](int i) {
  return Codebook<kElement>::value(i);
});

/// Traits of codes that a table turns into floats: that of the format, or where a matrix may have
/// one of its own (kbit), that.
template <Format kElement>
struct TableTraits : ElementTraits<Codebook<kElement>::kBits, Codebook<kElement>::kCenter> {
  static constexpr const float* kFormatValues = kFloatTable<kElement>.values;
  static constexpr bool kTakesCodebooks = kElement == Format::kNFL2 || kElement == Format::kNFL3 ||
                                          kElement == Format::kNFL4 || kElement == Format::kNFL5;
};

/// Codes as bytes: K8Bytes<format>, where the values of a format are small integers up to a factor.
/// load() gives value / kFactor + (1 << kShift), unsigned: byte b of lane i is code 2 * b of k8 i
/// in `even`, 2 * b + 1 in `odd`.
template <int kCodeBits, int kCodeShift>
struct ByteTraits {
  static constexpr bool kExists = true;
  static constexpr int kBits = kCodeBits;
  static constexpr int kShift = kCodeShift;
  static constexpr float kFactor = 1;
  static constexpr InputOrder kOrder = InputOrder::kK8;
};

template <Format kElement>
constexpr bool has_codebook() {
  return requires {
    Codebook<kElement>::kBits;
  };
}
