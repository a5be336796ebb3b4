// The unit of an instruction set with fast dot products of bf16, too. Included inside its
// namespace, after dot_unit.inl.h.

struct Unit : DotUnit {
  /// Which method runs when: figures of Zen 4.
  template <class Weight>
  static constexpr void fill(const MethodTable& table) {
    using Vectors = VectorMethods<Weight>;
    constexpr bool kDense = Weight::kScale == Format::kNone;
    constexpr Method kRows = few_rows<Weight>();
    table.f32({{kRows, kDense ? 4 : 16}, {Vectors::kStrips}}, kRows);
    table.bf16({{kRows, kDense ? 4 : 8}, {PairMethods<Weight>::kPairs}}, kRows);
    if constexpr (OctetBytes<Weight::kElement>::kExists) {
      using Panels = DotMethods<Weight>;
      // Other groups would end spans too often.
      table.f32(kWhole, {{kRows, 12}, {Panels::kDigits}}, kRows);
      table.int8({{kRows, 3}, {Panels::kBytes}}, Panels::kBytes);
    }
  }

 private:
  template <class Weight>
  static constexpr Method few_rows() {
    constexpr Format kElement = Weight::kElement;
    if constexpr (has_pairs<kElement>() && !OctetBytes<kElement>::kExists) {
      return each_row<Weight, PairProduct<kElement>>();
    } else {
      return rows<Weight>();
    }
  }
};
