// The unit of an instruction set with tiles: which weights it decodes how, and how activations are
// packed for it. Included inside its namespace, before kernel_list.inl.h.

/// Packs rows for kTiles (up to 16) or kSplitTiles (up to 8): block after block, each step a tile
/// of [lane][row][2]; rows that are not there are zeros.
template <bool kSplit>
void pack_tiles(uint8_t* packed, const float* x, int64_t rows, const uint32_t* gather, int64_t k) {
  for (int64_t begin = 0; begin < k; begin += kBlockInputs) {
    alignas(64) uint8_t steps[4][kTileRows][64] = {};
    for (int64_t m = 0; m < rows; ++m) {
      alignas(64) float block[kBlockInputs];
      Float v[8];
      transpose_octets(block_inputs(x + m * k, gather, begin, k, block), v);
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

/// Integers whose codes are bytes after a shift and a mask.
template <Format kElement>
constexpr bool is_integer() {
  return kElement == Format::kU2 || kElement == Format::kU3 || kElement == Format::kU4;
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
  static constexpr bool kExactWeights =
      kElement == Format::kE2M1 &&
      (Weight::kScale == Format::kE8M0 || Weight::kScale == Format::kE4M3);

  /// Codes, whose scales wait for the sums.
  static TileDecoding exact(const Weights& weights) {
    if constexpr (exact_pairs<kElement>()) {
      if (groups_cover_blocks(weights)) {
        const int64_t whole_blocks = loadable_blocks<PairElement<kElement>>(weights);
        return {&decode_codes<kElement, kZero>, true, whole_blocks, &Broadcast::stage};
      }
    }
    return whole(weights);
  }
  static TileDecoding rounded(const Weights& weights) {
    if constexpr (has_codebook<kElement>()) {
      if constexpr (Codebook<kElement>::kBits <= 4) {
        if (groups_cover_blocks(weights)) {
          const int64_t whole_blocks = loadable_blocks<PairElement<kElement>>(weights);
          return {&decode_scaled<kElement, kZero>, false, whole_blocks, &Broadcast::stage};
        }
      }
    }
    return whole(weights);
  }
  static TileDecoding whole(const Weights& weights) {
    if constexpr (kElement == Format::kE2M1 && Weight::kScale == Format::kE8M0) {
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
  template <ActivationOrder kOrder>
  static void multiply_digits(const MatmulTask& task) {
    digit_rows<kElement, kOrder>(task, &stage_digit_row<Broadcast>);
  }
  template <ActivationOrder kOrder>
  static constexpr Method kDigits = {kOrder, &multiply_digits<kOrder>};
  static constexpr Method kRounded = {ActivationOrder::kTiles, &multiply_rounded};
  static constexpr Method kExact = {ActivationOrder::kSplitTiles, &multiply_exact};
  static constexpr Method kTwoTerms = {ActivationOrder::kSplitTiles, &multiply_two_terms};
};

struct Unit {
  /// Codes of four bits, of which bf16 holds integers. Those of E2M1 are faster with the exponents
  /// of their scales in them (decode_mxfp4).
  template <class Weight>
  static constexpr void add_group_methods(MatmulKernel& kernel) {
    constexpr Format kElement = Weight::kElement;
    constexpr auto kPairs = ActivationOrder::kGroupTiles;
    constexpr auto kSplit = ActivationOrder::kSplitGroupTiles;
    if constexpr (kElement == Format::kU4) {
      kernel.several_small_groups = {kSplit, &group_rows<Weight, kSplit>};
    }
    if constexpr (kElement == Format::kU4 || kElement == Format::kNF4 ||
                  kElement == Format::kNFL4) {
      kernel.several_small_groups_bf16 = {kPairs, &group_rows<Weight, kPairs>};
    }
  }
  template <class Weight>
  static constexpr void add_methods(MatmulKernel& kernel) {
    add_group_methods<Weight>(kernel);
    kernel.int8_rows = kTileInt8Rows;
    kernel.bf16 = TileMethods<Weight>::kRounded;
    kernel.int8_many = kernel.bf16;
    if constexpr (is_integer<Weight::kElement>()) {
      using Methods = TileMethods<Weight>;
      kernel.several = Methods::template kDigits<ActivationOrder::kDigitTiles>;
      kernel.several_wide = Methods::template kDigits<ActivationOrder::kWideDigitTiles>;
      kernel.several_rows = kTileDigitRows;
      kernel.several_bf16 = Methods::template kDigits<ActivationOrder::kShortDigitTiles>;
      kernel.several_rows_bf16 = kTileShortDigitRows;
    }
    constexpr bool kTriples = OctetBytes<Weight::kElement>::kExists;
    if constexpr (kTriples) {
      kernel.few = {ActivationOrder::kThreeBytes,
                    &Weight::template each_row<TripleProduct<Weight::kElement>>};
    }
    if constexpr (exact_pairs<Weight::kElement>() || Weight::kElement == Format::kBF16) {
      constexpr bool kExact = TileMethods<Weight>::kExactWeights || Weight::kScale == Format::kNone;
      if constexpr (!kExact) {
        kernel.many_small_groups = TileMethods<Weight>::kTwoTerms;
        kernel.few_rows_small_groups = kTileTripleRows;
      }
      kernel.many = TileMethods<Weight>::kExact;
      kernel.many_for_one = true;
      if constexpr (Weight::kScale != Format::kE4M3 && Weight::kScale != Format::kNone) {
        // Codes are decoded fast.
        kernel.few_rows = is_integer<Weight::kElement>() ? kTileDigitFewRows : kTileFewRows;
        kernel.many_rows = kSplitRows;
      }
    } else if constexpr (Weight::kScale != Format::kNone) {
      kernel.many = TileMethods<Weight>::kTwoTerms;
      kernel.few_rows = kTriples ? kTileTripleRows : kTileTwoTermRows;
    }
  }
  static int64_t scratch_bytes(int64_t k) { return tile_scratch_bytes(k); }
  static void pack(uint8_t* packed, const float* x, int64_t rows, const uint32_t* gather, int64_t k,
                   ActivationOrder order) {
    if (order == ActivationOrder::kDigitTiles) {
      return pack_digits<ActivationOrder::kDigitTiles>(packed, x, rows, gather, k);
    }
    if (order == ActivationOrder::kWideDigitTiles) {
      return pack_digits<ActivationOrder::kWideDigitTiles>(packed, x, rows, gather, k);
    }
    if (order == ActivationOrder::kShortDigitTiles) {
      return pack_digits<ActivationOrder::kShortDigitTiles>(packed, x, rows, gather, k);
    }
    if (order == ActivationOrder::kGroupTiles) {
      return pack_groups<false>(packed, x, rows, gather, k);
    }
    if (order == ActivationOrder::kSplitGroupTiles) {
      return pack_groups<true>(packed, x, rows, gather, k);
    }
    if (order == ActivationOrder::kTiles) return pack_tiles<false>(packed, x, rows, gather, k);
    if (order == ActivationOrder::kSplitTiles) return pack_tiles<true>(packed, x, rows, gather, k);
    if (order == ActivationOrder::kThreeBytes) {
      return pack_octet_row(packed, x, gather, k, order, pack_triples);
    }
    pack_row(packed, x, gather, k, order);
  }
};
