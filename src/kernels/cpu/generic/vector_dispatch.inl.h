// Which kernel variant multiplies when, on an instruction set that multiplies with its vectors of
// floats and bytes alone. Included inside its namespace, after dispatch_table.inl.h.

struct Dispatch {
  template <class Weight>
  static constexpr void add_variants(const DispatchTable& table) {
    using Vectors = VectorVariants<Weight>;
    table.set(kF32, {{Vectors::kRows, 4}, {Vectors::kGemm}}, Vectors::kRows);
  }
  static int64_t scratch_bytes(int64_t) { return 0; }
};
