// The unit of an instruction set with fast dot products of bf16, too. Included inside its
// namespace, after dot_unit.inl.h.

struct Unit : DotUnit {
  /// Which method runs when.
  template <class Weight>
  static constexpr void fill(const MethodTable& table) {
    constexpr Format kElement = Weight::kElement;
    using Vectors = VectorMethods<Weight>;
    constexpr Method kPanels = PairMethods<Weight>::kPairs;
    DotUnit::fill<Weight>(table);
    if constexpr (has_pairs<kElement>() && !OctetBytes<kElement>::kExists) {
      constexpr Method kPairs =
          each_row<Weight, PairProduct<kElement>>(ActivationOrder::kSplitPairs);
      table.f32({{kPairs, 16}, {Vectors::kStrips}}, kPairs);
      table.bf16({{kPairs, 8}, {kPanels}}, kPairs);
    } else {
      constexpr Method kRows = rows<Weight>();
      constexpr int64_t kMostRows = Weight::kScale == Format::kNone ? 4 : 8;
      table.bf16({{kRows, kMostRows}, {kPanels}}, kRows);
    }
  }
  static void pack(uint8_t* packed, const float* x, int64_t rows, const uint32_t* gather, int64_t k,
                   ActivationOrder order) {
    if (order == ActivationOrder::kDotPairs) {
      return pack_dot_rows(packed, x, rows, gather, k, order, &pack_dot_pairs);
    }
    if (order == ActivationOrder::kSplitPairs) {
      return pack_octet_row(packed, x, gather, k, order, pack_split_pairs);
    }
    DotUnit::pack(packed, x, rows, gather, k, order);
  }
};
