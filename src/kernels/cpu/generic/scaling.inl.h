// Scaling: what happens between the sum of one block and the sum of the row. Included inside the
// namespace of an instruction set, after its elements.h.
//
// A product walks over blocks of 8 * kLanes inputs, lane i of a block being inputs 8i .. 8i+7. A
// group of inputs with one scale covers whole blocks, or starts and ends between lanes:
//
//   BroadcastGroups   group = a multiple of the block, or the whole row: one scale in all lanes
//   SpreadGroups      any other multiple of 8: each lane gets the scale of its group
//
// A Scaling policy has, called by the mainloops for every block and every row:
//   Row row(scales, zeros, valid_lanes)   what lanes of that row need; lanes from valid_lanes on
//                                         are padding and get scale 0, so that an infinite scale
//                                         cannot turn their 0 into NaN
//   add_part(acc, part, sums, row)        acc + scale * (part - zero * sums[lane])
//   weight(value, row)                    scale * (value - zero)
//   next()                                moves on to the next block

constexpr int64_t kBlockInputs = 8 * kLanes;

constexpr int64_t scale_bytes(Format scale) {
  return scale == Format::kF32 ? 4 : scale == Format::kE8M0 ? 1 : 2;
}

constexpr int64_t block_floats(ActivationOrder order) {
  return order == ActivationOrder::kOctets ? kBlockInputs + kLanes : kBlockInputs;
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
  template <Format kScale>
  Float scales(const uint8_t* row) const {
    return broadcast_scale<kScale>(row + group_ * scale_bytes(kScale));
  }
  template <Zero kZero>
  Float zeros(const uint8_t* row) const {
    return broadcast_zero<kZero>(row + group_ * zero_bytes(kZero));
  }
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
      : groups_(weights.groups),
        octets_(static_cast<int>(weights.group_size / 8)),
        step_(kLanes / octets_),
        rest_(kLanes % octets_) {
    first_ = first_block * kLanes / octets_;
    offset_ = static_cast<int>(first_block * kLanes % octets_);
    find_lanes();
  }
  template <Format kScale>
  Float scales(const uint8_t* row) const {
    return spread_scales<kScale>(row + first_ * scale_bytes(kScale), count_, lanes_);
  }
  template <Zero kZero>
  Float zeros(const uint8_t* row) const {
    return spread_zeros<kZero>(row + first_ * zero_bytes(kZero), count_, lanes_);
  }
  void next() {
    first_ += step_;
    if (rest_ == 0 && first_ + count_ <= groups_) return;  // the lanes stay as they are
    offset_ += rest_;
    if (offset_ >= octets_) {
      offset_ -= octets_;
      ++first_;
    }
    find_lanes();
  }

 private:
  void find_lanes() {
    lanes_ = divided_lanes(offset_, octets_);
    const int64_t touched = (offset_ + kLanes - 1) / octets_ + 1;
    const int64_t left = groups_ - first_;  // the last block may have fewer groups than lanes ask
    count_ = static_cast<int>(touched < left ? touched : left);
  }

  int64_t groups_;
  int64_t first_;  // group of lane 0
  int octets_;     // lanes per group
  int step_;       // kLanes / octets_
  int rest_;       // kLanes % octets_
  int offset_;     // of lane 0 in its group, in lanes
  int count_;      // groups that this block touches
  Lanes lanes_;    // group of each lane, counted from first_
};

template <int kCenter, Format kScale, Zero kZero, class Groups>
class GroupScaling {
 public:
  struct Row {
    Float scale;
    Float zero;  // less kCenter; not used without zero points
  };
  static constexpr int64_t kScaleBytes = scale_bytes(kScale);
  static constexpr int64_t kZeroBytes = zero_bytes(kZero);

  GroupScaling(const Weights& weights, int64_t first_block) : groups_(weights, first_block) {}

  Row row(const uint8_t* scales, const uint8_t* zeros, int valid_lanes) const {
    Row row;
    row.scale = groups_.template scales<kScale>(scales);
    if (valid_lanes < kLanes) row.scale = keep_first(row.scale, valid_lanes);
    if constexpr (kZero != Zero::kNone) {
      row.zero = sub(groups_.template zeros<kZero>(zeros), broadcast(kCenter));
    } else {
      row.zero = zero();
    }
    return row;
  }
  static Float add_part(Float acc, Float part, const float* sums, const Row& row) {
    if constexpr (kZero != Zero::kNone) part = fnma(row.zero, load(sums), part);
    return fma(row.scale, part, acc);
  }
  static Float weight(Float value, const Row& row) {
    if constexpr (kZero != Zero::kNone) value = sub(value, row.zero);
    return mul(row.scale, value);
  }
  void next() { groups_.next(); }

 private:
  static_assert(kZero != Zero::kNone || kCenter == 0);
  Groups groups_;
};

/// Dense weights are what their elements say.
class DenseScaling {
 public:
  struct Row {};
  static constexpr int64_t kScaleBytes = 0;
  static constexpr int64_t kZeroBytes = 0;

  DenseScaling(const Weights&, int64_t) {}
  Row row(const uint8_t*, const uint8_t*, int) const { return {}; }
  static Float add_part(Float acc, Float part, const float*, const Row&) { return add(acc, part); }
  static Float weight(Float value, const Row&) { return value; }
  void next() {}
};
