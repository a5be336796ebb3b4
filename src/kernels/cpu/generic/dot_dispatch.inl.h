// What the dispatch of instruction sets with dot products of bytes have in common. Included inside
// the namespace of one, after dispatch_table.inl.h.

struct DotDispatch {
  template <class Weight>
  static constexpr KernelVariant rows() {
    if constexpr (K8Bytes<Weight::kElement>::kExists) {
      return each_row<Weight, Int8x3Product<Weight::kElement>>();
    } else {
      return VectorVariants<Weight>::kRows;
    }
  }
  static int64_t scratch_bytes(int64_t k) {
    return static_cast<int64_t>(sizeof(DotScratch)) + 4 * staged_floats((k + 7) / 8);
  }
};
