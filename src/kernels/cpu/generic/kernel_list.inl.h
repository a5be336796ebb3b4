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
  static constexpr MatmulKernel kernel() {
    MatmulKernel kernel;
    kernel.element = kElement;
    kernel.scale = kScale;
    kernel.zero = kZero;
    kernel.few = {E::kOrder, &each_row<FloatProduct<E>>};
    kernel.many = {E::kOrder, &strips};
    kernel.int8 = int8();
#ifdef SUBBYTE_PAIRS
    if constexpr (has_pairs<kElement>()) {
      kernel.few_rows = 16;
      kernel.few = {ActivationOrder::kSplitPairs, &each_row<PairProduct<kElement, 2>>};
      kernel.bf16 = {ActivationOrder::kPairs, &each_row<PairProduct<kElement, 1>>};
    }
#endif
#ifdef SUBBYTE_TILES
    constexpr bool kMxfp4 = kElement == Format::kE2M1 && kScale == Format::kE8M0;
    using Tiles = TileMethods<E, kElement, kZero, kMxfp4, Broadcast, Spread>;
    kernel.bf16 = Tiles::kRounded;
    kernel.few_rows = kTileFewRows;
    if constexpr (exact_pairs<kElement>()) {
      // Products of E2M1 with one of these scales are exact in bf16, those of integers are not.
      constexpr bool kExactWeights = kScale == Format::kE8M0 || kScale == Format::kE4M3;
      if constexpr (!kExactWeights) kernel.many_small_groups = kernel.many;
      kernel.many = Tiles::kExact;
    }
#endif
    return kernel;
  }
  static constexpr MatmulKernel kKernel = kernel();
};

template <Format kElement>
struct Dense {
  using E = Element<kElement>;
  static constexpr MatmulKernel kernel() {
    MatmulKernel kernel;
    kernel.element = kElement;
    kernel.few = {E::kOrder, &gemv_any_m<FloatProduct<E>, DenseScaling>};
    kernel.many = {E::kOrder, &gemm_any_m<E, DenseScaling>};
#ifdef SUBBYTE_TILES
    using Tiles = TileMethods<E, kElement, Zero::kNone, false, DenseScaling, DenseScaling>;
    kernel.bf16 = Tiles::kRounded;
    kernel.few_rows = kTileFewRows;
    if constexpr (kElement == Format::kBF16) kernel.many = Tiles::kExact;
#endif
    return kernel;
  }
  static constexpr MatmulKernel kKernel = kernel();
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

/// A panel of decoded weights or none, and the scales of four rows with the smallest groups, 8;
/// with tiles what tile_scratch() lays out.
inline int64_t scratch_bytes(int64_t k) {
  const int64_t staged = staged_floats((k + 7) / 8) * 4;
  const int64_t panel = kGemmTileOutputs * kPanelStride * 4 + 4 * staged;
#ifdef SUBBYTE_TILES
  const int64_t tiles = tile_scratch_bytes(k);
  return panel < tiles ? tiles : panel;
#else
  return panel;
#endif
}

constexpr Kernels make_kernels(const char* name, uint32_t required_features) {
#ifdef SUBBYTE_TILES
  constexpr auto kPack = &pack_any;
#else
  constexpr auto kPack = &pack;
#endif
  return {name,  required_features, kLanes, kMatmuls, &packed_bytes, &scratch_bytes, kPack,
          &axpy, &kVectorKernels};
}
