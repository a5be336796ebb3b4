// How MXFP4 and NVFP4 become tiles of bf16, which hold every product of E2M1 and a scale: exponents
// are subtracted. Included inside the namespace of an instruction set with tiles, after
// decoders.inl.h.
//
//   mxfp4    groups of a multiple of 32, so that a step has one scale, a power of two: the words of
//            a table stand for elements times 2^125, and a scale subtracts what it lacks to that.
//            Zero, which has no sign here, stays zero, as the subtraction stops there
//   nvfp4    groups of a multiple of 16, two in a step: a table of 32 words serves both, word
//            16 h + code that of group h. A scale subtracts bf16 of 2^9 less its own from elements
//            that are powers of two, and bf16 of 2^10 less 1.5 times its own from 1.5, 3 and 6

constexpr auto kMxfp4Table = make_table<uint16_t, 32>([](int i) {
  const int word = kBf16Table<Format::kE2M1>.values[i];
  return (word & 0x7FFF) == 0 ? 0 : word + (125 << 7);
});

/// 252 - scale in the exponents of both words of a lane, [output][step].
struct ExponentDeficits {
  alignas(64) uint32_t lanes[kTileRows][4];
};
/// The scales of a block, a byte for each step; after the last group they do not matter.
inline uint32_t mxfp4_scales(const DecodeTask& task, int64_t row) {
  const uint8_t* scales = task.weights.scales + row * task.weights.groups;
  uint32_t codes = 0;
  if (task.groups.of_step[0] + 3 == task.groups.of_step[3]) {
    __builtin_memcpy(&codes, scales + task.groups.of_step[0], 4);
    return codes;
  }
  for (int step = 3; step >= 0; --step) codes = codes << 8 | scales[task.groups.of_step[step]];
  return codes;
}
/// Returns whether 0.5 to 6 times each scale are normal numbers: the codes 2 to 252.
inline bool stage_mxfp4(const DecodeTask& task, ExponentDeficits& deficits) {
  const __m512i most = _mm512_set1_epi32(252);
  bool fit = true;
  const int64_t last = task.rows.first() + task.rows.count() - 1;
  const auto codes = [&](int64_t row) -> int64_t {  // of an output that is not there: the last's
    return mxfp4_scales(task, row < last ? row : last);
  };
  for (int64_t i = 0; i < task.rows.count(); i += 4) {
    const int64_t row = task.rows.first() + i;
    // By way of memory the load would wait for the stores.
    const __m128i bytes =
        _mm_set_epi64x(codes(row + 3) << 32 | codes(row + 2), codes(row + 1) << 32 | codes(row));
    const __m512i missing = _mm512_sub_epi32(most, _mm512_cvtepu8_epi32(bytes));
    fit &= _mm512_cmpgt_epu32_mask(missing, _mm512_set1_epi32(250)) == 0;
    store_int(reinterpret_cast<uint8_t*>(deficits.lanes[i]),
              or_bits(shift_left<7>(missing), shift_left<23>(missing)));
  }
  return fit;
}

struct Mxfp4Tables {
  static constexpr int kBits = 4;
  static constexpr int kSplits = 1;
  static constexpr int kTablesOfBlock = 4;

  [[gnu::always_inline]] SplitTable<1> at(int64_t i, int step) const {
    const Int deficit = _mm512_set1_epi32(static_cast<int>(deficits->lanes[i][step]));
    return {{_mm512_subs_epu16(elements, deficit)}};
  }

  Bf16x2 elements = table_of(kMxfp4Table);
  const ExponentDeficits* deficits;
};

/// A block with a scale at the edges of the range takes the long way.
template <class E, class Scaling>
void decode_mxfp4(const DecodeTask& task) {
  ExponentDeficits deficits;
  if (!stage_mxfp4(task, deficits)) return decode_floats<E, Scaling, 1>(task);
  decode_with_tables(task, Mxfp4Tables{.deficits = &deficits});
}

constexpr auto kNvfp4Table = make_table<uint16_t, 32>([](int i) -> uint16_t {
  const double value = Codebook<Format::kE2M1>::value(i % 16);
  const double size = value < 0 ? -value : value;
  const bool power = size == 0.5 || size == 1 || size == 2 || size == 4;
  // The largest scale is below 2^9; 1.5 times that, below 2^10.
  return size == 0 ? 0 : bf16_bits(power ? value * 0x1p9 : value / 1.5 * 0x1p10);
});

/// Numbers that the scales of a block subtract, [output][group]: for powers of two in the lower
/// word, for the others in the upper; -1 where a scale is zero, which leaves nothing of any
/// element.
struct ScaleDeficits {
  alignas(64) uint32_t lanes[kTileRows + 1][8];  // two outputs are staged together
};
/// The scales of block b of one output, one for each 16 inputs; after the last are zeros.
inline uint64_t nvfp4_scales(const Weights& weights, int64_t row, int64_t b) {
  const uint8_t* scales = weights.scales + row * weights.groups;
  uint64_t codes = 0;
  if (weights.group_size == 16 && 8 * b + 8 <= weights.groups) {
    __builtin_memcpy(&codes, scales + 8 * b, 8);
    return codes;
  }
  for (int64_t i = 0; i < 8 && b * kBlockInputs + 16 * i < weights.cols; ++i) {
    const uint64_t code = scales[(b * kBlockInputs + 16 * i) / weights.group_size];
    codes |= code << (8 * i);
  }
  return codes;
}
/// Returns whether all scales are numbers without a sign.
inline bool stage_nvfp4(const DecodeTask& task, ScaleDeficits& deficits) {
  const Weights& weights = task.weights;
  const int64_t b = task.rows.b;
  const int64_t count = task.rows.count();
  bool fit = true;
  if (b % 8 == 0) {  // a line of the next panel's, which the hardware does not foresee
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = task.rows.first() + i + kPanelOutputs;
      prefetch<64>(weights.scales, row * weights.groups + 8 * b);
    }
  }
  for (int64_t i = 0; i < count; i += 2) {
    const int64_t row = task.rows.first() + i;
    const uint64_t second = i + 1 < count ? nvfp4_scales(weights, row + 1, b) : 0;
    const __m128i codes = _mm_set_epi64x(static_cast<int64_t>(second),
                                         static_cast<int64_t>(nvfp4_scales(weights, row, b)));
    fit &= _mm_cmpge_epu8_mask(codes, _mm_set1_epi8(0x7F)) == 0;
    // As f16 they are 2^-8 of what they should be.
    const Float scale = _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 7));
    const Bf16x2 both = upper_halves(scale, mul(scale, broadcast(1.5f)));
    const Int steps = _mm512_sub_epi16(_mm512_set1_epi32(0x40804000), both);  // bf16 of 4, of 2
    const __mmask16 zeros = _mm512_testn_epi32_mask(both, both);
    store_int(reinterpret_cast<uint8_t*>(deficits.lanes[i]),
              _mm512_mask_mov_epi32(steps, zeros, _mm512_set1_epi32(-1)));
  }
  return fit;
}
/// The table of the two groups of a step.
inline Bf16x2 nvfp4_table(Bf16x2 elements, const uint32_t* deficits) {
  int64_t both;
  __builtin_memcpy(&both, deficits, 8);
  // For the codes 0 to 3 and 4 to 7, and so for 8 to 15; of the first group, then of the second.
  const __m512i words = _mm512_set_epi64(0x0706050407060504, 0x0706050405040504, 0x0706050407060504,
                                         0x0706050405040504, 0x0302010003020100, 0x0302010001000100,
                                         0x0302010003020100, 0x0302010001000100);
  return _mm512_subs_epu16(elements, _mm512_shuffle_epi8(_mm512_set1_epi64(both), words));
}
/// Codes of a step with their group, of 16 inputs, in bit 4: words of k8 2 and 3 are of the second.
template <int kStep>
inline Bf16x2 codes_and_groups(const uint8_t* block) {
  const __m512i groups = _mm512_set_epi64(0x0010001000100010, 0, 0x0010001000100010, 0,
                                          0x0010001000100010, 0, 0x0010001000100010, 0);
  const Bf16x2 words = code_words<4, kStep>(block);
  return _mm512_ternarylogic_epi32(words, groups, _mm512_set1_epi16(0x0F), 0xE4);  // c ? a : b
}
template <int kStep>
[[gnu::always_inline]] inline void store_nvfp4_step(const uint8_t* codes, Bf16x2 elements,
                                                    const uint32_t* deficits, uint8_t* to) {
  store_bf16x2(to + kStep * kTmmBytes, look_up(codes_and_groups<kStep>(codes),
                                               nvfp4_table(elements, deficits + 2 * kStep)));
}

/// Any groups; those of a multiple of 16 with ordinary scales fast.
template <class E, class Scaling>
void decode_nvfp4(const DecodeTask& task) {
  ScaleDeficits staged;
  const bool sixteens =
      task.weights.group_size % 16 == 0 || task.weights.group_size >= task.weights.cols;
  if (!sixteens || !stage_nvfp4(task, staged)) return decode_floats<E, Scaling, 1>(task);
  const Bf16x2 elements = table_of(kNvfp4Table);
  const uint32_t(*deficits)[8] = staged.lanes;
  uint8_t* const to = task.to;
  for_rows_of_block<E>(
      task.weights, task.rows, task.whole_blocks(),
      task.prefetches, [=](int64_t i, const uint8_t* codes) __attribute__((always_inline)) {
        store_nvfp4_step<0>(codes, elements, deficits[i], to + 64 * i);
        store_nvfp4_step<1>(codes, elements, deficits[i], to + 64 * i);
        store_nvfp4_step<2>(codes, elements, deficits[i], to + 64 * i);
        store_nvfp4_step<3>(codes, elements, deficits[i], to + 64 * i);
      });
  keep_inputs_of_row<1>(task);
}
