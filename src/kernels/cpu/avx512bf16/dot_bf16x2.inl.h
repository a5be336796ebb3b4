// Panels of bf16 for dot_panels.inl.h: codes as what stands for them, or weights rounded. Included
// inside the namespace of an instruction set with dot products of bf16, after dot_decoders.inl.h.

constexpr int64_t kDotBf16x2At = kDotFactorsAt;  // where words lie in a block
constexpr int64_t kDotBf16x2BlockBytes = kDotBf16x2At + 4 * kDotRows * kVectorBytes;

struct DotOfBf16x2 {
  using Sum = Float;
  static constexpr bool kIntegers = false;
  static constexpr int64_t kBlockBytes = kDotBf16x2BlockBytes;
  static constexpr int64_t kSteps = 4;
  static constexpr int64_t kWordsAt = kDotBf16x2At;
  static Sum zero_sum() { return zero(); }
  static void add(Sum& sum, Int weights, Int x) { add_dot_bf16x2(sum, weights, x); }
};
using DotWithBf16x2 = DotKind<DotOfBf16x2, kDotRows, 16>;

/// Row m of a pack: v[j] holds element j of each run of 8.
inline void pack_dot_bf16x2(uint8_t* block, int64_t m, const Float* v) {
  Float sums = zero();
  for (int64_t j = 0; j < 4; ++j) {
    const Bf16x2 both = round_to_bf16x2(v[j], v[4 + j]);
    scatter_lanes(block + kDotBf16x2At + 4 * (kDotRows * j + m), 4 * kDotRows, both);
    sums = add(sums, add(low_of_bf16x2(both), high_of_bf16x2(both)));
  }
  scatter_lanes(block + 4 * m, 8, bits_of(sums));
}

constexpr PackedLayout kPackedDotBf16x2 =
    dot_layout<kDotRows, kDotBf16x2BlockBytes, &pack_dot_bf16x2>("dot bf16", true);

template <Format kElement>
void decode_dot_bf16x2(const DotPart& part) {
  using E = Bf16x2Element<kElement>;
  decode_dot_rows<E, DotOfBf16x2::kSteps>(part, [](typename E::Codes codes, uint8_t* to) {
    store_bf16x2(to, E::template value<0>(codes));
    store_bf16x2(to + kVectorBytes, E::template value<1>(codes));
    store_bf16x2(to + 2 * kVectorBytes, E::template value<2>(codes));
    store_bf16x2(to + 3 * kVectorBytes, E::template value<3>(codes));
  });
}

/// Weights, code times scale or dense, rounded.
template <class E, class Scaling>
void decode_dot_weights(const DotPart& part) {
  alignas(64) float decoded[DotWithBf16x2::kPanelBlocks * kBlockInputs];
  for (int64_t i = 0; i < kLanes; ++i) {
    decode_row<E, Scaling, kDotOutputs>(part.weights, part.row_at(i), part.first_block,
                                        part.num_blocks, part.staged, decoded);
    uint8_t* steps = part.decoded + i * kDotRowBytes;
    for (int64_t b = 0; b < part.num_blocks; ++b) {
      Float v[8];
      const float* block = decoded + b * kBlockInputs;
      decoded_k8s<E::kOrder>(block, v);
      for (int j = 0; j < 4; ++j) {
        store_bf16x2(steps + j * kVectorBytes, round_to_bf16x2(v[j], v[4 + j]));
      }
      steps += DotOfBf16x2::kSteps * kVectorBytes;
    }
  }
  transpose_decoded<DotOfBf16x2::kSteps>(part);
}

/// The products of one format with activations as bf16.
template <class Weight>
struct DotBf16Variants {
  static constexpr Format kElement = Weight::kElement;

  static DotDecoding bf16(const Weights& weights) {
    using E = typename Weight::E;
    if constexpr (has_bf16<kElement>()) {
      if (!E::kTakesCodebooks || weights.codebook == nullptr) {
        return {.decode = &decode_dot_bf16x2<kElement>,
                .stage = &Weight::Broadcast::stage_vector,
                .has_zeros = Weight::kHasZeros,
                .factor = Bf16Codebook<kElement>::kFactor};
      }
    }
    if constexpr (!has_bf16<kElement>() || E::kTakesCodebooks) {
      return {.decode = groups_cover_blocks(weights)
                            ? &decode_dot_weights<E, typename Weight::Broadcast>
                            : &decode_dot_weights<E, typename Weight::Spread>,
              .stage = nullptr,
              .has_zeros = false};
    }
  }
  static void multiply_bf16(const MatmulTask& task) {
    DotPanels<DotWithBf16x2>(task, bf16(task.weights)).run();
  }
  static constexpr KernelVariant kBf16 = {&kPackedDotBf16x2, &multiply_bf16, "dot_gemm/bf16"};
};
