// Which kernel variant multiplies when, on an instruction set with dot products of bytes, but none
// of bf16 that are fast. Included inside its namespace, after dot_limbs.inl.h.

struct Dispatch : DotDispatch {
  /// Figures of Emerald Rapids (docs/kernels/cpu.md).
  template <class Weight>
  static constexpr void add_variants(const DispatchTable& table) {
    using Vectors = VectorVariants<Weight>;
    constexpr KernelVariant kRows = rows<Weight>();
    constexpr int64_t kMaxM = Weight::kScale == Format::kNone ? 4 : 8;
    table.set(kF32, {{kRows, kMaxM}, {Vectors::kGemm}}, kRows);
    if constexpr (K8Bytes<Weight::kElement>::kExists) add_byte_variants<Weight>(table, kRows);
  }

 private:
  /// Integers and E2M1. Panels of four bits cost least; with groups of 32 more than 12 rows of
  /// three limbs take longer than floats.
  template <class Weight>
  static constexpr void add_byte_variants(const DispatchTable& table, const KernelVariant& rows) {
    using Vectors = VectorVariants<Weight>;
    using Panels = DotLimbVariants<Weight>;
    constexpr bool kFourBits = K8Bytes<Weight::kElement>::kBits == 4;
    table.set(kF32, kWhole, {{rows, kFourBits ? 3 : 5}, {Panels::kInt8x3}}, rows);
    table.set(kBF16, kWhole, {{rows, kFourBits ? 2 : 4}, {Panels::kInt8x2}}, rows);
    table.set(kBF16, kThirtyTwos, {{rows, kFourBits ? 4 : 5}, {Panels::kInt8x2}}, rows);
    if constexpr (kFourBits) {
      table.set(kF32, kThirtyTwos, {{rows, 5}, {Panels::kInt8x3, 12}, {Vectors::kGemm}}, rows);
    }
    constexpr KernelVariant kOfBytes = each_row<Weight, Int8Product<Weight::kElement>>();
    table.set(kInt8, {{kOfBytes, 3}, {Panels::kInt8}}, Panels::kInt8);
  }
};
