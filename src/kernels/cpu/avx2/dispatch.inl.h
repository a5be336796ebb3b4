// Which kernel variant multiplies when, on an instruction set that multiplies floats and bytes, but
// bytes not so fast that it would pay for many rows. Included inside its namespace, after
// dispatch_table.inl.h.

struct Dispatch {
  template <class Weight>
  static constexpr void add_variants(const DispatchTable& table) {
    using Vectors = VectorVariants<Weight>;
    constexpr Format kElement = Weight::kElement;
    if constexpr (K8Bytes<kElement>::kExists) {
      // int8x3 takes less for a row of weights, floats for each row of activations.
      constexpr KernelVariant kInt8x3 = each_row<Weight, Int8x3Product<kElement>>();
      table.set(kF32, {{kInt8x3, 2}, {Vectors::kRows, 8}, {Vectors::kGemm}}, kInt8x3);
    } else {
      table.set(kF32, {{Vectors::kRows, 4}, {Vectors::kGemm}}, Vectors::kRows);
    }
  }
  static int64_t scratch_bytes(int64_t) { return 0; }
};
