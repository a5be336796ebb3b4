// The unit of an instruction set that multiplies floats and bytes, but bytes not so fast that it
// would pay for many rows. Included inside its namespace, after method_table.inl.h.

struct Unit {
  /// Which method runs when.
  template <class Weight>
  static constexpr void fill(const MethodTable& table) {
    using Vectors = VectorMethods<Weight>;
    constexpr Format kElement = Weight::kElement;
    if constexpr (OctetBytes<kElement>::kExists) {
      // Digits take less for a row of weights, floats for each row of activations.
      constexpr Method kDigits = each_row<Weight, TripleProduct<kElement>>();
      table.f32({{kDigits, 2}, {Vectors::kRows, 8}, {Vectors::kStrips}}, kDigits);
    } else {
      table.f32({{Vectors::kRows, 4}, {Vectors::kStrips}}, Vectors::kRows);
    }
  }
  static int64_t scratch_bytes(int64_t) { return 0; }
};
