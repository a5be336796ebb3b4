// Which kernel variant multiplies when, on an instruction set that multiplies floats and bytes, but
// bytes not so fast that three limbs would pay for many rows. Included inside its namespace, after
// dot_decoders.inl.h.

struct Dispatch : DotDispatch {
  /// Figures of Zen 4.
  template <class Weight>
  static constexpr void add_variants(const DispatchTable& table) {
    using Vectors = VectorVariants<Weight>;
    constexpr Format kElement = Weight::kElement;
    table.set(kF32, {{Vectors::kRows, 4}, {Vectors::kGemm}}, Vectors::kRows);
    if constexpr (K8Bytes<kElement>::kExists) {
      using Panels = DotVariants<Weight>;
      if constexpr (kHasLimbs<K8Bytes<kElement>>) {
        // int8x3 takes less for a row of weights, floats for each row of activations.
        constexpr KernelVariant kInt8x3 = each_row<Weight, Int8x3Product<kElement>>();
        table.set(kF32, {{kInt8x3, 2}, {Vectors::kRows, 8}, {Vectors::kGemm}}, kInt8x3);
      }
      table.set(kInt8, {{byte_rows<Weight>(), 4}, {Panels::kInt8}}, Panels::kInt8);
    }
  }

 private:
  template <class Weight>
  static constexpr KernelVariant byte_rows() {
    using Product = Int8Product<Weight::kElement>;
    KernelVariant variant = each_row<Weight, Product>();
    if constexpr (Weight::kZero == Zero::kF32) {
      constexpr int kCenter = Weight::E::kCenter;
      variant.multiply =
          &Weight::template each_row<Product, OffsetScaling<kCenter, BroadcastGroups>,
                                     OffsetScaling<kCenter, SpreadGroups>>;
    }
    return variant;
  }
  /// Sums of four limbs fit into 16 bits where codes are at most 31, but decoding more than four
  /// bits to bytes takes as long as floats.
  template <class Bytes>
  static constexpr bool kHasLimbs = Bytes::kBits == 4 && Bytes::kShift <= 4;
};
