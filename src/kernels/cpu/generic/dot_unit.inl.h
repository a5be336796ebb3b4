// The unit of an instruction set with dot products of bytes and bf16. Included inside its
// namespace, before kernel_list.inl.h.

struct Unit {
  template <class Weight>
  static constexpr void add_methods(MatmulKernel& kernel) {
    constexpr Format kElement = Weight::kElement;
    using Methods = DotMethods<Weight>;
    kernel.bf16 = Methods::kPairs;
    kernel.few_rows_bf16 = kDotPairFewRows;
    if (Weight::kScale != Format::kNone) kernel.few_rows = kDotFloatFewRows;
    if constexpr (OctetBytes<kElement>::kExists) {
      kernel.few = {ActivationOrder::kThreeBytes,
                    &Weight::template each_row<TripleProduct<kElement>>};
      // Small groups would end spans too often.
      kernel.many_small_groups = kernel.many;
      kernel.few_rows_small_groups = kDotFloatFewRows;
      kernel.many = Methods::kDigits;
      kernel.few_rows = kDotDigitFewRows;
      kernel.int8_many = Methods::kBytes;
      kernel.int8_rows = kDotByteFewRows;
    } else if constexpr (has_pairs<kElement>()) {
      kernel.few = {ActivationOrder::kSplitPairs,
                    &Weight::template each_row<PairProduct<kElement>>};
    }
  }
  static int64_t scratch_bytes(int64_t k) {
    return static_cast<int64_t>(sizeof(DotScratch)) + 4 * staged_floats((k + 7) / 8);
  }
  static void pack(uint8_t* packed, const float* x, int64_t rows, const uint32_t* gather, int64_t k,
                   ActivationOrder order) {
    if (rows_per_pack(order) > 1) return pack_dot_rows(packed, x, rows, gather, k, order);
    if (order == ActivationOrder::kSplitPairs) {
      return pack_octet_row(packed, x, gather, k, order, pack_split_pairs);
    }
    if (order == ActivationOrder::kThreeBytes) {
      return pack_octet_row(packed, x, gather, k, order, pack_triples);
    }
    pack_row(packed, x, gather, k, order);
  }
};
