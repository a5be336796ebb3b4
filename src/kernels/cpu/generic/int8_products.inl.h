// The product of bytes for a few rows of activations of 8 bits. Included inside the namespace of an
// instruction set with products of bytes, after dot_packing.inl.h.
//
//   x[k] ~ scale * q[k],  q from -127 to 127, scale the largest of 32 inputs over 127
//
// as kPackedDotBytes has it. A block of kPackedInt8x1, in bytes: q of inputs 2 * b and 2 * b + 1
// of the runs of 8; the sums of q of each run, negated; scales; sums as floats.
//
// Accuracy, with u = 2^-24, b blocks and c the centre: half a step of an activation is h, 1.001 /
// 254 of the largest of its 32, or 2^-120, and
//   |y - exact| <= sum |w| h + g * sum |scale| * (|element - c| + |zero - c|) * (|x| + h),
//   g = n u / (1 - n u),  n = 6 + 2 b + log2(kLanes)
// for the roundings of a block's part, of the inputs' sum and of its difference, those of b, twice
// with offsets, of sum4, of the tensor's scale and the bias. An input that is not finite makes its
// row NaN.

constexpr int64_t kInt8x1Sums = 2 * kVectorBytes;
constexpr int64_t kInt8x1Scales = 3 * kVectorBytes;
constexpr int64_t kInt8x1FloatSums = 4 * kVectorBytes;
constexpr int64_t kInt8x1BlockBytes = 5 * kVectorBytes;

inline void pack_int8x1(uint8_t* packed, int64_t, const Float* v) {
  const BlockBytes block = bytes_of_block(v);
  store_int(packed, block.words[0]);
  store_int(packed + kVectorBytes, block.words[1]);
  store_int(packed + kInt8x1Sums, sub_int(zero_int(), block.sums));
  store(reinterpret_cast<float*>(packed + kInt8x1Scales), block.scale);
  store(reinterpret_cast<float*>(packed + kInt8x1FloatSums),
        mul(int_to_float(block.sums), block.scale));
}
constexpr PackedLayout kPackedInt8x1 = {.name = "int8",
                                        .bytes = &packed_bytes<kInt8x1BlockBytes>,
                                        .pack = &pack_k8<kInt8x1BlockBytes, &pack_int8x1>};

template <Format kElement>
struct Int8Product : K8Product<kElement, kInt8x1BlockBytes, kInt8x1Scales> {
  using Base = K8Product<kElement, kInt8x1BlockBytes, kInt8x1Scales>;
  using typename Base::Bytes;
  using typename Base::Codes;
  using Dots = DotsOf<Bytes>;
  static constexpr const char* kName = "gemv/int8";
  static constexpr const PackedLayout& kLayout = kPackedInt8x1;
  static constexpr int kRowsManyM = kGemvRowsManyM;

  template <int kM, int kRows>
  [[gnu::always_inline]] static void add(const Codes (&codes)[kRows], const uint8_t* const (&x)[kM],
                                         Float (&part)[kRows][kM]) {
#pragma GCC unroll 4
    for (int m = 0; m < kM; ++m) {
      const Int even = load_int(x[m]);
      const Int odd = load_int(x[m] + kVectorBytes);
      const Int first =
          Dots::kIsSigned ? zero_int() : shift_left<Bytes::kShift>(load_int(x[m] + kInt8x1Sums));
      const Float scale = Base::scale(x[m]);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        part[r][m] = mul(int_to_float(Dots::add_k8(codes[r], even, odd, first)), scale);
      }
    }
  }
};
