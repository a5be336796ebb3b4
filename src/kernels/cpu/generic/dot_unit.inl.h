// What the units of instruction sets with dot products of bytes have in common. Included inside
// the namespace of one, after method_table.inl.h.

struct DotUnit {
  template <class Weight>
  static constexpr Method rows() {
    if constexpr (OctetBytes<Weight::kElement>::kExists) {
      return each_row<Weight, TripleProduct<Weight::kElement>>(ActivationOrder::kThreeBytes);
    } else {
      return VectorMethods<Weight>::kRows;
    }
  }
  static int64_t scratch_bytes(int64_t k) {
    return static_cast<int64_t>(sizeof(DotScratch)) + 4 * staged_floats((k + 7) / 8);
  }
  static void pack(uint8_t* packed, const float* x, int64_t rows, const uint32_t* gather, int64_t k,
                   ActivationOrder order) {
    using enum ActivationOrder;
    if (order == kDotBytes) {
      return pack_dot_rows(packed, x, rows, gather, k, order, &pack_dot_bytes);
    }
    if (order == kDotDigits) {
      return pack_dot_rows(packed, x, rows, gather, k, order, &pack_dot_digits<kDotDigits>);
    }
    if (order == kDotShortDigits) {
      return pack_dot_rows(packed, x, rows, gather, k, order, &pack_dot_digits<kDotShortDigits>);
    }
    if (order == kThreeBytes) {
      return pack_octet_row(packed, x, gather, k, order, pack_triples);
    }
    pack_row(packed, x, gather, k, order);
  }
};
