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
      constexpr KernelVariant kRows = byte_rows<Weight, Int8Product<kElement>>();
      table.set(kInt8, {{kRows, 4}, {Panels::kInt8}}, Panels::kInt8);
      if constexpr (kElement == Format::kU4) {
        constexpr KernelVariant kOfK32 = byte_rows<Weight, Int8K32Product>();
        table.set(kInt8, kWhole, {{kOfK32, 4}, {Panels::kInt8}}, Panels::kInt8);
        table.set(kInt8, kThirtyTwos, {{kOfK32, 4}, {Panels::kInt8}}, Panels::kInt8);
      }
    }
  }

 private:
  template <class Weight, class Product>
  static constexpr KernelVariant byte_rows() {
    return {&Product::kLayout, &multiply<Weight, Product>, Product::kName};
  }
  template <class Weight, class Product>
  static void multiply(const MatmulTask& task) {
    constexpr int kInputs = Product::kLaneInputs;
    groups_cover_blocks<kInputs>(task.weights)
        ? gemv_any_m<Product, Scaling<Weight, BroadcastGroups<kInputs>>>(task)
        : gemv_any_m<Product, Scaling<Weight, SpreadGroups<kInputs>>>(task);
  }
  /// Offsets as they are.
  template <class Weight, class Groups>
  using Scaling =
      std::conditional_t<Weight::kZero == Zero::kF32, OffsetScaling<Weight::E::kCenter, Groups>,
                         typename Weight::template Scaling<Groups>>;

  /// Sums of four limbs fit into 16 bits where codes are at most 31, but decoding more than four
  /// bits to bytes takes as long as floats.
  template <class Bytes>
  static constexpr bool kHasLimbs = Bytes::kBits == 4 && Bytes::kShift <= 4;
};
