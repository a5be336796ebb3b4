// The unit of an instruction set with dot products of bf16. Included inside its namespace, before
// kernel_list.inl.h.

/// One block of kPairs or kSplitPairs from octets that are transposed. The sums are those of what
/// the pairs stand for.
template <int kTerms>
inline void pack_pairs(uint8_t* packed, const Float* v) {
  Float rest[8];
  Float sum = zero();
  for (int j = 0; j < 8; ++j) rest[j] = v[j];
  for (int t = 0; t < kTerms; ++t) {
    for (int j = 0; j < 4; ++j) {
      const Pairs pair = round_to_pairs(rest[j], rest[4 + j]);
      store_pairs(packed + (4 * t + j) * kVectorBytes, pair);
      sum = add(sum, add(low_of_pairs(pair), high_of_pairs(pair)));
      rest[j] = sub(rest[j], low_of_pairs(pair));
      rest[4 + j] = sub(rest[4 + j], high_of_pairs(pair));
    }
  }
  store(reinterpret_cast<float*>(packed + kTerms * 4 * kVectorBytes), sum);
}

struct Unit {
  template <class Weight>
  static constexpr void add_methods(MatmulKernel& kernel) {
    constexpr Format kElement = Weight::kElement;
    if constexpr (has_pairs<kElement>()) {
      kernel.few_rows = 16;
      kernel.bf16 = {ActivationOrder::kPairs, &Weight::template each_row<PairProduct<kElement, 1>>};
    }
    if constexpr (OctetBytes<kElement>::kExists) {
      kernel.few = {ActivationOrder::kThreeBytes,
                    &Weight::template each_row<TripleProduct<kElement>>};
    } else if constexpr (has_pairs<kElement>()) {
      kernel.few = {ActivationOrder::kSplitPairs,
                    &Weight::template each_row<PairProduct<kElement, 2>>};
    }
  }
  static int64_t scratch_bytes(int64_t) { return 0; }
  static void pack(uint8_t* packed, const float* x, int64_t, const uint32_t* gather, int64_t k,
                   ActivationOrder order) {
    if (order == ActivationOrder::kPairs) {
      return pack_octet_row(packed, x, gather, k, order, pack_pairs<1>);
    }
    if (order == ActivationOrder::kSplitPairs) {
      return pack_octet_row(packed, x, gather, k, order, pack_pairs<2>);
    }
    if (order == ActivationOrder::kThreeBytes) {
      return pack_octet_row(packed, x, gather, k, order, pack_triples);
    }
    pack_row(packed, x, gather, k, order);
  }
};
