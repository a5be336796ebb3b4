// The unit of an instruction set with dot products of bytes. Included inside its namespace, after
// method_table.inl.h.

struct DotUnit {
  template <class Weight>
  static constexpr Method rows() {
    if constexpr (OctetBytes<Weight::kElement>::kExists) {
      return each_row<Weight, TripleProduct<Weight::kElement>>(ActivationOrder::kThreeBytes);
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
    constexpr int64_t kMostRows = Weight::kScale == Format::kNone ? 4 : 16;
    table.f32({{kRows, kMostRows}, {Vectors::kStrips}}, kRows);
    if constexpr (OctetBytes<Weight::kElement>::kExists) {
      // Other groups would end spans too often.
      table.f32(kWhole, {{kRows, 12}, {Panels::kDigits}}, kRows);
      table.bf16(kWhole, {{kRows, 8}, {Panels::kShortDigits}}, kRows);
      table.int8({{Vectors::kBytes, 10}, {Panels::kBytes}}, Vectors::kBytes);
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
