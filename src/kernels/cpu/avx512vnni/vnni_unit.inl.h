// The unit of an instruction set with dot products of bytes, but none of bf16 that are fast.
// Included inside its namespace, after dot_unit.inl.h.

struct Unit : DotUnit {
  /// Which method runs when: figures of Emerald Rapids (docs/kernels/cpu.md).
  template <class Weight>
  static constexpr void fill(const MethodTable& table) {
    using Vectors = VectorMethods<Weight>;
    constexpr Method kRows = rows<Weight>();
    constexpr int64_t kMostRows = Weight::kScale == Format::kNone ? 4 : 8;
    table.f32({{kRows, kMostRows}, {Vectors::kStrips}}, kRows);
    if constexpr (OctetBytes<Weight::kElement>::kExists) fill_bytes<Weight>(table, kRows);
  }

 private:
  /// Integers and E2M1. Panels of four bits cost least; with groups of 32 more than 12 rows of
  /// three digits take longer than floats.
  template <class Weight>
  static constexpr void fill_bytes(const MethodTable& table, const Method& rows) {
    using Vectors = VectorMethods<Weight>;
    using Panels = DotMethods<Weight>;
    constexpr bool kFourBits = OctetBytes<Weight::kElement>::kBits == 4;
    table.f32(kWhole, {{rows, kFourBits ? 3 : 5}, {Panels::kDigits}}, rows);
    table.bf16(kWhole, {{rows, kFourBits ? 2 : 4}, {Panels::kShortDigits}}, rows);
    table.bf16(kThirtyTwos, {{rows, kFourBits ? 4 : 5}, {Panels::kShortDigits}}, rows);
    if constexpr (kFourBits) {
      table.f32(kThirtyTwos, {{rows, 5}, {Panels::kDigits, 12}, {Vectors::kStrips}}, rows);
    }
    table.int8({{rows, 3}, {Panels::kBytes}}, Panels::kBytes);
  }
};
