// How rows of weights come into the panels of dot_panels.inl.h as bytes. Included inside the
// namespace of an instruction set, after dot_panels.inl.h.
//
// What a function writes is [block][step of an octet][16 lanes: octets], one word for each.

/// Calls store(codes, steps) for each block of a row.
template <class Decoder, int64_t kSteps, class Store>
[[gnu::always_inline]] inline void decode_dot_row(const Weights& weights, int64_t row,
                                                  int64_t first_block, int64_t num_blocks,
                                                  uint8_t* steps, const Store& store) {
  constexpr int64_t kBlockBytes = Decoder::kBits * kLanes;
  const uint8_t* codes_of_row = weights.codes + row * weights.row_bytes;
  const int64_t whole_blocks = loadable_blocks<Decoder>(weights);
  for (int64_t b = first_block; b < first_block + num_blocks; ++b) {
    const uint8_t* block = codes_of_row + b * kBlockBytes;
    prefetch<kBlockBytes>(block, kDotOutputs * weights.row_bytes);
    alignas(64) uint8_t padded[load_bytes<Decoder>()];
    if (b >= whole_blocks) {
      __builtin_memset(padded, 0, sizeof(padded));
      copy_block<Decoder>(weights, codes_of_row, b, padded);
      block = padded;
    }
    store(Decoder::load(block), steps);
    steps += kSteps * kVectorBytes;
  }
}

template <Format kElement>
void decode_dot_bytes(const Weights& weights, int64_t row, int64_t first_block, int64_t num_blocks,
                      float*, uint8_t* steps) {
  decode_dot_row<OctetBytes<kElement>, DotOfBytes::kSteps>(
      weights, row, first_block, num_blocks, steps, [](const ByteCodes& codes, uint8_t* to) {
        store_int(to, codes.even);
        store_int(to + kVectorBytes, codes.odd);
      });
}

/// The products of one format with each kind of activations that are bytes.
template <class Weight>
struct DotMethods {
  static constexpr Format kElement = Weight::kElement;
  static constexpr bool kHasZeros = Weight::kZero != Zero::kNone;

  static DotDecoding bytes() {
    using Bytes = OctetBytes<kElement>;
    return {.decode = &decode_dot_bytes<kElement>,
            .stage = &Weight::Broadcast::stage,
            .has_zeros = kHasZeros,
            .factor = Bytes::kFactor,
            .offset = 1 << Bytes::kShift};
  }
  static void multiply_bytes(const MatmulTask& task) {
    DotPanels<DotWithBytes>(task, bytes()).run();
  }
  static void multiply_digits(const MatmulTask& task) {
    DotPanels<DotWithDigits>(task, bytes()).run();
  }
  static void multiply_short_digits(const MatmulTask& task) {
    DotPanels<DotWithShortDigits>(task, bytes()).run();
  }
  static constexpr Method kBytes = {ActivationOrder::kDotBytes, &multiply_bytes, "panels of bytes"};
  static constexpr Method kDigits = {ActivationOrder::kDotDigits, &multiply_digits,
                                     "panels of digits"};
  static constexpr Method kShortDigits = {ActivationOrder::kDotShortDigits, &multiply_short_digits,
                                          "panels of short digits"};
};
