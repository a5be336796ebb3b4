// The weights of few_rows_int8.inl.h: bytes, and the scales and zero points that come with their
// sums. Included inside the namespace of an instruction set with tiles, after few_rows.inl.h.
//
// Integers are bytes as they are. MXFP4 has four groups in a block, whose scales are powers of two:
// they go into the bytes as far as those reach, and what is left is one scale for the block:
//
//   element * 2^e(group)  =  (2 * element * 2^d) * 2^(top - 4),   d = e(group) - top + 3, 0 to 3
//
// with `top` the largest e of the block: 2 * 6 * 2^3 is 96. Groups with e < top - 3 are zeros in
// the first pass, and each has a pass of its own after it, in which d is 3. A block whose scales
// lie within a factor of 8 needs one pass. Groups of zeros, as padding is, have no say in that,
// whatever their scale, unless it is NaN.

constexpr int64_t kStepsOfBlock = kBlockInputs / 32;  // groups of MXFP4

/// Codes as bytes, of inputs 8 q + 2 b and of 8 q + 2 b + 1 for byte b of lane q; what is staged
/// for each output: `per_row` scales, and as many zero points or what decode() reads.
template <Format kElement, class Scaling, bool kZeros>
struct Int8Codes {
  using Codes = K8Bytes<kElement>;
  static constexpr bool kSigned = false;
  static constexpr bool kHasZeros = kZeros;
  static constexpr bool kHasRows = true;  // scales of whole rows
  static constexpr float kCenter = 1 << Codes::kShift;
  static constexpr int kPasses = 1;

  static int64_t per_row(const Weights& weights) { return weights.groups; }
  /// Blocks with one scale; INT64_MAX: the row's, which multiplies results.
  static int64_t scale_blocks(const Weights& weights) {
    return weights.group_size < weights.cols ? weights.group_size / kBlockInputs : INT64_MAX;
  }
  static bool stage(const Weights& weights, int64_t row, float* staged) {
    prefetch_panel_scales(weights, row);
    Scaling::stage(weights, row, 0, weights.groups, staged);
    return false;
  }
  [[gnu::always_inline]] static void decode(const uint8_t* codes, const float*, uint8_t* even,
                                            uint8_t* odd) {
    const auto bytes = Codes::load(codes);
    store_int(even, bytes.even);
    store_int(odd, bytes.odd);
  }
};

/// Codes of E2M1 for each d: 2 * element * 2^d.
constexpr auto kShiftedE2m1 = make_table<uint8_t, 64>([](int i) {
  return static_cast<int>(2 * Codebook<Format::kE2M1>::value(i % 16) * (1 << i / 16));
});

/// The scale codes of one row of MXFP4, a byte for each 32 inputs.
class ScaleCodes {
 public:
  ScaleCodes(const Weights& weights, int64_t row)
      : codes_(weights.scales + row * weights.groups),
        steps_((weights.cols + 31) / 32),
        group_size_(weights.group_size) {}

  int64_t steps() const { return steps_; }
  /// Those of 64 steps, and zeros after the last.
  Int load(int64_t begin) const {
    if (group_size_ == 32) {
      return _mm512_maskz_loadu_epi8(first_bytes(steps_ - begin), codes_ + begin);
    }
    alignas(64) uint8_t spread[64] = {};
    for (int64_t i = 0; i < 64 && begin + i < steps_; ++i) spread[i] = at(begin + i);
    return load_int(spread);
  }
  uint8_t at(int64_t step) const { return codes_[32 * step / group_size_]; }
  static uint64_t first_bytes(int64_t count) {
    return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
  }

 private:
  const uint8_t* codes_;
  int64_t steps_;  // 32 inputs, the last of which may be fewer
  int64_t group_size_;
};

/// 2^(c - 131) for the lowest byte c of each lane, NaN for 255: scales of E8M0 by 2^-4. They are
/// put together from bits, as an instruction whose result is denormal takes some 250 cycles, and
/// lanes after the last block have the code 0.
inline Float block_scales(Int codes) {
  constexpr int kLargestDenormal = 4;  // 2^-127; 2^-131 is bit 18
  const Int low = and_bits(codes, 0xFFu);
  const Int normal = _mm512_slli_epi32(_mm512_sub_epi32(low, _mm512_set1_epi32(4)), 23);
  const Int denormal =
      _mm512_sllv_epi32(_mm512_set1_epi32(1), _mm512_add_epi32(low, _mm512_set1_epi32(18)));
  const __mmask16 is_denormal = _mm512_cmple_epi32_mask(low, _mm512_set1_epi32(kLargestDenormal));
  const __mmask16 nan = _mm512_cmpeq_epi32_mask(low, _mm512_set1_epi32(255));
  const Int power = _mm512_mask_mov_epi32(normal, is_denormal, denormal);
  return _mm512_mask_mov_ps(_mm512_castsi512_ps(power), nan, broadcast(__builtin_nanf("")));
}

/// MXFP4. In the place of zero points lie four bytes for each block: for a group 16 d + 15, or 0 if
/// it is none of this pass.
struct Mxfp4Codes {
  using Codes = Element<Format::kE2M1>;
  static constexpr bool kSigned = true;
  static constexpr bool kHasZeros = false;
  static constexpr bool kHasRows = false;
  static constexpr float kCenter = 0;
  static constexpr int kPasses = kStepsOfBlock;
  static constexpr uint32_t kWholeShift = 16 * 3 + 15;
  static constexpr int64_t kGroupBytes = 16;

  static int64_t per_row(const Weights& weights) {
    return (weights.cols + kBlockInputs - 1) / kBlockInputs;
  }
  static int64_t scale_blocks(const Weights&) { return 1; }

  /// Returns whether some block needs more than one pass.
  static bool stage(const Weights& weights, int64_t row, float* staged) {
    const int64_t later = (row + kPanelOutputs) * weights.groups;
    for (int64_t i = 0; i < weights.groups; i += 64) prefetch<64>(weights.scales, later + i);
    const ScaleCodes codes(weights, row);
    float* shifts = staged + staged_half(per_row(weights));
    bool more = false;
    for (int64_t step = 0; step < codes.steps(); step += 64) {
      const int64_t block = step / kStepsOfBlock;
      const __mmask64 there = ScaleCodes::first_bytes(codes.steps() - step);
      Int scales = codes.load(step);
      Int top = largest_of_lane(scales);
      __mmask64 near = groups_near(top, scales);
      if (const __mmask64 far = ~near & there; far != 0) {
        const __mmask64 zeros = groups_of_zeros(weights, row, step, scales, far);
        scales = _mm512_mask_blend_epi8(zeros, scales, _mm512_setzero_si512());
        top = largest_of_lane(scales);
        // Scale and shift of zeros are of no matter: they take those of the largest.
        scales = _mm512_mask_blend_epi8(zeros, scales, top);
        near = groups_near(top, scales);
        more |= (~near & there) != 0;
      }
      // No byte shifts into the next, as what it shifts is 3 at most.
      const Int d = _mm512_maskz_sub_epi8(near, _mm512_set1_epi8(3), _mm512_sub_epi8(top, scales));
      store(staged + block, block_scales(top));
      store_int(reinterpret_cast<uint8_t*>(shifts + block),
                or_bits(_mm512_slli_epi32(d, 4), _mm512_maskz_set1_epi8(near, 15)));
    }
    return more;
  }
  [[gnu::always_inline]] static void decode(const uint8_t* codes, const float* shifts,
                                            uint8_t* even, uint8_t* odd) {
    const Int table = load_int(kShiftedE2m1.values);
    // Byte q of the block's four in all bytes of quarter q.
    const Int spread = _mm512_shuffle_epi8(
        broadcast_word(reinterpret_cast<const uint8_t*>(shifts)),
        _mm512_set_epi64(0x0303030303030303, 0x0303030303030303, 0x0202020202020202,
                         0x0202020202020202, 0x0101010101010101, 0x0101010101010101, 0, 0));
    const Int all = load_int(codes);
    store_int(even, look_up_shifted(all, spread, table));
    store_int(odd, look_up_shifted(shift_right<4>(all), spread, table));
  }

 private:
  /// In all bytes of the lane.
  static Int largest_of_lane(Int bytes) {
    const Int halves = _mm512_max_epu8(bytes, _mm512_rol_epi32(bytes, 16));
    return _mm512_max_epu8(halves, _mm512_rol_epi32(halves, 8));
  }
  static __mmask64 groups_near(Int top, Int scales) {
    return _mm512_cmple_epu8_mask(_mm512_sub_epi8(top, scales), _mm512_set1_epi8(3));
  }
  /// Which groups, of the blocks with one of `far`, from `step` on, have no weight but 0, and a
  /// scale that is a number.
  [[gnu::noinline]] static __mmask64 groups_of_zeros(const Weights& weights, int64_t row,
                                                     int64_t step, Int scales, __mmask64 far) {
    const uint8_t* codes = weights.codes + row * weights.row_bytes;
    const int64_t later = (row + kPanelOutputs) * weights.row_bytes;  // mostly far apart as well
    prefetch<64>(weights.codes, later + (step + __builtin_ctzll(far)) * kGroupBytes);
    const __mmask16 blocks = _mm512_test_epi32_mask(_mm512_movm_epi8(far), _mm512_movm_epi8(far));
    uint64_t left = _mm512_movepi8_mask(_mm512_movm_epi32(blocks));
    __mmask64 zeros = 0;
    for (; left != 0; left &= left - 1) {
      const int i = __builtin_ctzll(left);
      if (is_zero(codes, (step + i) * kGroupBytes, weights.row_bytes)) zeros |= uint64_t{1} << i;
    }
    return zeros & _mm512_cmpneq_epi8_mask(scales, _mm512_set1_epi8(-1));
  }
  /// Looks at the group at byte `begin` of a row, which may end before it does, or has.
  static bool is_zero(const uint8_t* codes, int64_t begin, int64_t row_bytes) {
    uint64_t halves[2] = {};
    const int64_t bytes = row_bytes - begin < kGroupBytes ? row_bytes - begin : kGroupBytes;
    if (bytes == kGroupBytes) {
      __builtin_memcpy(halves, codes + begin, kGroupBytes);
    } else if (bytes > 0) {
      __builtin_memcpy(halves, codes + begin, bytes);
    }
    return ((halves[0] | halves[1]) & 0x7777777777777777) == 0;
  }
  /// The lower four bits of each byte of `codes`, kept where `spread` ends in ones, and its upper.
  static Int look_up_shifted(Int codes, Int spread, Int table) {
    const Int indices = _mm512_ternarylogic_epi32(codes, spread, _mm512_set1_epi8(0x0F), 0xC4);
    return _mm512_permutexvar_epi8(indices, table);  // b & (a | ~c), six bits of it
  }
};

/// The groups that the first pass has left out of one block, in the outputs of a tile.
class GroupsLeft {
 public:
  /// `staged` is that of the first output; the next one's lies `stride` floats after it.
  bool begin(const Weights& weights, const BlockRows& rows, float* staged, int64_t stride) {
    staged_ = staged + rows.b;
    shifts_ = staged_ + staged_half(Mxfp4Codes::per_row(weights));
    stride_ = stride;
    const int64_t left = (weights.cols + 31) / 32 - rows.b * kStepsOfBlock;
    steps_ = left < kStepsOfBlock ? left : kStepsOfBlock;
    bool any = false;
    for (int64_t i = 0; i < rows.count(); ++i) {
      __builtin_memcpy(first_pass_[i], shifts_ + i * stride, kStepsOfBlock);
      for (int64_t s = 0; s < steps_; ++s) any |= first_pass_[i][s] == 0;
    }
    return any;
  }
  /// Stages group `step` alone, for the outputs where it was left out; returns whether there are
  /// any.
  bool stage(const Weights& weights, const BlockRows& rows, int64_t step) {
    bool any = false;
    for (int64_t i = 0; i < rows.count() && step < steps_; ++i) {
      const bool is_left = first_pass_[i][step] == 0;
      const int code =
          is_left ? ScaleCodes(weights, rows.first() + i).at(rows.b * kStepsOfBlock + step) : 0;
      uint8_t shifts[kStepsOfBlock] = {};
      if (is_left) shifts[step] = Mxfp4Codes::kWholeShift;
      __builtin_memcpy(shifts_ + i * stride_, shifts, sizeof(shifts));
      staged_[i * stride_] = is_left ? _mm512_cvtss_f32(block_scales(_mm512_set1_epi32(code))) : 0;
      any |= is_left;
    }
    return any;
  }

 private:
  float* staged_ = nullptr;
  float* shifts_ = nullptr;
  int64_t stride_ = 0;
  int64_t steps_ = 0;  // that the block has
  uint8_t first_pass_[kTileRows][kStepsOfBlock];
};
