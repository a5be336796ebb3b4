// Which kernel variant multiplies when, on an instruction set with fast dot products of bf16, too.
// Included inside its namespace, after dot_limbs.inl.h.

struct Dispatch : DotDispatch {
  /// Figures of Zen 4.
  template <class Weight>
  static constexpr void add_variants(const DispatchTable& table) {
    using Vectors = VectorVariants<Weight>;
    constexpr bool kDense = Weight::kScale == Format::kNone;
    constexpr KernelVariant kRows = few_rows<Weight>();
    table.set(kF32, {{kRows, kDense ? 4 : 16}, {Vectors::kGemm}}, kRows);
    constexpr KernelVariant kBf16 = DotBf16Variants<Weight>::kBf16;
    if constexpr (kDense) {
      // To round all weights takes as long as to multiply them by some rows.
      table.set(kBF16, {{kRows, 4}, {Vectors::kGemm, 16}, {kBf16}}, kRows);
    } else {
      table.set(kBF16, {{kRows, 8}, {kBf16}}, kRows);
    }
    if constexpr (K8Bytes<Weight::kElement>::kExists) {
      using Panels = DotLimbVariants<Weight>;
      // Other groups would end spans too often.
      table.set(kF32, kWhole, {{kRows, 12}, {Panels::kInt8x3}}, kRows);
      constexpr KernelVariant kOfBytes = each_row<Weight, Int8Product<Weight::kElement>>();
      table.set(kInt8, {{kOfBytes, 3}, {Panels::kInt8}}, Panels::kInt8);
    }
  }

 private:
  template <class Weight>
  static constexpr KernelVariant few_rows() {
    constexpr Format kElement = Weight::kElement;
    if constexpr (has_bf16<kElement>() && !K8Bytes<kElement>::kExists) {
      KernelVariant variant = each_row<Weight, HiLoProduct<kElement>>();
      if (Weight::E::kTakesCodebooks) variant.own_codebook = &VectorVariants<Weight>::kRows;
      return variant;
    } else {
      return rows<Weight>();
    }
  }
};
