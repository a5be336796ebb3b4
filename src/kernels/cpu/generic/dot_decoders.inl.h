// How rows of weights come into the panels of dot_panels.inl.h as bytes. Included inside the
// namespace of an instruction set, after dot_panels.inl.h.
//
// A panel is [step][32 outputs], one word for each; a run of 8 has kSteps steps.

/// Where the codes of block b of a row are: in the matrix, or in `padded`, after which are zeros.
template <class Decoder>
[[gnu::always_inline]] inline const uint8_t* readable_block(
    const Weights& weights, int64_t row, int64_t b, int64_t whole_blocks,
    uint8_t (&padded)[load_bytes<Decoder>()]) {
  const uint8_t* codes_of_row = weights.codes + row * weights.row_bytes;
  if (b < whole_blocks) return codes_of_row + b * Decoder::kBits * kLanes;
  __builtin_memset(padded, 0, sizeof(padded));
  copy_block<Decoder>(weights, codes_of_row, b, padded);
  return padded;
}

/// Rows of decoded blocks, [block][step of a k8][lane, one for each k8], into the panel.
template <int64_t kSteps>
inline void transpose_decoded(const DotPart& part) {
  constexpr int64_t kBlockSteps = kSteps * kLanes;
  for (int64_t step = 0; step < part.num_blocks * kSteps; ++step) {
    uint8_t* to = part.panel + (step / kSteps * kBlockSteps + step % kSteps) * kDotStepBytes;
    transpose_lanes(reinterpret_cast<const float*>(part.decoded + step * kVectorBytes),
                    kDotRowBytes / 4, reinterpret_cast<float*>(to), kSteps * kDotStepBytes / 4);
  }
}

/// Calls store(codes, steps) for each block of each row.
template <class Decoder, int64_t kSteps, class Store>
[[gnu::always_inline]] inline void decode_dot_rows(const DotPart& part, const Store& store) {
  const int64_t whole_blocks = loadable_blocks<Decoder>(part.weights);
  for (int64_t i = 0; i < kLanes; ++i) {
    uint8_t* steps = part.decoded + i * kDotRowBytes;
    for (int64_t b = part.first_block; b < part.first_block + part.num_blocks; ++b) {
      alignas(64) uint8_t padded[load_bytes<Decoder>()];
      const uint8_t* block =
          readable_block<Decoder>(part.weights, part.row_at(i), b, whole_blocks, padded);
      store(Decoder::load(block), steps);
      steps += kSteps * kVectorBytes;
    }
  }
  transpose_decoded<kSteps>(part);
}

template <Format kElement>
void decode_dot_bytes(const DotPart& part) {
  using Dots = DotsOf<K8Bytes<kElement>>;
  decode_dot_rows<K8Bytes<kElement>, kDotByteSteps>(part, [](const ByteCodes& codes, uint8_t* to) {
    store_int(to, Dots::stored(codes.even));
    store_int(to + kVectorBytes, Dots::stored(codes.odd));
  });
}

/// Codes of four bits: each k8 is a word as it lies there, and words are transposed before they
/// become twice as many.
template <Format kElement>
void decode_dot_words(const DotPart& part) {
  using Bytes = K8Bytes<kElement>;
  using Dots = DotsOf<Bytes>;
  static_assert(Bytes::kBits == 4);
  constexpr int64_t kBlockBytes = Bytes::kBits * kLanes;
  const int64_t row_bytes = part.weights.row_bytes;
  const bool neighbours = part.row + kLanes - 1 <= part.last_row;
  const int64_t whole_blocks = neighbours ? loadable_blocks<Bytes>(part.weights) : 0;
  uint8_t* to = part.panel;
  const auto unpack = [&](int64_t k8, Int codes) __attribute__((always_inline)) {
    const ByteCodes bytes = Bytes::unpack(codes);
    store_int(to + 2 * k8 * kDotStepBytes, Dots::stored(bytes.even));
    store_int(to + (2 * k8 + 1) * kDotStepBytes, Dots::stored(bytes.odd));
  };
  for (int64_t b = part.first_block; b < part.first_block + part.num_blocks; ++b) {
    if (b < whole_blocks) {
      const uint8_t* blocks = part.weights.codes + part.row * row_bytes + b * kBlockBytes;
      transposed_lanes(reinterpret_cast<const float*>(blocks), row_bytes / 4, unpack);
    } else {
      alignas(64) uint8_t padded[kLanes][kVectorBytes] = {};
      for (int64_t i = 0; i < kLanes; ++i) {
        copy_block<Bytes>(part.weights, part.weights.codes + part.row_at(i) * row_bytes, b,
                          padded[i]);
      }
      transposed_lanes(reinterpret_cast<const float*>(padded[0]), kLanes, unpack);
    }
    to += kLanes * kDotByteSteps * kDotStepBytes;
  }
}

/// The products of one format with activations as bytes.
template <class Weight>
struct DotVariants {
  static constexpr Format kElement = Weight::kElement;
  static constexpr bool kHasZeros = Weight::kHasZeros;
  using Dots = DotsOf<K8Bytes<kElement>>;

  static constexpr auto decode() {
    if constexpr (K8Bytes<kElement>::kBits == 4) return &decode_dot_words<kElement>;
    return &decode_dot_bytes<kElement>;
  }
  static DotDecoding bytes() {
    using Bytes = K8Bytes<kElement>;
    return {.decode = decode(),
            .stage = &Weight::Broadcast::stage_vector,
            .has_zeros = kHasZeros,
            .factor = Bytes::kFactor,
            .offset = Dots::kIsSigned ? 0 : 1 << Bytes::kShift};
  }
  template <class Kind>
  static void multiply(const MatmulTask& task) {
    DotPanels<Kind>(task, bytes()).run();
  }
  static constexpr KernelVariant kInt8 = {&kPackedDotBytes, &multiply<DotWithBytes<Dots>>,
                                          "dot_gemm/int8"};
};

/// Common part of the dispatch of these instruction sets.
struct DotDispatch {
  template <class Weight>
  static constexpr KernelVariant rows() {
    if constexpr (K8Bytes<Weight::kElement>::kExists) {
      return each_row<Weight, Int8x3Product<Weight::kElement>>();
    } else {
      return VectorVariants<Weight>::kRows;
    }
  }
  static int64_t scratch_bytes(int64_t k) {
    return static_cast<int64_t>(sizeof(DotScratch)) + 4 * staged_floats((k + 7) / 8);
  }
};
