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
// passes at most. A block whose scales lie within a factor of 8 needs one.

constexpr int64_t kBlockQuads = kBlockInputs / 32;  // groups of MXFP4

/// How codes become bytes, of inputs 8 q + 2 b and of 8 q + 2 b + 1 for byte b of lane q.
template <Format kElement>
struct DigitCodes {
  using E = OctetBytes<kElement>;
  static constexpr bool kSigned = false;
  static constexpr bool kZeros = true;
  static constexpr float kCenter = 1 << E::kShift;

  /// Blocks of a group, whose scale is staged once.
  static int64_t group_blocks(const Weights& weights) { return weights.group_size / kBlockInputs; }
  /// Staged scales of a row; zero points lie behind them.
  static int64_t scales_of_row(const Weights& weights) { return weights.groups; }
  [[gnu::always_inline]] static void decode(const uint8_t* codes, const float*, uint8_t* even,
                                            uint8_t* odd) {
    const auto bytes = E::load(codes);
    store_int(even, bytes.even);
    store_int(odd, bytes.odd);
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

/// What the first pass has left of one block in the rows of a tile: groups whose scales are too far
/// below the largest of their row. Further passes are staged in the place of the first.
class GroupsLeft {
 public:
  /// `staged` is that of `row`, the first of `rows`; the next row's lies `stride` floats behind.
  GroupsLeft(const Weights& weights, int64_t row, int64_t rows, int64_t block, float* staged,
             int64_t stride)
      : rows_(rows),
        scales_(staged + block),
        shifts_(scales_ + staged_half(DigitCodes<Format::kE2M1>::scales_of_row(weights))),
        stride_(stride) {
    const int64_t first = block * kBlockQuads;
    const int64_t left = (weights.cols + 31) / 32 - first;
    const int64_t count = left < kBlockQuads ? left : kBlockQuads;
    for (int64_t i = 0; i < rows; ++i) {
      if (!leaves_groups(shifts_ + i * stride, count)) continue;
      if (!any_) __builtin_memset(codes_, 0xFF, sizeof(codes_));
      any_ = true;
      const ScaleCodes codes(weights, row + i);
      const auto* shifts = reinterpret_cast<const uint8_t*>(shifts_ + i * stride);
      for (int64_t q = 0; q < count; ++q) {
        if (shifts[q] == 0) codes_[i][q] = codes.at(first + q);
      }
    }
  }

  /// Returns whether there is something left for another pass, which is staged then.
  bool stage_pass() {
    if (!any_) return false;
    any_ = false;
    for (int64_t i = 0; i < rows_; ++i) any_ |= stage_row(i);
    return any_;
  }

 private:
  /// Whether one of the first `count` shifts is zero; the others end in four ones.
  static bool leaves_groups(const float* shifts, int64_t count) {
    uint32_t word = 0;
    __builtin_memcpy(&word, shifts, sizeof(word));
    const uint32_t groups = 0x0F0F0F0Fu >> (8 * (kBlockQuads - count));
    return (word & groups) != groups;
  }
  bool stage_row(int64_t i) {
    int top = -1;
    for (const int16_t code : codes_[i]) top = code > top ? code : top;
    uint8_t shifts[kBlockQuads] = {};
    for (int64_t q = 0; q < kBlockQuads && top >= 0; ++q) {
      const int behind = top - codes_[i][q];
      if (codes_[i][q] < 0 || behind > 3) continue;
      shifts[q] = static_cast<uint8_t>((3 - behind) * 16 + 15);
      codes_[i][q] = -1;
    }
    scales_[i * stride_] = top < 0 ? 0 : power_of_two<-131>(top);
    __builtin_memcpy(shifts_ + i * stride_, shifts, sizeof(shifts));
    return top >= 0;
  }

  int64_t rows_;
  float* scales_;
  float* shifts_;
  int64_t stride_;
  bool any_ = false;
  int16_t codes_[kTileRows][kBlockQuads];  // of their scales; -1: none, or done
};
