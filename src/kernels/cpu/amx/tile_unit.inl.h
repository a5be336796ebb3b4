// The unit of an instruction set with tiles: which weights it decodes how, and how activations are
// packed for it. Included inside its namespace, after method_table.inl.h.

/// The inputs of a block, in pairs v[j][lane], v[4 + j][lane] of step j. kFollowing: lane q of a
/// step has its inputs 16 h + 4 l + w and the next, q being 4 l + 2 h + w / 2: the order in which
/// look_up() leaves 32 codes.
template <bool kFollowing>
[[gnu::always_inline]] inline void load_pairs_of_steps(const float* inputs, Float* v) {
  if constexpr (kFollowing) {
    for (int j = 0; j < 4; ++j) {
      v[j] = load_looked_up<0>(inputs + 32 * j);
      v[4 + j] = load_looked_up<1>(inputs + 32 * j);
    }
  } else {
    transpose_octets(inputs, v);
  }
}

/// Packs up to 16 rows as bf16, or up to 8 (kSplit) as two, x = high + low, 16 bits: row m of the
/// tile is the high part of row m, row 8 + m the low part. kFollowing: each step has 32 inputs that
/// follow each other, else those that a lane of kPackedSplitPairs has. Block after block, each step
/// a tile of [lane][row][2]; rows that are not there are zeros.
template <bool kFollowing, bool kSplit>
void pack_tiles(uint8_t* packed, const float* x, int64_t rows, const uint32_t* gather, int64_t k) {
  for (int64_t begin = 0; begin < k; begin += kBlockInputs) {
    alignas(64) uint8_t steps[4][kTileRows][64] = {};
    for (int64_t m = 0; m < rows; ++m) {
      alignas(64) float block[kBlockInputs];
      Float v[8];
      load_pairs_of_steps<kFollowing>(block_inputs(x + m * k, gather, begin, k, block), v);
      for (int j = 0; j < 4; ++j) {
        const Pairs high = round_to_pairs(v[j], v[4 + j]);
        store_pairs(steps[j][m], high);
        if (!kSplit) continue;
        store_pairs(steps[j][kSplitRows + m], round_to_pairs(sub(v[j], low_of_pairs(high)),
                                                             sub(v[4 + j], high_of_pairs(high))));
      }
    }
    for (int j = 0; j < 4; ++j) {
      transpose_16x16(reinterpret_cast<const float*>(steps[j]),
                      reinterpret_cast<float*>(packed + j * kStepBytes));
    }
    packed += kBlockTileBytes;
  }
}

template <bool kFollowing, bool kSplit>
constexpr PackedLayout kPackedTiles = {
    .name = kFollowing ? (kSplit ? "split following tiles" : "following tiles")
                       : (kSplit ? "split tiles" : "tiles"),
    .rows_per_pack = kSplit ? kSplitRows : kTileRows,
    .padding = kPackPadding,
    .row_grain = kTileRowGrain,
    .bytes = &packed_bytes<kBlockTileBytes>,
    .pack = &pack_tiles<kFollowing, kSplit>};

template <Format kElement>
constexpr bool is_integer() {
  return kElement == Format::kU2 || kElement == Format::kU3 || kElement == Format::kU4 ||
         kElement == Format::kU8;
}

/// The methods of one format.
template <class Weight>
struct TileMethods {
  static constexpr Format kElement = Weight::kElement;
  static constexpr Zero kZero = Weight::kZero;
  using Broadcast = typename Weight::Broadcast;
  using Spread = typename Weight::Spread;
  using E = typename Weight::E;
  /// bf16 holds the products of E2M1 with these scales, but not those of integers with any.
  static constexpr bool kMxfp4 = kElement == Format::kE2M1 && Weight::kScale == Format::kE8M0;
  static constexpr bool kNvfp4 = kElement == Format::kE2M1 && Weight::kScale == Format::kE4M3;
  static constexpr bool kExactWeights = kElement == Format::kBF16 || kMxfp4 || kNvfp4;

  /// Codes, whose scales wait for the sums.
  static TileDecoding exact(const Weights& weights) {
    if constexpr (kNvfp4) return nvfp4(weights);
    if constexpr (exact_pairs<kElement>()) {
      if (groups_cover_blocks(weights)) {
        const int64_t whole_blocks = loadable_blocks<PairElement<kElement>>(weights);
        return {&decode_codes<kElement, kZero>, true, whole_blocks, &Broadcast::stage};
      }
    }
    return whole(weights);
  }
  static TileDecoding rounded(const Weights& weights) {
    if constexpr (kNvfp4) return nvfp4(weights);
    if constexpr (kElement == Format::kU8) {
      if (groups_cover_blocks(weights)) {
        const int64_t whole_blocks = loadable_blocks<ScaledBytes>(weights);
        return {&decode_scaled_bytes<kElement, kZero>, false, whole_blocks, &Broadcast::stage};
      }
    } else if constexpr (has_codebook<kElement>()) {
      if constexpr (Codebook<kElement>::kBits <= 4) {
        if (groups_cover_blocks(weights)) {
          const int64_t whole_blocks = loadable_blocks<PairElement<kElement>>(weights);
          return {&decode_scaled<kElement, kZero>, false, whole_blocks, &Broadcast::stage};
        }
      }
    }
    return whole(weights);
  }
  static TileDecoding nvfp4(const Weights& weights) {
    return {&decode_nvfp4<E, Spread>, false, loadable_blocks<E>(weights), nullptr};
  }
  static TileDecoding whole(const Weights& weights) {
    if constexpr (kMxfp4) {
      if (weights.group_size == 32) {
        const int64_t whole_blocks = weights.cols / kBlockInputs;
        return {&decode_mxfp4<E, Spread>, false, whole_blocks, nullptr};
      }
    }
    if constexpr (kElement == Format::kBF16) {
      return {&decode_dense_pairs<E, Spread>, false, weights.cols / kBlockInputs, nullptr};
    }
    constexpr WeightTerms kTerms = kExactWeights ? WeightTerms::kExact : WeightTerms::kRounded;
    return floats<kTerms>(weights);
  }
  template <WeightTerms kTerms>
  static TileDecoding floats(const Weights& weights) {
    return {groups_cover_blocks(weights) ? &decode_weights<E, Broadcast, kTerms>
                                         : &decode_weights<E, Spread, kTerms>,
            false, loadable_blocks<E>(weights), nullptr, kTerms == WeightTerms::kTwo ? 2 : 1};
  }
  static void multiply_rounded(const MatmulTask& task) {
    tile_rows(task, rounded(task.weights), kTileRows);
  }
  static void multiply_exact(const MatmulTask& task) {
    tile_rows(task, exact(task.weights), kSplitRows);
  }
  static void multiply_two_terms(const MatmulTask& task) {
    tile_rows(task, floats<WeightTerms::kTwo>(task.weights), kSplitRows);
  }
  template <class Pack>
  static void multiply_digits(const MatmulTask& task) {
    constexpr StageDigitRow kStage = kMxfp4 ? &stage_mxfp4_row : &stage_digit_row<Broadcast>;
    digit_rows<kElement, Pack>(task, kStage);
  }
  template <class Pack>
  static constexpr Method digits(const char* name) {
    return {&kPackedDigits<Pack>, &multiply_digits<Pack>, name};
  }
  template <bool kSplit>
  static void multiply_groups(const MatmulTask& task) {
    group_rows<kElement, kSplit>(task, &stage_digit_row<Broadcast>);
  }
  template <bool kSplit>
  static constexpr Method groups(const char* name) {
    return {&kPackedTiles<true, kSplit>, &multiply_groups<kSplit>, name,
            group_terms<kElement, kSplit>()};
  }
  static constexpr Method rows() {
    if constexpr (OctetBytes<kElement>::kExists) {
      return each_row<Weight, TripleProduct<kElement>>();
    } else {
      return VectorMethods<Weight>::kRows;
    }
  }
  static constexpr Method kRows = rows();
  static constexpr Method kDigits = digits<DigitPack<3, 1>>("few_rows/int8x3");
  static constexpr Method kWideDigits = digits<DigitPack<3, 2>>("few_rows/int8x3-wide");
  static constexpr Method kShortDigits = digits<DigitPack<2, 1>>("few_rows/int8x2");
  static constexpr Method kGroups = groups<false>("few_rows/bf16");
  static constexpr Method kSplitGroups = groups<true>("few_rows/hi-lo");
  /// Whose tiles have inputs that follow each other.
  static constexpr bool kFollowing = kNvfp4 || kElement == Format::kBF16;
  static constexpr Method kRounded = {&kPackedTiles<kFollowing, false>, &multiply_rounded,
                                      "many_rows/bf16"};
  static constexpr Method kExact = {&kPackedTiles<kFollowing, true>, &multiply_exact,
                                    "many_rows/hi-lo"};
  static constexpr Method kTwoTerms = {&kPackedTiles<false, true>, &multiply_two_terms,
                                       "many_rows/both-hi-lo", 2};
};

/// Which method runs when, by the kind of weights.
///
/// Any method gives a row of activations the same bits whatever the others are, so that the
/// batch-invariant mode need only keep to one. Rows are the best for a single one, but cost 4 to 14
/// times as much as tiles for many; tiles of exact weights make one row 1.4 to 2.6 times as dear,
/// of two terms some four times.
template <class Weight>
struct TileTable : TileMethods<Weight> {
  using T = TileMethods<Weight>;
  using T::kRounded, T::kExact, T::kTwoTerms, T::kElement;
  using T::kRows, T::kDigits, T::kWideDigits, T::kShortDigits, T::kGroups, T::kSplitGroups;
  /// Up to so many, three digits of activations by codes are faster than weights of two terms.
  static constexpr int64_t kTripleRows = 11;

  /// Integers of 2 to 4 bits, and of 8.
  static constexpr void fill_integers(const MethodTable& table) {
    table.f32({{kRows, kTripleRows}, {kTwoTerms}}, kRows);
    table.bf16({{kRows, 4}, {kRounded}}, kRows);
    if constexpr (kElement == Format::kU8) {
      // Up to 64 rows digits beat weights of two terms, the only other way.
      table.f32(kWhole, {{kRows, 2}, {kDigits, 5}, {kWideDigits, 8}, {kDigits, 64}, {kTwoTerms}},
                kRows);
      table.bf16(kWhole, {{kRows, 2}, {kShortDigits, 32}, {kRounded}}, kRows);
    } else {
      fill_digits(table, kWhole);
      table.f32(kThirtyTwos, {{kRows, 3}, {kSplitGroups, 32}, {kTwoTerms}}, kRows);
      table.bf16(kThirtyTwos, {{kRows, 3}, {kGroups, 16}, {kRounded}}, kRows);
    }
  }
  /// Tiles of digits have 5 rows, wide ones 8: more than that take two.
  static constexpr void fill_digits(const MethodTable& table, GroupKind groups) {
    table.f32(groups, {{kRows, 2}, {kDigits, 5}, {kWideDigits, 8}, {kDigits, 10}, {kExact}},
              kExact);
    table.bf16(groups, {{kRows, 2}, {kShortDigits, 16}, {kRounded}}, kRounded);
  }

  /// Weights that bf16 holds: E2M1 and bf16.
  static constexpr void fill_exact(const MethodTable& table) {
    constexpr int64_t kFew = Weight::kScale == Format::kNone ? 4 : 3;
    table.f32({{kRows, kFew}, {kExact}}, kExact);
    table.bf16({{kRows, kFew}, {kRounded}}, kRounded);
    if constexpr (T::kMxfp4) {
      fill_digits(table, kWhole);
      fill_digits(table, kThirtyTwos);
    }
  }

  /// Other weights with scales.
  static constexpr void fill_others(const MethodTable& table) {
    table.f32({{kRows, 7}, {kTwoTerms}}, kRows);
    table.bf16({{kRows, 4}, {kRounded}}, kRows);
    table.f32(kWhole, {{kRows, 3}, {kSplitGroups, 32}, {kTwoTerms}}, kRows);
    table.f32(kThirtyTwos, {{kRows, 3}, {kSplitGroups, 32}, {kTwoTerms}}, kRows);
    table.bf16(kThirtyTwos, {{kRows, 2}, {kGroups, 16}, {kRounded}}, kRows);
  }

  static constexpr void fill(const MethodTable& table) {
    using Vectors = VectorMethods<Weight>;
    if constexpr (is_integer<kElement>()) {
      fill_integers(table);
    } else if constexpr (T::kExactWeights) {
      fill_exact(table);
    } else if constexpr (Weight::kScale != Format::kNone) {
      fill_others(table);
    } else {
      table.f32({{kRows, 4}, {Vectors::kStrips}}, kRows);
      table.bf16({{kRows, 4}, {kRounded}}, kRows);
    }
  }
};

struct Unit {
  template <class Weight>
  static constexpr void fill(const MethodTable& table) {
    TileTable<Weight>::fill(table);
  }
  static int64_t scratch_bytes(int64_t k) { return tile_scratch_bytes(k); }
};
