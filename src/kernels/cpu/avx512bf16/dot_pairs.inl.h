// Panels of bf16 for dot_panels.inl.h: codes as what stands for them, or weights rounded. Included
// inside the namespace of an instruction set with dot products of bf16, after dot_decoders.inl.h.

constexpr int64_t kDotPairsAt = kDotFactorsAt;  // where words lie in a block
constexpr int64_t kDotPairBlockBytes = kDotPairsAt + 4 * kDotRows * kVectorBytes;

struct DotOfPairs {
  using Sum = Float;
  static constexpr bool kIntegers = false;
  static constexpr int64_t kBlockBytes = kDotPairBlockBytes;
  static constexpr int64_t kSteps = 4;
  static constexpr int64_t kWordsAt = kDotPairsAt;
  static Sum zero_sum() { return zero(); }
  static void add(Sum& sum, Int weights, Int x) { add_dot_pairs(sum, weights, x); }
};
using DotWithPairs = DotKind<DotOfPairs, kDotRows, 16>;

/// Octets v, transposed, of row m of a pack.
inline void pack_dot_pairs(uint8_t* block, int64_t m, const Float* v) {
  Float sums = zero();
  for (int64_t j = 0; j < 4; ++j) {
    const Pairs pair = round_to_pairs(v[j], v[4 + j]);
    scatter_lanes(block + kDotPairsAt + 4 * (kDotRows * j + m), 4 * kDotRows, pair);
    sums = add(sums, add(low_of_pairs(pair), high_of_pairs(pair)));
  }
  scatter_lanes(block + 4 * m, 8, bits_of(sums));
}

constexpr PackedLayout kPackedDotPairs =
    dot_layout<kDotRows, kDotPairBlockBytes, &pack_dot_pairs>("dot pairs");

template <Format kElement>
void decode_dot_pairs(const DotPart& part) {
  using E = PairElement<kElement>;
  decode_dot_rows<E, DotOfPairs::kSteps>(part, [](typename E::Codes codes, uint8_t* to) {
    store_pairs(to, E::template value<0>(codes));
    store_pairs(to + kVectorBytes, E::template value<1>(codes));
    store_pairs(to + 2 * kVectorBytes, E::template value<2>(codes));
    store_pairs(to + 3 * kVectorBytes, E::template value<3>(codes));
  });
}

/// Weights, code times scale or dense, rounded.
template <class E, class Scaling>
void decode_dot_weights(const DotPart& part) {
  alignas(64) float decoded[DotWithPairs::kPanelBlocks * kBlockInputs];
  for (int64_t i = 0; i < kLanes; ++i) {
    decode_row<E, Scaling, kDotOutputs>(part.weights, part.row_at(i), part.first_block,
                                        part.num_blocks, part.staged, decoded);
    uint8_t* steps = part.decoded + i * kDotRowBytes;
    for (int64_t b = 0; b < part.num_blocks; ++b) {
      Float v[8];
      const float* block = decoded + b * kBlockInputs;
      if constexpr (E::kOrder == InputOrder::kOctets) {
        for (int j = 0; j < 8; ++j) v[j] = load(block + j * kLanes);
      } else {
        transpose_octets(block, v);
      }
      for (int j = 0; j < 4; ++j) {
        store_pairs(steps + j * kVectorBytes, round_to_pairs(v[j], v[4 + j]));
      }
      steps += DotOfPairs::kSteps * kVectorBytes;
    }
  }
  transpose_decoded<DotOfPairs::kSteps>(part);
}

/// The products of one format with activations as bf16.
template <class Weight>
struct PairMethods {
  static constexpr Format kElement = Weight::kElement;

  static DotDecoding pairs(const Weights& weights) {
    if constexpr (has_pairs<kElement>()) {
      return {.decode = &decode_dot_pairs<kElement>,
              .stage = &Weight::Broadcast::stage_vector,
              .has_zeros = Weight::kZero != Zero::kNone,
              .factor = PairCodebook<kElement>::kFactor};
    } else {
      using E = typename Weight::E;
      return {.decode = groups_cover_blocks(weights)
                            ? &decode_dot_weights<E, typename Weight::Broadcast>
                            : &decode_dot_weights<E, typename Weight::Spread>,
              .stage = nullptr,
              .has_zeros = false};
    }
  }
  static void multiply_pairs(const MatmulTask& task) {
    DotPanels<DotWithPairs>(task, pairs(task.weights)).run();
  }
  static constexpr Method kPairs = {&kPackedDotPairs, &multiply_pairs, "dot_gemm/bf16"};
};
