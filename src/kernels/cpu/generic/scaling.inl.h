// Scaling: what happens between the sum of one block and the sum of the row. Included inside the
// namespace of an instruction set, after its elements.h.
//
// A product walks over blocks of 8 * kLanes inputs, lane i of a block being inputs 8i .. 8i+7. A
// group of inputs with one scale covers whole blocks, or starts and ends between lanes:
//
//   BroadcastGroups   group = a multiple of the block, or the whole row: one scale in all lanes
//   SpreadGroups      any other multiple of 8: each lane gets the scale of its group
//
// The scales and zero points of a row become floats before its first block (`stage`), a vector at a
// time: where they are used, a load is all that is left of the format. So the loops are compiled
// once for all formats of scales and zero points, and only stage_numbers() and stage_zeros() know
// which they are.
//
// An offset o beside a scale s becomes the zero point -o / s less the center c of the codes, which
// are two roundings: an input's weight is off by 2 u (|s| c + |o|) at most. Where s is 0, or no
// float holds the quotient, s becomes next to nothing beside o.

template <class S>
concept IsScaling = requires(S scaling, const Weights& weights, float* staged, int64_t i, Float v,
                             typename S::Lanes lanes) {
  S(weights, i);  // at block i; next() moves on to the next
  scaling.next();
  S::stage(weights, i, i, i, staged);  // floats for the groups [begin, end) of one row
  // What the lanes of that row need. Those from `valid_lanes` on are padding and get scale 0, so
  // that an infinite scale cannot turn their 0 into NaN.
  { scaling.at(staged, kLanes) } -> IsSame<typename S::Lanes>;
  { S::add_part(v, v, staged, lanes) } -> IsFloat;  // acc + scale * (part - zero * sums[lane])
  { S::weight(v, lanes) } -> IsFloat;               // scale * (value - zero)
};

constexpr int64_t kBlockInputs = 8 * kLanes;
constexpr int64_t kVectorBytes = 4 * kLanes;

/// Bytes that Element::load() reads at a block, which may be more than the block has.
template <class Element>
constexpr int64_t load_bytes() {
  if constexpr (requires { Element::kLoadBytes; }) {
    return Element::kLoadBytes;
  } else {
    return Element::kBits * kLanes;
  }
}

/// How many blocks of a row can be loaded where they lie: nothing may be read after the row, as
/// the file could end there.
template <class Element>
inline int64_t loadable_blocks(const Weights& weights) {
  const int64_t full = weights.cols / kBlockInputs;
  const int64_t room = weights.row_bytes - load_bytes<Element>();
  const int64_t loadable = room < 0 ? 0 : room / (Element::kBits * kLanes) + 1;
  return full < loadable ? full : loadable;
}

/// Copies what the row has of block b into `padded`, of load_bytes() zeros.
template <class Element>
inline void copy_block(const Weights& weights, const uint8_t* codes_of_row, int64_t b,
                       uint8_t* padded) {
  constexpr int64_t kBlockBytes = Element::kBits * kLanes;
  const int64_t left = weights.row_bytes - b * kBlockBytes;
  const int64_t bytes = left < kBlockBytes ? left : kBlockBytes;
  __builtin_memcpy(padded, codes_of_row + b * kBlockBytes, static_cast<unsigned long>(bytes));
}

/// Lanes that block b of a row has, in runs of kLaneInputs or of what kOrder makes of them.
template <InputOrder kOrder = InputOrder::kK8, int kLaneInputs = 8>
inline int lanes_of_block(const Weights& weights, int64_t b) {
  const int64_t inputs = weights.cols - b * kLaneInputs * kLanes;
  if (inputs >= kLaneInputs * kLanes) return kLanes;
  if constexpr (kOrder == InputOrder::kFours) return static_cast<int>((inputs + 31) / 32 * 4);
  return static_cast<int>((inputs + kLaneInputs - 1) / kLaneInputs);
}

template <int kLaneInputs = 8>
inline bool groups_cover_blocks(const Weights& weights) {
  if (kLanes == 1) return true;  // a block is the smallest group
  return weights.group_size >= weights.cols || weights.group_size % (kLaneInputs * kLanes) == 0;
}

/// kLaneInputs: what a lane of a block has of each row, 8 but for products that add up more.
template <int kLaneInputs = 8>
class BroadcastGroups {
 public:
  BroadcastGroups(const Weights& weights, int64_t first_block) {
    // A group that is the whole row never ends.
    const bool whole_row = weights.group_size >= weights.cols;
    blocks_ = whole_row ? INT64_MAX : weights.group_size / (kLaneInputs * kLanes);
    group_ = first_block / blocks_;
    left_ = blocks_ - first_block % blocks_;
  }
  Float at(const float* staged) const { return broadcast(staged[group_]); }
  void next() {
    if (--left_ == 0) {
      ++group_;
      left_ = blocks_;
    }
  }

 private:
  int64_t blocks_;  // per group
  int64_t group_;
  int64_t left_;  // blocks of this group, the present one included
};

template <int kLaneInputs = 8>
class SpreadGroups {
 public:
  SpreadGroups(const Weights& weights, int64_t first_block)
      : group_lanes_(static_cast<int>(weights.group_size / kLaneInputs)),
        groups_per_block_(kLanes / group_lanes_),
        rest_(kLanes % group_lanes_) {
    first_ = first_block * kLanes / group_lanes_;
    offset_ = static_cast<int>(first_block * kLanes % group_lanes_);
    lanes_ = divided_lanes(offset_, group_lanes_);
  }
  Float at(const float* staged) const { return permute(load(staged + first_), lanes_); }
  void next() {
    first_ += groups_per_block_;
    if (rest_ == 0) return;  // the lanes stay as they are
    offset_ += rest_;
    if (offset_ >= group_lanes_) {
      offset_ -= group_lanes_;
      ++first_;
    }
    lanes_ = divided_lanes(offset_, group_lanes_);
  }

 private:
  int64_t first_;         // group of lane 0
  int group_lanes_;       // lanes per group
  int groups_per_block_;  // kLanes / group_lanes_
  int rest_;              // kLanes % group_lanes_
  int offset_;            // of lane 0 in its group, in lanes
  Lanes lanes_;           // group of each lane, counted from first_
};

/// Floats of one row that are staged: scales, then zero points, each with room for a whole vector
/// after the last.
inline int64_t staged_half(int64_t groups) {
  return (groups + 2 * kLanes - 1) / kLanes * kLanes;
}
inline int64_t staged_floats(int64_t groups) {
  return 2 * staged_half(groups);
}

template <Format kNumber>
inline void stage_numbers_as(const uint8_t* numbers, int64_t group, int64_t count, float* staged) {
  constexpr int64_t kBytes = scale_bytes(kNumber);
  const auto stage_vector = [&](int64_t g, int lanes) __attribute__((always_inline)) {
    store(staged + g, load_scales<kNumber>(numbers + (group + g) * kBytes, lanes));
  };
  int64_t g = 0;
  for (; g + kLanes <= count; g += kLanes) stage_vector(g, kLanes);
  if (g < count) stage_vector(g, static_cast<int>(count - g));
}

/// Bytes less kCenter, times the factors of f16 that lie after all groups of the row. A superblock
/// has a power of two of groups.
template <int kCenter>
inline void stage_two_levels(const Weights& weights, const uint8_t* numbers, int64_t group,
                             int64_t count, float* staged) {
  const int shift =
      __builtin_ctz(kSuperblock) - __builtin_ctz(static_cast<unsigned>(weights.group_size));
  const int of_superblock = 1 << shift;
  const uint8_t* factors = numbers + weights.groups;
  const auto stage_with = [&](Float factor, int64_t at, int lanes) __attribute__((always_inline)) {
    const Float integer = load_zeros<Zero::kU8>(numbers + group + at, lanes);
    store(staged + at, mul(sub(integer, broadcast(kCenter)), factor));
  };
  int64_t g = 0;
  if (of_superblock % kLanes == 0 && group % of_superblock == 0) {
    for (; g + of_superblock <= count; g += of_superblock) {
      const uint8_t* from = factors + 2 * ((group + g) >> shift);
      const Float factor = permute(load_scales<Format::kF16>(from, 1), Lanes{});
      for (int64_t i = g; i < g + of_superblock; i += kLanes) stage_with(factor, i, kLanes);
    }
  }
  int offset_of_lanes = -1;
  Lanes superblocks = {};
  for (; g < count; g += kLanes) {
    const int lanes = static_cast<int>(count - g < kLanes ? count - g : kLanes);
    const int64_t first = group + g;
    const int offset = static_cast<int>(first) & (of_superblock - 1);
    if (offset != offset_of_lanes) superblocks = divided_lanes(offset, of_superblock);
    offset_of_lanes = offset;
    const int touched = (offset + lanes - 1) / of_superblock + 1;
    const uint8_t* from = factors + 2 * (first >> shift);
    stage_with(permute(load_scales<Format::kF16>(from, touched), superblocks), g, lanes);
  }
}

/// Makes floats of the `count` numbers from `group` on of a row, to whole vectors.
[[gnu::noinline]] inline void stage_numbers(const Weights& weights, const uint8_t* numbers,
                                            Format format, int64_t group, int64_t count,
                                            float* staged) {
  switch (format) {
    case Format::kF16:
      return stage_numbers_as<Format::kF16>(numbers, group, count, staged);
    case Format::kBF16:
      return stage_numbers_as<Format::kBF16>(numbers, group, count, staged);
    case Format::kE8M0:
      return stage_numbers_as<Format::kE8M0>(numbers, group, count, staged);
    case Format::kE4M3:
      return stage_numbers_as<Format::kE4M3>(numbers, group, count, staged);
    case Format::kE4M4:
      return stage_numbers_as<Format::kE4M4>(numbers, group, count, staged);
    case Format::kU4:
    case Format::kU6:
      return stage_two_levels<0>(weights, numbers, group, count, staged);
    case Format::kI6:
      return stage_two_levels<32>(weights, numbers, group, count, staged);
    case Format::kI8:
      return stage_two_levels<128>(weights, numbers, group, count, staged);
    default:
      return stage_numbers_as<Format::kF32>(numbers, group, count, staged);
  }
}

template <Zero kZero>
inline void stage_zeros_as(const uint8_t* zeros, int64_t group, int64_t count, float center,
                           float* staged) {
  constexpr int64_t kBytes = zero_bytes(kZero);
  const auto stage_vector = [&](int64_t g, int lanes) __attribute__((always_inline)) {
    const Float zero = load_zeros<kZero>(zeros + (group + g) * kBytes, lanes);
    store(staged + g, sub(zero, broadcast(center)));
  };
  int64_t g = 0;
  for (; g + kLanes <= count; g += kLanes) stage_vector(g, kLanes);
  if (g < count) stage_vector(g, static_cast<int>(count - g));
}

/// The offset `zero` as a zero point less `center`.
inline void divide_offset(float center, float& scale, float& zero) {
  constexpr float kNextToNothing = 0x1p-40f;
  float quotient = zero / scale;
  if (!(__builtin_fabsf(quotient) <= __FLT_MAX__)) {
    scale = zero * kNextToNothing;
    quotient = scale == 0 ? 0 : zero / scale;
  }
  zero = -quotient - center;
}
/// The same of all that `zeros` holds, to whole vectors.
inline void divide_offsets(int64_t count, float center, float* scales, float* zeros) {
  for (int64_t g = 0; g < count; g += kLanes) {
    const Float quotients = div(load(zeros + g), load(scales + g));
    if (are_finite(quotients)) {
      store(zeros + g, sub(sub(zero(), quotients), broadcast(center)));
      continue;
    }
    const int64_t end = count - g < kLanes ? count : g + kLanes;
    for (int64_t i = g; i < end; ++i) divide_offset(center, scales[i], zeros[i]);
  }
}

/// Makes floats, less `center`, of `count` zero points from `group` on of a row, to whole vectors.
/// Their scales are staged.
[[gnu::noinline]] inline void stage_zeros(const Weights& weights, const uint8_t* zeros,
                                          int64_t group, int64_t count, float center, float* scales,
                                          float* staged) {
  if (weights.zero == Zero::kU8) {
    return stage_zeros_as<Zero::kU8>(zeros, group, count, center, staged);
  }
  if (weights.zero == Zero::kU16) {
    return stage_zeros_as<Zero::kU16>(zeros, group, count, center, staged);
  }
  stage_numbers(weights, zeros, weights.offset, group, count, staged);
  divide_offsets(count, center, scales, staged);
}

template <int kCenter, bool kHasZeros, class Groups>
class GroupScaling {
 public:
  struct Lanes {
    Float scale;
    Float zero;  // less kCenter; without zero points it is 0: codes are less kCenter, too
  };

  /// Scaling of a row that was staged beside others, `rows` of them at most.
  GroupScaling(const Weights& weights, int64_t first_block, int64_t rows = 1)
      : groups_(weights, first_block), zeros_(staged_half(rows * weights.groups)) {}

  /// Says whether scales and zero points of neighbours are one run of numbers each, and few enough
  /// that four rows have room where a row with the smallest groups has.
  static bool can_stage_rows(const Weights& weights) {
    const bool are_numbers = weights.scale == Format::kF16 || weights.scale == Format::kBF16 ||
                             weights.scale == Format::kF32;
    const bool are_integers = !kHasZeros || weights.zero == Zero::kU8 || weights.zero == Zero::kU16;
    return kLanes > 1 && are_numbers && are_integers && weights.group_size >= 64;
  }
  /// Floats for the groups of rows [row, row + count) of `rows` at most: those of row i begin at
  /// i * groups. Lanes after the last row get zero points of 0, as they may meet inputs of 0.
  static void stage_rows(const Weights& weights, int64_t row, int64_t count, int64_t rows,
                         float* staged) {
    const int64_t groups = count * weights.groups;
    float* zeros = staged + staged_half(rows * weights.groups);
    stage_vector(weights, row, 0, groups, staged, zeros);
    if (kHasZeros) store(zeros + groups, zero());
  }

  static void stage(const Weights& weights, int64_t row, int64_t begin, int64_t end,
                    float* staged) {
    stage_vector(weights, row, begin, end - begin, staged + begin,
                 staged + staged_half(weights.groups) + begin);
  }
  /// The same of `count` groups from g on, to whole vectors.
  static void stage_vector(const Weights& weights, int64_t row, int64_t g, int64_t count,
                           float* scales, float* zeros) {
    const uint8_t* numbers = weights.scales + row * weights.scale_row_bytes;
    if (weights.scale == Format::kF16) {  // what most have: a call takes as long as a short row's
      stage_numbers_as<Format::kF16>(numbers, g, count, scales);
    } else {
      stage_numbers(weights, numbers, weights.scale, g, count, scales);
    }
    if constexpr (kHasZeros) {
      stage_zeros(weights, weights.zeros + row * weights.zero_row_bytes, g, count, kCenter, scales,
                  zeros);
    }
  }
  [[gnu::always_inline]] Lanes at(const float* staged, int valid_lanes) const {
    Lanes lanes;
    lanes.scale = groups_.at(staged);
    // Where the number is not known when this is compiled, a mask costs less than a branch.
    if (!__builtin_constant_p(valid_lanes) || valid_lanes < kLanes) {
      lanes.scale = keep_first(lanes.scale, valid_lanes);
    }
    lanes.zero = kHasZeros ? groups_.at(staged + zeros_) : zero();
    return lanes;
  }
  static Float add_part(Float acc, Float part, const float* sums, const Lanes& lanes) {
    if constexpr (kHasZeros) part = fnma(lanes.zero, load(sums), part);
    return fma(lanes.scale, part, acc);
  }
  static Float weight(Float value, const Lanes& lanes) {
    if constexpr (kHasZeros) value = sub(value, lanes.zero);
    return mul(lanes.scale, value);
  }
  void next() { groups_.next(); }

 private:
  Groups groups_;
  int64_t zeros_;  // where zero points are staged
};

/// The numbers from g on of a superblock that has a vector of groups.
inline Float load_superblock(const uint8_t* numbers, int64_t groups, int64_t g) {
  const uint8_t* factor = numbers + groups + 2 * (g / kLanes);
  return mul(load_zeros<Zero::kU8>(numbers + g, kLanes),
             permute(load_scales<Format::kF16>(factor, 1), Lanes{}));
}

/// Offsets as they are: no quotient of each, but one more multiply-add of a sum.
template <int kCenter, class Groups>
class OffsetScaling {
 public:
  struct Lanes {
    Float scale;
    Float offset;  // and kCenter scales, as parts are of codes less kCenter
  };

  OffsetScaling(const Weights& weights, int64_t first_block)
      : groups_(weights, first_block), offsets_(staged_half(weights.groups)) {}

  static void stage(const Weights& weights, int64_t row, int64_t begin, int64_t end,
                    float* staged) {
    float* offsets = staged + staged_half(weights.groups);
    const uint8_t* scale_numbers = weights.scales + row * weights.scale_row_bytes;
    const uint8_t* offset_numbers = weights.zeros + row * weights.zero_row_bytes;
    const int of_superblock = static_cast<int>(kSuperblock / weights.group_size);
    const bool same = weights.scale == Format::kU6 && weights.offset == Format::kU6;
    const bool whole_row = begin == 0 && end == weights.groups && end % kLanes == 0;
    if (same && of_superblock == kLanes && whole_row) {
      return stage_superblocks(scale_numbers, offset_numbers, end, staged, offsets);
    }
    stage_numbers(weights, scale_numbers, weights.scale, begin, end - begin, staged + begin);
    stage_numbers(weights, offset_numbers, weights.offset, begin, end - begin, offsets + begin);
    for (int64_t g = begin; g < end; g += kLanes) {
      store(offsets + g, fma(load(staged + g), broadcast(kCenter), load(offsets + g)));
    }
  }
  [[gnu::always_inline]] Lanes at(const float* staged, int valid_lanes) const {
    Lanes lanes = {groups_.at(staged), groups_.at(staged + offsets_)};
    if (!__builtin_constant_p(valid_lanes) || valid_lanes < kLanes) {
      lanes.scale = keep_first(lanes.scale, valid_lanes);
      lanes.offset = keep_first(lanes.offset, valid_lanes);
    }
    return lanes;
  }
  static Float add_part(Float acc, Float part, const float* sums, const Lanes& lanes) {
    return fma(lanes.offset, load(sums), fma(lanes.scale, part, acc));
  }
  static Float weight(Float value, const Lanes& lanes) {
    return fma(lanes.scale, value, lanes.offset);
  }
  void next() { groups_.next(); }

 private:
  /// The same of a row whose superblocks are a vector of groups each: that of Q4_K and Q5_K, for
  /// which three loops over a short row take as long as its products.
  [[gnu::noinline]] static void stage_superblocks(const uint8_t* scale_numbers,
                                                  const uint8_t* offset_numbers, int64_t groups,
                                                  float* scales, float* offsets) {
    for (int64_t g = 0; g < groups; g += kLanes) {
      const Float scale = load_superblock(scale_numbers, groups, g);
      const Float offset = load_superblock(offset_numbers, groups, g);
      store(scales + g, scale);
      store(offsets + g, fma(scale, broadcast(kCenter), offset));
    }
  }

  Groups groups_;
  int64_t offsets_;  // where they are staged
};

/// Dense weights are what their elements say.
class DenseScaling {
 public:
  struct Lanes {};

  DenseScaling(const Weights&, int64_t) {}
  static void stage(const Weights&, int64_t, int64_t, int64_t, float*) {}
  Lanes at(const float*, int) const { return {}; }
  static Float add_part(Float acc, Float part, const float*, const Lanes&) {
    return add(acc, part);
  }
  static Float weight(Float value, const Lanes&) { return value; }
  void next() {}
};
