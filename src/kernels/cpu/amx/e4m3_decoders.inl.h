// How E4M3 becomes tiles of bf16, which hold every code. Included inside the namespace of an
// instruction set with tiles, after decoders.inl.h.
//
//   e4m3     s eeee mmm            bf16 has the same mantissa and exponents that are larger by
//   bf16     s eeeeeeee mmm 0000   120; the codes without a leading 1 are looked up

/// The magnitudes of the codes 0 to 7: multiples of 2^-9.
constexpr auto kSubnormalE4m3 =
    make_table<uint16_t, 32>([](int i) { return bf16_bits(i % 8 * 0x1p-9); });

/// One step of codes as bf16.
[[gnu::always_inline]] inline Bf16x2 load_e4m3_step(const uint8_t* p) {
  const __m512i nan = _mm512_set1_epi16(0x7F);
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m512i codes =
      _mm512_permutexvar_epi16(_mm512_load_si512(kStepInputs.values), _mm512_cvtepi8_epi16(bytes));
  const __m512i magnitudes = _mm512_and_si512(codes, nan);
  const __m512i normal =
      _mm512_add_epi16(_mm512_slli_epi16(magnitudes, 4), _mm512_set1_epi16(120 << 7));
  const __m512i numbers = _mm512_mask_permutexvar_epi16(
      normal, _mm512_cmplt_epu16_mask(magnitudes, _mm512_set1_epi16(8)), magnitudes,
      _mm512_load_si512(kSubnormalE4m3.values));
  const __m512i all = _mm512_mask_mov_epi16(numbers, _mm512_cmpeq_epi16_mask(magnitudes, nan),
                                            _mm512_set1_epi16(0x7FC0));
  const __m512i sign_bit = _mm512_set1_epi16(static_cast<int16_t>(0x8000));
  return _mm512_ternarylogic_epi32(all, codes, sign_bit, 0xF8);  // a | (b & c)
}

/// Codes without their scales.
template <class E>
void decode_e4m3(const DecodeTask& task) {
  uint8_t* const to = task.to;
  for_rows_of_block<E>(
      task.weights, task.rows, task.whole_blocks(),
      task.prefetches, [=](int64_t i, const uint8_t* codes) __attribute__((always_inline)) {
        for (int64_t s = 0; s < 4; ++s) {
          store_bf16x2(to + s * kTmmBytes + 64 * i, load_e4m3_step(codes + 32 * s));
        }
      });
}

template <int kStep, int kSplits>
[[gnu::always_inline]] inline void store_e4m3_step(const uint8_t* codes, Float scale, uint8_t* to) {
  const Bf16x2 words = load_e4m3_step(codes + 32 * kStep);
  store_rounded_step<kStep, kSplits>(mul(first_bf16(words), scale), mul(last_bf16(words), scale),
                                     to);
}
/// Codes times their scales, rounded; kPerStep: groups need not cover blocks.
template <class E, int kSplits, bool kPerStep>
void decode_scaled_e4m3(const DecodeTask& task) {
  const float* scales = task.scales;
  const int64_t stride = task.scale_stride;
  const StepGroups groups = task.groups;
  uint8_t* const to = task.to;
  for_rows_of_block<E>(
      task.weights, task.rows, task.whole_blocks(),
      task.prefetches, [=](int64_t i, const uint8_t* codes) __attribute__((always_inline)) {
        const auto scale = [=](int step) __attribute__((always_inline)) {
          return broadcast(scales[i * stride + groups.of_step[kPerStep ? step : 0]]);
        };
        store_e4m3_step<0, kSplits>(codes, scale(0), to + 64 * i);
        store_e4m3_step<1, kSplits>(codes, scale(1), to + 64 * i);
        store_e4m3_step<2, kSplits>(codes, scale(2), to + 64 * i);
        store_e4m3_step<3, kSplits>(codes, scale(3), to + 64 * i);
      });
  keep_inputs_of_row<kSplits>(task);
}
