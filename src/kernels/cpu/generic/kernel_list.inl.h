// Every kernel that an instruction set compiles: one line each. Included inside the namespace of an
// instruction set, after the mainloops and its Dispatch, which says which variant multiplies when.

/// The codes of iN are those of uN, and its numbers what Element has of them: less their centre.
constexpr Format codes_of(Format element) {
  const bool is_signed = element >= Format::kI2 && element <= Format::kI8;
  constexpr int kApart = static_cast<int>(Format::kI2) - static_cast<int>(Format::kU2);
  return is_signed ? static_cast<Format>(static_cast<int>(element) - kApart) : element;
}

template <Format kElementFormat, Format kScaleFormat, Zero kZeroPoint>
struct Quantized {
  static constexpr Format kOfMatrix = kElementFormat;
  static constexpr Format kElement = codes_of(kElementFormat);
  static constexpr Format kScale = kScaleFormat;  // kI8: any of two levels
  static constexpr Zero kZero = kZeroPoint;       // kF32: offsets of any type
  static constexpr bool kHasZeros = kZero != Zero::kNone;
  using E = Element<kElement>;
  template <class Groups>
  using Scaling = std::conditional_t<kScale == Format::kNone, DenseScaling,
                                     GroupScaling<E::kCenter, kHasZeros, Groups>>;
  using Broadcast = Scaling<BroadcastGroups<>>;
  using Spread = Scaling<SpreadGroups<>>;

  template <class Product>
  static void each_row(const MatmulTask& task) {
    groups_cover_blocks(task.weights) ? gemv_any_m<Product, Broadcast>(task)
                                      : gemv_any_m<Product, Spread>(task);
  }
  static void gemm(const MatmulTask& task) {
    groups_cover_blocks(task.weights) ? gemm_any_m<E, Broadcast>(task)
                                      : gemm_any_m<E, Spread>(task);
  }
};
template <Format kElement>
using Dense = Quantized<kElement, Format::kNone, Zero::kNone>;

template <class Weight>
constexpr MatmulKernel make_kernel() {
  MatmulKernel kernel;
  kernel.element = Weight::kOfMatrix;
  kernel.scale = Weight::kScale;
  kernel.zero = Weight::kZero;
  const DispatchTable table = {kernel};
  Dispatch::add_variants<Weight>(table);
  table.complete();
  return kernel;
}

constexpr MatmulKernel kMatmuls[] = {
    make_kernel<Quantized<Format::kU2, Format::kF16, Zero::kU8>>(),
    make_kernel<Quantized<Format::kU2, Format::kBF16, Zero::kU8>>(),
    make_kernel<Quantized<Format::kU2, Format::kF32, Zero::kU8>>(),
    make_kernel<Quantized<Format::kU2, Format::kF16, Zero::kF32>>(),
    make_kernel<Quantized<Format::kU2, Format::kBF16, Zero::kF32>>(),
    make_kernel<Quantized<Format::kU2, Format::kF32, Zero::kF32>>(),
    make_kernel<Quantized<Format::kU3, Format::kF16, Zero::kU8>>(),
    make_kernel<Quantized<Format::kU3, Format::kBF16, Zero::kU8>>(),
    make_kernel<Quantized<Format::kU3, Format::kF32, Zero::kU8>>(),
    make_kernel<Quantized<Format::kU3, Format::kF16, Zero::kF32>>(),
    make_kernel<Quantized<Format::kU3, Format::kBF16, Zero::kF32>>(),
    make_kernel<Quantized<Format::kU3, Format::kF32, Zero::kF32>>(),
    make_kernel<Quantized<Format::kU4, Format::kF16, Zero::kU8>>(),
    make_kernel<Quantized<Format::kU4, Format::kBF16, Zero::kU8>>(),
    make_kernel<Quantized<Format::kU4, Format::kF32, Zero::kU8>>(),
    make_kernel<Quantized<Format::kU4, Format::kF16, Zero::kF32>>(),
    make_kernel<Quantized<Format::kU4, Format::kBF16, Zero::kF32>>(),
    make_kernel<Quantized<Format::kU4, Format::kF32, Zero::kF32>>(),
    make_kernel<Quantized<Format::kU5, Format::kF16, Zero::kU8>>(),
    make_kernel<Quantized<Format::kU5, Format::kBF16, Zero::kU8>>(),
    make_kernel<Quantized<Format::kU5, Format::kF32, Zero::kU8>>(),
    make_kernel<Quantized<Format::kU6, Format::kF16, Zero::kU8>>(),
    make_kernel<Quantized<Format::kU6, Format::kBF16, Zero::kU8>>(),
    make_kernel<Quantized<Format::kU6, Format::kF32, Zero::kU8>>(),
    make_kernel<Quantized<Format::kU7, Format::kF16, Zero::kU8>>(),
    make_kernel<Quantized<Format::kU7, Format::kBF16, Zero::kU8>>(),
    make_kernel<Quantized<Format::kU7, Format::kF32, Zero::kU8>>(),
    make_kernel<Quantized<Format::kU8, Format::kF16, Zero::kU16>>(),
    make_kernel<Quantized<Format::kU8, Format::kBF16, Zero::kU16>>(),
    make_kernel<Quantized<Format::kU8, Format::kF32, Zero::kU16>>(),
    make_kernel<Quantized<Format::kU8, Format::kF16, Zero::kF32>>(),
    make_kernel<Quantized<Format::kU8, Format::kBF16, Zero::kF32>>(),
    make_kernel<Quantized<Format::kU8, Format::kF32, Zero::kF32>>(),
    make_kernel<Quantized<Format::kI2, Format::kF16, Zero::kNone>>(),
    make_kernel<Quantized<Format::kI2, Format::kBF16, Zero::kNone>>(),
    make_kernel<Quantized<Format::kI2, Format::kF32, Zero::kNone>>(),
    make_kernel<Quantized<Format::kI3, Format::kF16, Zero::kNone>>(),
    make_kernel<Quantized<Format::kI3, Format::kBF16, Zero::kNone>>(),
    make_kernel<Quantized<Format::kI3, Format::kF32, Zero::kNone>>(),
    make_kernel<Quantized<Format::kI4, Format::kF16, Zero::kNone>>(),
    make_kernel<Quantized<Format::kI4, Format::kBF16, Zero::kNone>>(),
    make_kernel<Quantized<Format::kI4, Format::kF32, Zero::kNone>>(),
    make_kernel<Quantized<Format::kI5, Format::kF16, Zero::kNone>>(),
    make_kernel<Quantized<Format::kI5, Format::kBF16, Zero::kNone>>(),
    make_kernel<Quantized<Format::kI5, Format::kF32, Zero::kNone>>(),
    make_kernel<Quantized<Format::kI6, Format::kF16, Zero::kNone>>(),
    make_kernel<Quantized<Format::kI6, Format::kBF16, Zero::kNone>>(),
    make_kernel<Quantized<Format::kI6, Format::kF32, Zero::kNone>>(),
    make_kernel<Quantized<Format::kI7, Format::kF16, Zero::kNone>>(),
    make_kernel<Quantized<Format::kI7, Format::kBF16, Zero::kNone>>(),
    make_kernel<Quantized<Format::kI7, Format::kF32, Zero::kNone>>(),
    make_kernel<Quantized<Format::kI8, Format::kF16, Zero::kNone>>(),
    make_kernel<Quantized<Format::kI8, Format::kBF16, Zero::kNone>>(),
    make_kernel<Quantized<Format::kI8, Format::kF32, Zero::kNone>>(),
    make_kernel<Quantized<Format::kU2, Format::kI8, Zero::kF32>>(),
    make_kernel<Quantized<Format::kI3, Format::kI8, Zero::kNone>>(),
    make_kernel<Quantized<Format::kU4, Format::kI8, Zero::kF32>>(),
    make_kernel<Quantized<Format::kU5, Format::kI8, Zero::kF32>>(),
    make_kernel<Quantized<Format::kU5, Format::kF16, Zero::kF32>>(),
    make_kernel<Quantized<Format::kI6, Format::kI8, Zero::kNone>>(),
    make_kernel<Quantized<Format::kIQ4, Format::kF16, Zero::kNone>>(),
    make_kernel<Quantized<Format::kIQ4, Format::kI8, Zero::kNone>>(),
    make_kernel<Quantized<Format::kE2M1, Format::kE8M0, Zero::kNone>>(),
    make_kernel<Quantized<Format::kE2M1, Format::kE4M3, Zero::kNone>>(),
    make_kernel<Quantized<Format::kE4M3, Format::kF32, Zero::kNone>>(),
    make_kernel<Quantized<Format::kE4M3, Format::kBF16, Zero::kNone>>(),
    make_kernel<Quantized<Format::kE4M3, Format::kE8M0, Zero::kNone>>(),
    make_kernel<Quantized<Format::kNF4, Format::kF32, Zero::kNone>>(),
    make_kernel<Quantized<Format::kNFL2, Format::kE4M4, Zero::kNone>>(),
    make_kernel<Quantized<Format::kNFL2, Format::kF16, Zero::kNone>>(),
    make_kernel<Quantized<Format::kNFL3, Format::kE4M4, Zero::kNone>>(),
    make_kernel<Quantized<Format::kNFL3, Format::kF16, Zero::kNone>>(),
    make_kernel<Quantized<Format::kNFL3, Format::kI8, Zero::kNone>>(),
    make_kernel<Quantized<Format::kNFL4, Format::kI8, Zero::kNone>>(),
    make_kernel<Quantized<Format::kNFL4, Format::kE4M4, Zero::kNone>>(),
    make_kernel<Quantized<Format::kNFL4, Format::kF16, Zero::kNone>>(),
    make_kernel<Quantized<Format::kNFL5, Format::kE4M4, Zero::kNone>>(),
    make_kernel<Quantized<Format::kNFL5, Format::kF16, Zero::kNone>>(),
    make_kernel<Quantized<Format::kVQ2, Format::kE4M4, Zero::kNone>>(),
    make_kernel<Quantized<Format::kVQ2, Format::kF16, Zero::kNone>>(),
    make_kernel<Quantized<Format::kVQ4, Format::kE4M4, Zero::kNone>>(),
    make_kernel<Quantized<Format::kVQ4, Format::kF16, Zero::kNone>>(),
    make_kernel<Dense<Format::kBF16>>(),
    make_kernel<Dense<Format::kF16>>(),
    make_kernel<Dense<Format::kF32>>(),
};

/// y += a x
inline void axpy(float* y, float a, const float* x, int64_t n) {
  const Float factor = broadcast(a);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, fma(factor, load(x + i), load(y + i)));
  const int64_t left = n - i;
  if (left > 0) {
    store_part(y + i, fma(factor, load_part(x + i, left), load_part(y + i, left)), left);
  }
}

/// A panel of decoded weights, or copies of four rows, of 8 bits at most; and the scales of four
/// rows with the smallest groups, 8. Or what the other loops need.
inline int64_t scratch_bytes(int64_t k) {
  const int64_t staged = staged_floats((k + 7) / 8) * 4;
  const int64_t decoded = kGemmTileOutputs * kPanelStride * 4;
  const int64_t copied = 4 * copied_row_bytes(k);
  const int64_t panel = (decoded < copied ? copied : decoded) + 4 * staged;
  const int64_t others = Dispatch::scratch_bytes(k);
  return panel < others ? others : panel;
}

constexpr Kernels make_kernels(const char* name, uint32_t required_features,
                               uint32_t wanted_features = 0) {
  return {name,     required_features, wanted_features, kLanes,
          kMatmuls, &scratch_bytes,    &axpy,           &kVectorKernels};
}
