// The unit of an instruction set with dot products of bytes and bf16. Included inside its
// namespace, after method_table.inl.h.

struct Unit {
  template <class Weight>
  static constexpr Method rows() {
    constexpr Format kElement = Weight::kElement;
    if constexpr (OctetBytes<kElement>::kExists) {
      return each_row<Weight, TripleProduct<kElement>>(ActivationOrder::kThreeBytes);
    } else if constexpr (has_pairs<kElement>()) {
      return each_row<Weight, PairProduct<kElement>>(ActivationOrder::kSplitPairs);
    } else {
      return VectorMethods<Weight>::kRows;
    }
  }
  /// Which method runs when.
  template <class Weight>
  static constexpr void fill(const MethodTable& table) {
    using Vectors = VectorMethods<Weight>;
    using Panels = DotMethods<Weight>;
    constexpr Method kRows = rows<Weight>();
    if constexpr (Weight::kScale == Format::kNone) {
      table.f32({{kRows, 4}, {Vectors::kStrips}}, kRows);
      table.bf16({{kRows, 4}, {Panels::kPairs}}, kRows);
    } else {
      table.f32({{kRows, 16}, {Vectors::kStrips}}, kRows);
      table.bf16({{kRows, 8}, {Panels::kPairs}}, kRows);
    }
    if constexpr (OctetBytes<Weight::kElement>::kExists) {
      // Other groups would end spans too often.
      table.f32(kWhole, {{kRows, 12}, {Panels::kDigits}}, kRows);
      table.int8({{Vectors::kBytes, 10}, {Panels::kBytes}}, Vectors::kBytes);
    }
  }
  static int64_t scratch_bytes(int64_t k) {
    return static_cast<int64_t>(sizeof(DotScratch)) + 4 * staged_floats((k + 7) / 8);
  }
  static void pack(uint8_t* packed, const float* x, int64_t rows, const uint32_t* gather, int64_t k,
                   ActivationOrder order) {
    if (rows_per_pack(order) > 1) return pack_dot_rows(packed, x, rows, gather, k, order);
    if (order == ActivationOrder::kSplitPairs) {
      return pack_octet_row(packed, x, gather, k, order, pack_split_pairs);
    }
    if (order == ActivationOrder::kThreeBytes) {
      return pack_octet_row(packed, x, gather, k, order, pack_triples);
    }
    pack_row(packed, x, gather, k, order);
  }
};
