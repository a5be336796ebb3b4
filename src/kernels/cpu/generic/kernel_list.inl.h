// Every kernel that an instruction set compiles: one line each. Included inside the namespace of an
// instruction set, after gemm.inl.h and vectors.inl.h.

template <Format kElement, Format kScale, Zero kZero>
struct Quantized {
  using E = Element<kElement>;
  using Broadcast = GroupScaling<E::kCenter, kScale, kZero, BroadcastGroups>;
  using Spread = GroupScaling<E::kCenter, kScale, kZero, SpreadGroups>;

  static void gemv(const MatmulTask& task) {
    groups_cover_blocks(task.weights) ? gemv_any_m<E, Broadcast>(task)
                                      : gemv_any_m<E, Spread>(task);
  }
  static void gemm(const MatmulTask& task) {
    groups_cover_blocks(task.weights) ? gemm_any_m<E, Broadcast>(task)
                                      : gemm_any_m<E, Spread>(task);
  }
  static constexpr MatmulKernel kKernel = {kElement, kScale, kZero, E::kOrder, &gemv, &gemm};
};

template <Format kElement>
struct Dense {
  using E = Element<kElement>;
  static constexpr MatmulKernel kKernel = {kElement,
                                           Format::kNone,
                                           Zero::kNone,
                                           E::kOrder,
                                           &gemv_any_m<E, DenseScaling>,
                                           &gemm_any_m<E, DenseScaling>};
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
    Dense<Format::kBF16>::kKernel,
    Dense<Format::kF16>::kKernel,
    Dense<Format::kF32>::kKernel,
};

inline int64_t scratch_floats(int64_t) {
  return kGemmTileOutputs * kPanelStride;
}

constexpr Kernels make_kernels(const char* name, uint32_t required_features) {
  return {name, required_features, kLanes, kMatmuls, &packed_floats, &scratch_floats, &pack, &dot,
          &axpy, &kVectorKernels};
}
