// The unit of an instruction set that multiplies with its vectors of floats and bytes alone.
// Included inside its namespace, after method_table.inl.h.

struct Unit {
  /// Which method runs when.
  template <class Weight>
  static constexpr void fill(const MethodTable& table) {
    using Vectors = VectorMethods<Weight>;
    table.f32({{Vectors::kRows, 4}, {Vectors::kStrips}}, Vectors::kRows);
  }
  static int64_t scratch_bytes(int64_t) { return 0; }
};
