// Which kernel variant multiplies when, with tiles. Included inside the namespace of an instruction
// set with tiles, after dispatch_table.inl.h.

/// More bits than a table of bf16 serves.
template <Format kElement>
constexpr bool is_long_integer() {
  return kElement == Format::kU5 || kElement == Format::kU6 || kElement == Format::kU7 ||
         kElement == Format::kU8;
}

template <Format kElement>
constexpr bool is_integer() {
  return kElement == Format::kU2 || kElement == Format::kU3 || kElement == Format::kU4 ||
         is_long_integer<kElement>();
}

template <Format kElement>
constexpr bool has_vectors() {
  return kElement == Format::kVQ2 || kElement == Format::kVQ4;
}

/// The variants of one format.
template <class Weight>
struct TileVariants {
  static constexpr Format kElement = Weight::kElement;
  static constexpr Zero kZero = Weight::kZero;
  static constexpr bool kHasZeros = Weight::kHasZeros;
  using Broadcast = typename Weight::Broadcast;
  using Spread = typename Weight::Spread;
  using E = typename Weight::E;
  /// bf16 holds the products of E2M1 with these scales, but not those of integers with any.
  static constexpr bool kMxfp4 = kElement == Format::kE2M1 && Weight::kScale == Format::kE8M0;
  static constexpr bool kNvfp4 = kElement == Format::kE2M1 && Weight::kScale == Format::kE4M3;
  static constexpr bool kExactWeights = kElement == Format::kBF16 || kMxfp4 || kNvfp4;

  /// Codes that bf16 holds, whose scales wait for the sums.
  static TileDecoding exact(const Weights& weights) {
    if constexpr (kElement == Format::kE4M3) {
      if (groups_cover_blocks(weights)) return {&decode_e4m3<E>, &Broadcast::stage, true};
    } else if constexpr (!kNvfp4 && exact_bf16<kElement>() && !is_offset(kZero)) {
      if (groups_cover_blocks(weights)) {
        return {&decode_tables<UnscaledTables<Weight, 1, 1>>, &Broadcast::stage, true};
      }
    }
    return weights_as<1>(weights);
  }
  /// Weights, as one bf16 or as two.
  template <int kSplits>
  static TileDecoding weights_as(const Weights& weights) {
    constexpr bool kHasScales = Weight::kScale != Format::kNone;
    const bool whole = groups_cover_blocks(weights);
    const bool steps = whole || weights.group_size % 32 == 0;
    if constexpr (kNvfp4) {
      return {&decode_nvfp4<E, Spread>};
    } else if constexpr (kElement == Format::kBF16) {
      return {&decode_dense_bf16<E>};
    } else if constexpr (kMxfp4) {
      if (steps) return {&decode_mxfp4<E, Spread>};
    } else if constexpr (kElement == Format::kE4M3) {
      if (whole) return {&decode_scaled_e4m3<E, kSplits, false>, &Broadcast::stage, false, kSplits};
      if (steps) return {&decode_scaled_e4m3<E, kSplits, true>, &Broadcast::stage, false, kSplits};
    } else if constexpr (kElement == Format::kU8) {
      if (whole) {
        return {&decode_bytes<E, kZero, kSplits, false>, &Broadcast::stage, false, kSplits};
      }
      if (steps) {
        return {&decode_bytes<E, kZero, kSplits, true>, &Broadcast::stage, false, kSplits};
      }
    } else if constexpr (has_vectors<kElement>()) {
      // Four lanes take 32 inputs, of which a row of fewer has one scale for all.
      if (whole) return {&decode_floats<E, Broadcast, kSplits>, nullptr, false, kSplits};
    } else if constexpr (kHasScales && !is_long_integer<kElement>()) {
      using OneTable = ScaledTables<kElement, kHasZeros, kSplits, 1>;
      using Tables = ScaledTables<kElement, kHasZeros, kSplits, 4>;
      if (whole) return {&decode_tables<OneTable>, &Broadcast::stage, false, kSplits};
      if (steps) return {&decode_tables<Tables>, &Broadcast::stage, false, kSplits};
    }
    return {&decode_floats<E, Spread, kSplits>, nullptr, false, kSplits};
  }

  static void multiply_bf16(const MatmulTask& task) {
    many_rows(task, weights_as<1>(task.weights), kTileRows);
  }
  static void multiply_hi_lo(const MatmulTask& task) {
    many_rows(task, exact(task.weights), kTileRows / 2);
  }
  static void multiply_both_hi_lo(const MatmulTask& task) {
    many_rows(task, weights_as<2>(task.weights), kTileRows / 2);
  }
  template <class Pack>
  static constexpr KernelVariant int8(const char* name) {
    if constexpr (kMxfp4) {
      return {&kPackedInt8<Pack>, &few_rows_int8<Mxfp4Codes, Pack>, name};
    } else {
      using Codes = Int8Codes<kElement, Broadcast, kHasZeros>;
      return {&kPackedInt8<Pack>, &few_rows_int8<Codes, Pack>, name};
    }
  }
  template <int kSplits>
  static constexpr KernelVariant few_bf16(const char* name) {
    return {&kPackedTiles<kSplits>, &few_rows_bf16<Weight, kSplits>, name,
            weight_splits<kElement, kSplits>()};
  }
  static constexpr KernelVariant gemv() {
    if constexpr (K8Bytes<kElement>::kExists) {
      return each_row<Weight, Int8x3Product<kElement>>();
    } else {
      return VectorVariants<Weight>::kRows;
    }
  }
  static constexpr KernelVariant kRows = gemv();
  static constexpr KernelVariant kInt8x3 = int8<Int8Pack<3, 1>>("few_rows/int8x3");
  static constexpr KernelVariant kInt8x3Wide = int8<Int8Pack<3, 2>>("few_rows/int8x3-wide");
  static constexpr KernelVariant kInt8x2 = int8<Int8Pack<2, 1>>("few_rows/int8x2");
  static constexpr KernelVariant kFewBf16 = few_bf16<1>("few_rows/bf16");
  static constexpr KernelVariant kFewHiLo = few_bf16<2>("few_rows/hi-lo");
  static constexpr KernelVariant kBf16 = {&kPackedTiles<1>, &multiply_bf16, "many_rows/bf16"};
  static constexpr KernelVariant kHiLo = {&kPackedTiles<2>, &multiply_hi_lo, "many_rows/hi-lo"};
  static constexpr KernelVariant kBothHiLo = {&kPackedTiles<2>, &multiply_both_hi_lo,
                                              "many_rows/both-hi-lo", 2};
};

/// By the kind of weights.
///
/// Any variant gives a row of activations the same bits whatever the others are, so that the
/// batch-invariant mode need only keep to one. Rows are the best for a single one, but cost 4 to 14
/// times as much as tiles for many; tiles of exact weights make one row 1.4 to 2.6 times as dear,
/// weights of two bf16 some four times.
template <class Weight>
struct TileDispatch : TileVariants<Weight> {
  using T = TileVariants<Weight>;
  using T::kBf16, T::kHiLo, T::kBothHiLo, T::kElement;
  using T::kRows, T::kInt8x3, T::kInt8x3Wide, T::kInt8x2, T::kFewBf16, T::kFewHiLo;
  /// Up to this M, int8x3 activations by codes are faster than weights of two bf16.
  static constexpr int64_t kGemvRows8x3 = 11;

  /// Integers of 2 to 4 bits, and of 5 to 8.
  static constexpr void add_integer_variants(const DispatchTable& table) {
    table.set(kF32, {{kRows, kGemvRows8x3}, {kBothHiLo}}, kRows);
    table.set(kBF16, {{kRows, 4}, {kBf16}}, kRows);
    // bf16 does not hold codes less such zero points.
    if constexpr (is_long_integer<kElement>() || is_offset(T::kZero)) {
      // Up to 64 rows they beat weights of two bf16, the only other way.
      table.set(kF32, kWhole,
                {{kRows, 2}, {kInt8x3, 5}, {kInt8x3Wide, 8}, {kInt8x3, 64}, {kBothHiLo}}, kRows);
      table.set(kBF16, kWhole, {{kRows, 2}, {kInt8x2, 32}, {kBf16}}, kRows);
    } else {
      add_int8_variants(table, kWhole);
      table.set(kF32, kThirtyTwos, {{kRows, 3}, {kFewHiLo, 32}, {kBothHiLo}}, kRows);
      table.set(kBF16, kThirtyTwos, {{kRows, 3}, {kFewBf16, 16}, {kBf16}}, kRows);
    }
  }
  /// Tiles of three limbs have 5 rows, two of them 8: more than that take two packs.
  static constexpr void add_int8_variants(const DispatchTable& table, GroupKind groups) {
    table.set(kF32, groups, {{kRows, 2}, {kInt8x3, 5}, {kInt8x3Wide, 8}, {kInt8x3, 10}, {kHiLo}},
              kHiLo);
    table.set(kBF16, groups, {{kRows, 2}, {kInt8x2, 16}, {kBf16}}, kBf16);
  }

  /// Weights that bf16 holds: E2M1 and bf16.
  static constexpr void add_exact_variants(const DispatchTable& table) {
    constexpr int64_t kFew = Weight::kScale == Format::kNone ? 4 : 3;
    table.set(kF32, {{kRows, kFew}, {kHiLo}}, kHiLo);
    table.set(kBF16, {{kRows, kFew}, {kBf16}}, kBf16);
    if constexpr (T::kMxfp4) {
      add_int8_variants(table, kWhole);
      add_int8_variants(table, kThirtyTwos);
    }
  }

  /// E4M3, whose codes bf16 holds, but not times a scale.
  static constexpr void add_e4m3_variants(const DispatchTable& table) {
    table.set(kF32, {{kRows, 7}, {kBothHiLo}}, kRows);
    table.set(kBF16, {{kRows, 4}, {kBf16}}, kRows);
    table.set(kF32, kWhole, {{kRows, 3}, {kHiLo}}, kHiLo);
    table.set(kBF16, kWhole, {{kRows, 3}, {kBf16}}, kBf16);
  }

  /// Other weights with scales.
  static constexpr void add_scaled_variants(const DispatchTable& table) {
    table.set(kF32, {{kRows, 7}, {kBothHiLo}}, kRows);
    table.set(kBF16, {{kRows, 4}, {kBf16}}, kRows);
    table.set(kF32, kWhole, {{kRows, 3}, {kFewHiLo, 32}, {kBothHiLo}}, kRows);
    table.set(kF32, kThirtyTwos, {{kRows, 3}, {kFewHiLo, 32}, {kBothHiLo}}, kRows);
    table.set(kBF16, kThirtyTwos, {{kRows, 2}, {kFewBf16, 16}, {kBf16}}, kRows);
  }

  static constexpr void add_vector_variants(const DispatchTable& table) {
    table.set(kF32, {{kRows, 7}, {kBothHiLo}}, kRows);
    table.set(kBF16, {{kRows, 4}, {kBf16}}, kRows);
  }

  static constexpr void add_variants(const DispatchTable& table) {
    if constexpr (is_integer<kElement>()) {
      add_integer_variants(table);
    } else if constexpr (has_vectors<kElement>()) {
      add_vector_variants(table);
    } else if constexpr (T::kExactWeights) {
      add_exact_variants(table);
    } else if constexpr (kElement == Format::kE4M3) {
      add_e4m3_variants(table);
    } else if constexpr (Weight::kScale != Format::kNone) {
      add_scaled_variants(table);
    } else {
      table.set(kF32, {{kRows, 4}, {VectorVariants<Weight>::kGemm}}, kRows);
      table.set(kBF16, {{kRows, 4}, {kBf16}}, kRows);
    }
    // More rows than that take as long by tiles of bf16 as by those of bytes with a scale for 128.
    if constexpr (K8Bytes<kElement>::kExists) {
      table.set_fewest(kInt8, each_row<Weight, Int8Product<kElement>>());
    }
  }
};

struct Dispatch {
  template <class Weight>
  static constexpr void add_variants(const DispatchTable& table) {
    TileDispatch<Weight>::add_variants(table);
  }
  static int64_t scratch_bytes(int64_t k) { return tile_scratch_bytes(k); }
};
