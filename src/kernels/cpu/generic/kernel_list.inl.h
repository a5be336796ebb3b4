// Every kernel that an instruction set compiles: one line each. Included inside the namespace of an
// instruction set, after the mainloops.

template <Format kElement, Format kScale, Zero kZero>
struct Quantized {
  using E = Element<kElement>;
  using Broadcast = GroupScaling<E::kCenter, kScale, kZero, BroadcastGroups>;
  using Spread = GroupScaling<E::kCenter, kScale, kZero, SpreadGroups>;

  template <class Product>
  static void each_row(const MatmulTask& task) {
    groups_cover_blocks(task.weights) ? gemv_any_m<Product, Broadcast>(task)
                                      : gemv_any_m<Product, Spread>(task);
  }
  static void strips(const MatmulTask& task) {
    groups_cover_blocks(task.weights) ? gemm_any_m<E, Broadcast>(task)
                                      : gemm_any_m<E, Spread>(task);
  }
  static constexpr Method int8() {
    if constexpr (ByteElement<kElement>::kExists) {
      return {ActivationOrder::kBytes, &each_row<ByteProduct<kElement>>};
    } else {
      return {};
    }
  }
#ifdef SUBBYTE_PAIRS
  static constexpr bool kPairs = has_pairs<kElement>();
  template <int kTerms>
  static constexpr Method pairs() {
    using Product = PairProduct<kElement, kTerms>;
    return {Product::kOrder, &each_row<Product>};
  }
#else
  static constexpr bool kPairs = false;
  template <int>
  static constexpr Method pairs() {
    return {};
  }
#endif
  static constexpr Method few() {
    if constexpr (kPairs) {
      return pairs<2>();
    } else {
      return {E::kOrder, &each_row<FloatProduct<E>>};
    }
  }
  static constexpr Method bf16() {
    if constexpr (kPairs) {
      return pairs<1>();
    } else {
      return {};
    }
  }
  static constexpr MatmulKernel kKernel = {
      .element = kElement,
      .scale = kScale,
      .zero = kZero,
      .few = few(),
      .many = {E::kOrder, &strips},
      .bf16 = bf16(),
      .int8 = int8(),
  };
};

template <Format kElement>
struct Dense {
  using E = Element<kElement>;
  static constexpr MatmulKernel kKernel = {
      .element = kElement,
      .scale = Format::kNone,
      .zero = Zero::kNone,
      .few = {E::kOrder, &gemv_any_m<FloatProduct<E>, DenseScaling>},
      .many = {E::kOrder, &gemm_any_m<E, DenseScaling>},
      .bf16 = {},
      .int8 = {},
  };
};

constexpr MatmulKernel kMatmuls[] = {
    Quantized<Format::kU2, Format::kF16, Zero::kU8>::kKernel,
    Quantized<Format::kU2, Format::kBF16, Zero::kU8>::kKernel,
    Quantized<Format::kU2, Format::kF32, Zero::kU8>::kKernel,
    Quantized<Format::kU3, Format::kF16, Zero::kU8>::kKernel,
    Quantized<Format::kU3, Format::kBF16, Zero::kU8>::kKernel,
    Quantized<Format::kU3, Format::kF32, Zero::kU8>::kKernel,
    Quantized<Format::kU4, Format::kF16, Zero::kU8>::kKernel,
    Quantized<Format::kU4, Format::kBF16, Zero::kU8>::kKernel,
    Quantized<Format::kU4, Format::kF32, Zero::kU8>::kKernel,
    Quantized<Format::kU8, Format::kF16, Zero::kU16>::kKernel,
    Quantized<Format::kU8, Format::kBF16, Zero::kU16>::kKernel,
    Quantized<Format::kU8, Format::kF32, Zero::kU16>::kKernel,
    Quantized<Format::kE2M1, Format::kE8M0, Zero::kNone>::kKernel,
    Quantized<Format::kE2M1, Format::kE4M3, Zero::kNone>::kKernel,
    Quantized<Format::kNF4, Format::kF32, Zero::kNone>::kKernel,
    Quantized<Format::kNFL2, Format::kE4M4, Zero::kNone>::kKernel,
    Quantized<Format::kNFL2, Format::kF16, Zero::kNone>::kKernel,
    Quantized<Format::kNFL3, Format::kE4M4, Zero::kNone>::kKernel,
    Quantized<Format::kNFL3, Format::kF16, Zero::kNone>::kKernel,
    Quantized<Format::kNFL4, Format::kE4M4, Zero::kNone>::kKernel,
    Quantized<Format::kNFL4, Format::kF16, Zero::kNone>::kKernel,
    Quantized<Format::kNFL5, Format::kE4M4, Zero::kNone>::kKernel,
    Quantized<Format::kNFL5, Format::kF16, Zero::kNone>::kKernel,
    Dense<Format::kBF16>::kKernel,
    Dense<Format::kF16>::kKernel,
    Dense<Format::kF32>::kKernel,
};

/// A panel of decoded weights or none, and the scales of four rows with the smallest groups, 8.
inline int64_t scratch_bytes(int64_t k) {
  return (kGemmTileOutputs * kPanelStride + 4 * staged_floats((k + 7) / 8)) * 4;
}

constexpr Kernels make_kernels(const char* name, uint32_t required_features) {
  return {name,  required_features, kLanes, kMatmuls, &packed_bytes, &scratch_bytes,
          &pack, &dot,              &axpy};
}
