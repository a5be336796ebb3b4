// What the units of instruction sets with dot products of bytes have in common. Included inside
// the namespace of one, after method_table.inl.h.

struct DotUnit {
  template <class Weight>
  static constexpr Method rows() {
    if constexpr (OctetBytes<Weight::kElement>::kExists) {
      return each_row<Weight, TripleProduct<Weight::kElement>>();
    } else {
      return VectorMethods<Weight>::kRows;
    }
  }
  static int64_t scratch_bytes(int64_t k) {
    return static_cast<int64_t>(sizeof(DotScratch)) + 4 * staged_floats((k + 7) / 8);
  }
};
