// The weights of digit_tiles.inl.h: bytes, and the scales and zero points that come with their
// sums. Included inside the namespace of an instruction set with tiles, after tile_panels.inl.h.
//
// Integers are bytes as they are. MXFP4 has four groups in a block, whose scales are powers of two:
// they go into the bytes as far as those reach, and what is left is one scale for the block:
//
//   element * 2^e(group)  =  (2 * element * 2^d) * 2^(top - 4),   d = e(group) - top + 3, 0 to 3
//
// with `top` the largest e of the block: 2 * 6 * 2^3 is 96. Groups with e < top - 3 are zeros in
// the first pass, and have another, in which `top` is the largest e of those that are left: four
// passes at most. Weights whose sizes do not differ by 16 from one group to the next need one.

constexpr int64_t kBlockQuads = kBlockInputs / 32;  // groups of MXFP4

/// How codes become bytes, of inputs 8 q + 2 b and of 8 q + 2 b + 1 for byte b of lane q.
template <Format kElement>
struct DigitCodes {
  using E = Element<kElement>;
  static constexpr bool kSigned = false;
  static constexpr bool kZeros = true;
  static constexpr float kCenter = E::kCenter;

  /// Blocks of a group, whose scale is staged once.
  static int64_t group_blocks(const Weights& weights) { return weights.group_size / kBlockInputs; }
  /// Staged scales of a row; zero points lie behind them.
  static int64_t scales_of_row(const Weights& weights) { return weights.groups; }
  [[gnu::always_inline]] static void decode(const uint8_t* codes, const float*, uint8_t* even,
                                            uint8_t* odd) {
    if constexpr (E::kBits == 8) {
      const auto bytes = OctetBytes<kElement>::load(codes);
      store_int(even, bytes.even);
      store_int(odd, bytes.odd);
    } else {
      const Int all = E::load(codes);
      store_int(even, code_bytes<E::kBits, 0>(all));
      store_int(odd, code_bytes<E::kBits, 1>(all));
    }
  }
};

/// Of each d the codes of E2M1: 2 * element * 2^d.
constexpr ByteTable make_shifted_e2m1() {
  ByteTable table{};
  for (int i = 0; i < 64; ++i) {
    const double value = 2 * Codebook<Format::kE2M1>::value(i % 16) * (1 << i / 16);
    table.bytes[i] = static_cast<uint8_t>(static_cast<int>(value));
  }
  return table;
}
constexpr ByteTable kShiftedE2m1 = make_shifted_e2m1();

/// MXFP4. In the place of zero points lie four bytes for each block: for a group 16 d + 15, or 0 if
/// it is none of this pass.
template <>
struct DigitCodes<Format::kE2M1> {
  using E = Element<Format::kE2M1>;
  static constexpr bool kSigned = true;
  static constexpr bool kZeros = false;
  static constexpr float kCenter = 0;

  static int64_t group_blocks(const Weights&) { return 1; }
  static int64_t scales_of_row(const Weights& weights) {
    return (weights.cols + kBlockInputs - 1) / kBlockInputs;
  }
  [[gnu::always_inline]] static void decode(const uint8_t* codes, const float* shifts,
                                            uint8_t* even, uint8_t* odd) {
    const Int table = load_int(kShiftedE2m1.bytes);
    const Int spread = spread_bytes(broadcast_word(reinterpret_cast<const uint8_t*>(shifts)));
    const Int all = load_int(codes);
    store_int(even, look_up_bytes(keep_low_bits(all, spread), table));
    store_int(odd, look_up_bytes(keep_low_bits(shift_right<4>(all), spread), table));
  }
};

/// What comes with the sums of one row: scales and zero points, or what DigitCodes says. Those of
/// the row a strip later are asked for. Returns whether some block needs another pass.
using StageDigitRow = bool (*)(const Weights& weights, int64_t row, float* staged);

inline void prefetch_bytes(const uint8_t* bytes, int64_t begin, int64_t count) {
  for (int64_t i = 0; i < count; i += 64) prefetch<64>(bytes, begin + i);
}

template <class Scaling>
bool stage_digit_row(const Weights& weights, int64_t row, float* staged) {
  const int64_t scale_bytes = weights.groups * Scaling::kScaleBytes;
  const int64_t zero_bytes = weights.groups * Scaling::kZeroBytes;
  prefetch_bytes(weights.scales, (row + kStripRows) * scale_bytes, scale_bytes);
  prefetch_bytes(weights.zeros, (row + kStripRows) * zero_bytes, zero_bytes);
  Scaling::stage(weights, row, 0, weights.groups, staged);
  return false;
}

/// The scale codes of one row of MXFP4, a byte for each 32 inputs.
class ScaleCodes {
 public:
  ScaleCodes(const Weights& weights, int64_t row)
      : codes_(weights.scales + row * weights.groups),
        quads_((weights.cols + 31) / 32),
        group_size_(weights.group_size) {}

  int64_t quads() const { return quads_; }
  /// Those from quad `begin` on, a multiple of 64, and zeros behind the last.
  Int load(int64_t begin) const {
    if (group_size_ == 32) return load_first_bytes(codes_ + begin, quads_ - begin);
    alignas(64) uint8_t spread[64] = {};
    for (int64_t i = 0; i < 64 && begin + i < quads_; ++i) spread[i] = at(begin + i);
    return load_int(spread);
  }
  uint8_t at(int64_t quad) const { return codes_[32 * quad / group_size_]; }

 private:
  const uint8_t* codes_;
  int64_t quads_;  // 32 inputs, the last of which may be fewer
  int64_t group_size_;
};

inline bool stage_mxfp4_row(const Weights& weights, int64_t row, float* staged) {
  prefetch_bytes(weights.scales, (row + kStripRows) * weights.groups, weights.groups);
  const ScaleCodes codes(weights, row);
  float* shifts = staged + staged_half(DigitCodes<Format::kE2M1>::scales_of_row(weights));
  bool more = false;
  for (int64_t quad = 0; quad < codes.quads(); quad += 64) {
    const int64_t block = quad / kBlockQuads;
    const Int scales = codes.load(quad);
    const Int top = max_byte_of_lane(scales);
    const auto [words, behind] = shift_bytes(scales, top, codes.quads() - quad);
    store(staged + block, powers_of_two<-131>(top));
    store_int(reinterpret_cast<uint8_t*>(shifts + block), words);
    more |= behind;
  }
  return more;
}

/// One more pass over a block of one row. Returns whether there is something for it to add.
inline bool stage_mxfp4_pass(const Weights& weights, int64_t row, int64_t block, int pass,
                             float* staged) {
  const ScaleCodes codes(weights, row);
  const int64_t first = block * kBlockQuads;
  const int64_t left = codes.quads() - first;
  const int64_t count = left < kBlockQuads ? left : kBlockQuads;
  uint8_t shifts[kBlockQuads] = {};
  bool done[kBlockQuads] = {};
  int top = -1;
  for (int i = 0; i <= pass; ++i) {
    top = -1;
    for (int64_t q = 0; q < count; ++q) {
      if (!done[q] && codes.at(first + q) > top) top = codes.at(first + q);
    }
    for (int64_t q = 0; q < count; ++q) {
      const int behind = top - codes.at(first + q);
      const bool now = !done[q] && behind <= 3;
      shifts[q] = now ? static_cast<uint8_t>((3 - behind) * 16 + 15) : 0;
      done[q] |= now;
    }
  }
  const int64_t half = staged_half(DigitCodes<Format::kE2M1>::scales_of_row(weights));
  staged[block] = top < 0 ? 0 : power_of_two<-131>(top);
  __builtin_memcpy(staged + half + block, shifts, sizeof(shifts));
  return top >= 0;
}
