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

/// Lanes that block b of a row has, in runs of 8 inputs or of what kOrder makes of them.
template <InputOrder kOrder = InputOrder::kK8>
inline int lanes_of_block(const Weights& weights, int64_t b) {
  const int64_t inputs = weights.cols - b * kBlockInputs;
  if (inputs >= kBlockInputs) return kLanes;
  if constexpr (kOrder == InputOrder::kFours) return static_cast<int>((inputs + 31) / 32 * 4);
  return static_cast<int>(inputs / 8);
}

inline bool groups_cover_blocks(const Weights& weights) {
  if (kLanes == 1) return true;  // a block is the smallest group
  return weights.group_size >= weights.cols || weights.group_size % kBlockInputs == 0;
}

class BroadcastGroups {
 public:
  BroadcastGroups(const Weights& weights, int64_t first_block) {
    // A group that is the whole row never ends.
    const bool whole_row = weights.group_size >= weights.cols;
    blocks_ = whole_row ? INT64_MAX : weights.group_size / kBlockInputs;
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

class SpreadGroups {
 public:
  SpreadGroups(const Weights& weights, int64_t first_block)
      : group_lanes_(static_cast<int>(weights.group_size / 8)),
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

/// Bytes less kCenter, times the factors of f16 that lie after all groups of the row.
template <int kCenter>
inline void stage_two_levels(const Weights& weights, const uint8_t* numbers, int64_t group,
                             int64_t count, float* staged) {
  const auto of_superblock = static_cast<int>(kSuperblock / weights.group_size);
  const uint8_t* factors = numbers + weights.groups;
  int64_t superblock = group / of_superblock;
  int offset = static_cast<int>(group % of_superblock);
  int offset_before = offset;
  Lanes superblocks = divided_lanes(offset, of_superblock);
  for (int64_t g = 0; g < count; g += kLanes) {
    const int lanes = static_cast<int>(count - g < kLanes ? count - g : kLanes);
    if (offset != offset_before) superblocks = divided_lanes(offset, of_superblock);
    offset_before = offset;
    const int touched = (offset + lanes - 1) / of_superblock + 1;
    const Float factor =
        permute(load_scales<Format::kF16>(factors + 2 * superblock, touched), superblocks);
    const Float integer = load_zeros<Zero::kU8>(numbers + group + g, lanes);
    store(staged + g, mul(sub(integer, broadcast(kCenter)), factor));
    offset += kLanes;
    superblock += offset / of_superblock;
    offset %= of_superblock;
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

/// Offsets, which `zeros` holds, as zero points less `center`.
inline void divide_offsets(int64_t count, float center, float* scales, float* zeros) {
  constexpr float kNextToNothing = 0x1p-40f;
  for (int64_t g = 0; g < count; ++g) {
    float scale = scales[g];
    float zero = zeros[g] / scale;
    if (!(__builtin_fabsf(zero) <= __FLT_MAX__)) {
      scale = zeros[g] * kNextToNothing;
      zero = scale == 0 ? 0 : zeros[g] / scale;
    }
    zeros[g] = -zero - center;
    scales[g] = scale;
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
    Float zero;  // less kCenter; not used without zero points
  };

  GroupScaling(const Weights& weights, int64_t first_block)
      : groups_(weights, first_block), zeros_(staged_half(weights.groups)) {}

  static void stage(const Weights& weights, int64_t row, int64_t begin, int64_t end,
                    float* staged) {
    stage_vector(weights, row, begin, end - begin, staged + begin,
                 staged + staged_half(weights.groups) + begin);
  }
  /// The same of `count` groups from g on, to whole vectors.
  static void stage_vector(const Weights& weights, int64_t row, int64_t g, int64_t count,
                           float* scales, float* zeros) {
    stage_numbers(weights, weights.scales + row * weights.scale_row_bytes, weights.scale, g, count,
                  scales);
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
  static_assert(kHasZeros || kCenter == 0);

  Groups groups_;
  int64_t zeros_;  // where zero points are staged
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
