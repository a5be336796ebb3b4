// The mainloop for many rows of activations with dot products of four bytes, or of two bf16
// (dot_bf16x2.inl.h). Included inside the namespace of such an instruction set, after gemm.inl.h
// and dot_packing.inl.h.
//
// Lanes are outputs: a word of weights is four bytes or two bf16 of one row along K, and meets the
// same word of an activation in all lanes. A tile is 6 rows of activations by 32 outputs:
//
//                                   32 outputs
//                             +--------------------+
//                   word 0    | n = 0 | 1 | ... |31|   panel of weights, decoded: [step][32 words],
//                   word 1    |       |   |     |  |   16 KB, in the first-level cache
//                             +--------------------+
//     words 0 1 ..
//    +------------+           +--------------------+
//  6 | x          |           | sums               |   12 vectors, and 12 of what they add up to
//    +------------+           +--------------------+   after each span of inputs under one scale
//
//   for some packs of activations, for some panels of 32 outputs
//     for each KC inputs                       (all totals stay in the second-level cache)
//       for each of these panels:  decode
//         for each of these packs: multiply, add to totals
//     y = totals
//
// (That is with vectors of 16 lanes. With 8 a panel has 16 outputs, and kDotRowsAtOnce rows of the
// tile are multiplied at a time, as there are fewer registers.)
//
// A span is the inputs that share a scale of weights and a factor of activations, 128 at most:
//   total += scale * (factor * sum - zero * sum of the inputs)
// Where bf16 are weights, not codes, there is none of it.
//
// Accuracy, u = 2^-24, g = n u / (1 - n u), s spans. Bytes: what they add up to in a span is exact;
// half a step of an activation is q = 1.001 / 254 of the largest of its 32, with three limbs 2^-22
// (two: 2^-14) of that of its 128, or 2^-127, and limbs are together at most 3.02 |x|:
//   |y - exact| <= sum |w| q + 3.02 g * sum |w| (|x| + q),  n = s + 10
// With one byte, g meets |scale| (|byte| + |zero|) instead, once, and 32 inputs of 2^-120 and less
// are zeros. bf16: 2^-8 |x| for each activation, 2^-8 |w| for weights that are not codes (2^-17
// for kbit 2), bf16 below 2^-126 are zeros, and
//   g * sum |scale| (|element| + |zero|) |x|,  n = K + s + 30.
// An infinite scale that meets a zero is NaN. An activation that is not finite shows in its whole
// row of results, as NaN or infinity; so may those of 2^112 and more, as scales come last.

constexpr int64_t kDotVectors = 2;                     // of outputs
constexpr int64_t kDotOutputs = kDotVectors * kLanes;  // in a panel
constexpr int64_t kDotStepBytes = kDotOutputs * 4;     // one word of each
constexpr int64_t kDotPanelBytes = 16 << 10;
constexpr int64_t kDotRowBytes = kDotPanelBytes / kDotOutputs;  // of a panel

constexpr int64_t kDotPacks = 64;
constexpr int64_t kDotPanelsOfBlock = 4;  // 192 KB of totals

constexpr int64_t kDotByteSteps = 2;  // of a run of 8

/// Meaning of a word of bytes, and the product of words by ByteDots of vec.h:
///   stored(codes)    bytes as they lie in a panel, signed ones less the 2^kShift of K8Bytes
///   add(sum, w, x)   the products of a word of a panel and one of activations, in every lane; at
///                    most kSpanK8 runs of 8, for codes of the format that DotsOf was asked for
///   to_float(sum)
template <class Dots>
struct DotOfBytes : Dots {
  using Sum = Int;
  static constexpr bool kIntegers = true;
  static constexpr int64_t kBlockBytes = kDotByteBlockBytes;  // of activations
  static constexpr int64_t kSteps = kDotByteSteps;
  static constexpr int64_t kWordsAt = kDotBytesAt;
  static Sum zero_sum() { return zero_int(); }
};

/// kLanes rows of a panel.
struct DotPart {
  const Weights& weights;
  int64_t row;
  int64_t last_row;  // of the task: those after it repeat it
  int64_t first_block;
  int64_t num_blocks;
  float* staged;     // for scales of a row
  uint8_t* decoded;  // of kLanes rows, kDotRowBytes each, not yet transposed
  uint8_t* panel;

  int64_t row_at(int64_t i) const { return row + i < last_row ? row + i : last_row; }
};

/// How one format comes into a panel.
struct DotDecoding {
  void (*decode)(const DotPart& part);
  /// Scales and zero points of groups as floats; nullptr: what is decoded are weights.
  void (*stage)(const Weights& weights, int64_t row, int64_t group, int64_t count, float* scales,
                float* zeros);
  bool has_zeros;  // whether that has zero points
  // weight = scale * factor * (what is decoded - offset - zero point)
  float factor = 1;
  float offset = 0;
};

/// The kinds of activations.
template <class DotProduct, int64_t kRows, int64_t kMaxSpanK8>
struct DotKind : DotProduct {
  static constexpr int64_t kPackRows = kRows;
  static constexpr int64_t kSpanK8 = kMaxSpanK8;
  static constexpr int64_t kBlockSteps = kLanes * DotProduct::kSteps;
  static constexpr int64_t kPanelBlocks = kDotPanelBytes / (kBlockSteps * kDotStepBytes);
};
template <class Dots>
using DotWithBytes = DotKind<DotOfBytes<Dots>, kDotRows, 4>;

/// The most groups that a panel has: of the smallest size, 8, and of bytes.
constexpr int64_t kDotPanelGroups = kDotPanelBytes / (2 * kDotStepBytes);

/// Scratch memory of a thread.
struct DotScratch {
  alignas(64) uint8_t panel[kDotPanelBytes];
  alignas(64) float scales[kDotPanelsOfBlock][kDotPanelGroups][kDotOutputs];
  alignas(64) float zeros[kDotPanelsOfBlock][kDotPanelGroups][kDotOutputs];
  alignas(64) uint8_t decoded[kLanes * kDotRowBytes];
  alignas(64) float totals[kDotPanelsOfBlock][kDotPacks][kDotRows][kDotOutputs];
  // After it: the staged scales of a row.
};

template <class Kind>
class DotPanels {
 public:
  DotPanels(const MatmulTask& task, const DotDecoding& decoding)
      : task_(task),
        decoding_(decoding),
        scratch_(*reinterpret_cast<DotScratch*>(task.scratch)),
        staged_(reinterpret_cast<float*>(task.scratch + sizeof(DotScratch))),
        num_k8_((task.weights.cols + 7) / 8),
        group_k8_(task.weights.group_size >= task.weights.cols ? num_k8_
                                                               : task.weights.group_size / 8),
        packs_((task.x.rows + kPackRows - 1) / kPackRows),
        next_bytes_(kPanelK8 * 8 * task.weights.row_bytes / task.weights.cols) {}

  void run() {
    constexpr int64_t kOutputs = kDotPanelsOfBlock * kDotOutputs;
    for (int64_t pack = 0; pack < packs_; pack += kDotPacks) {
      const int64_t count = packs_ - pack < kDotPacks ? packs_ - pack : kDotPacks;
      for (int64_t n = task_.row_begin; n < task_.row_end; n += kOutputs) {
        const int64_t end = task_.row_end - n < kOutputs ? task_.row_end : n + kOutputs;
        multiply_block(pack, count, n, end);
        store_results(pack, count, n, end);
      }
    }
  }

 private:
  static constexpr int64_t kPackRows = Kind::kPackRows;
  static constexpr int64_t kPanelK8 = Kind::kPanelBlocks * kLanes;
  using Totals = Float[kDotRows][kDotVectors];

  void decode_panel(int64_t n) {
    const int64_t first = begin_ / kLanes;
    for (int64_t v = 0; v < kDotVectors; ++v) {
      decoding_.decode({.weights = task_.weights,
                        .row = n + v * kLanes,
                        .last_row = task_.row_end - 1,
                        .first_block = first,
                        .num_blocks = (end_ + kLanes - 1) / kLanes - first,
                        .staged = staged_,
                        .decoded = scratch_.decoded,
                        .panel = scratch_.panel + v * 4 * kLanes});
    }
  }
  /// Where the codes of the panel after that of `row` begin: of the next panel before `end`, else
  /// of the next inputs of the first, else of the panels after these.
  int64_t codes_after(int64_t row, int64_t n, int64_t end) const {
    const int64_t row_bytes = task_.weights.row_bytes;
    const int64_t next_panel = row + kDotOutputs;
    const int64_t panel = begin_ / kPanelK8;
    if (next_panel < end) return next_panel * row_bytes + panel * next_bytes_;
    if (end_ < num_k8_) return n * row_bytes + (panel + 1) * next_bytes_;
    return end * row_bytes;
  }

  /// The scales of a panel, [group][output], for this panel and, if groups are wide, for some more:
  /// a vector of them is staged as fast as one.
  void stage_scales(int64_t n, int64_t outputs_panel) {
    const int64_t panels = group_k8_ >= kLanes ? 4 : 1;
    if (begin_ / kPanelK8 % panels != 0) return;
    const int64_t all = begin_ + panels * kPanelK8;
    const int64_t begin = begin_ / group_k8_;
    const int64_t end = ((num_k8_ < all ? num_k8_ : all) - 1) / group_k8_ + 1;
    staged_group_ = begin;
    for (int64_t g = begin; g < end; g += kLanes) {
      const int count = static_cast<int>(end - g < kLanes ? end - g : kLanes);
      for (int64_t v = 0; v < kDotVectors; ++v) {
        stage_groups(n + v * kLanes, g, count,
                     scratch_.scales[outputs_panel][g - begin] + v * kLanes,
                     scratch_.zeros[outputs_panel][g - begin] + v * kLanes);
      }
    }
  }
  void stage_groups(int64_t n, int64_t g, int count, float* scales, float* zeros) {
    alignas(64) float row_scales[kLanes][kLanes];
    alignas(64) float row_zeros[kLanes][kLanes];
    for (int64_t i = 0; i < kLanes; ++i) {
      const int64_t row = n + i < task_.row_end ? n + i : task_.row_end - 1;
      decoding_.stage(task_.weights, row, g, count, row_scales[i], row_zeros[i]);
    }
    transpose_lanes(row_scales[0], kLanes, scales, kDotOutputs);
    if (decoding_.has_zeros) transpose_lanes(row_zeros[0], kLanes, zeros, kDotOutputs);
    const Float factor = broadcast(decoding_.factor);
    const Float offset = broadcast(decoding_.offset);
    for (int i = 0; i < count; ++i) {
      store(scales, mul(load(scales), factor));
      store(zeros, decoding_.has_zeros ? add(load(zeros), offset) : offset);
      scales += kDotOutputs;
      zeros += kDotOutputs;
    }
  }

  /// Totals of `count` packs by the rows [n, end).
  void multiply_block(int64_t pack, int64_t count, int64_t n, int64_t end) {
    for (begin_ = 0; begin_ < num_k8_; begin_ += kPanelK8) {
      end_ = num_k8_ - begin_ < kPanelK8 ? num_k8_ : begin_ + kPanelK8;
      const uint8_t* x = task_.x.data + begin_ / kLanes * Kind::kBlockBytes;
      for (int64_t row = n; row < end; row += kDotOutputs) {
        decode_panel(row);
        const int64_t outputs_panel = (row - n) / kDotOutputs;
        if (decoding_.stage != nullptr) stage_scales(row, outputs_panel);
        next_ = codes_after(row, n, end);
        multiply_pack<true>(x + pack * task_.x.stride, outputs_panel, 0);
        for (int64_t i = 1; i < count; ++i) {
          multiply_pack<false>(x + (pack + i) * task_.x.stride, outputs_panel, i);
        }
      }
    }
  }

  template <bool kPrefetches>
  void multiply_pack(const uint8_t* x, int64_t outputs_panel, int64_t pack) {
    const bool first = begin_ == 0;
    float* sums = scratch_.totals[outputs_panel][pack][0];
    Totals totals;
#pragma GCC unroll 6
    for (int r = 0; r < kDotRows; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < kDotVectors; ++v) {
        totals[r][v] = first ? zero() : load(sums + r * kDotOutputs + v * kLanes);
      }
    }
    if constexpr (!Kind::kIntegers) {
      decoding_.stage == nullptr ? add_weights<kPrefetches>(x, totals)
                                 : add_spans<kPrefetches>(x, outputs_panel, totals);
    } else {
      add_spans<kPrefetches>(x, outputs_panel, totals);
    }
#pragma GCC unroll 6
    for (int r = 0; r < kDotRows; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < kDotVectors; ++v) {
        store(sums + r * kDotOutputs + v * kLanes, totals[r][v]);
      }
    }
  }

  static constexpr int kRowsAtOnce = Kind::kIntegers ? kDotRowsAtOnce : kDotRows;
  static_assert(kDotRows % kRowsAtOnce == 0);
  // Steps of few products are as many instructions of the loop.
  static constexpr bool kUnrolls = kRowsAtOnce < kDotRows;
  using Sums = typename Kind::Sum[kRowsAtOnce][kDotVectors];

  /// sums += one step of a panel by one of some rows of activations; both move on.
  [[gnu::always_inline]] static void add_step(const uint8_t*& weights, const uint8_t*& words,
                                              Sums& sums) {
    Int w[kDotVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kDotVectors; ++v) w[v] = load_int(weights + v * 4 * kLanes);
#pragma GCC unroll 6
    for (int r = 0; r < kRowsAtOnce; ++r) {
      const Int word = broadcast_word(words + 4 * r);
#pragma GCC unroll 2
      for (int v = 0; v < kDotVectors; ++v) Kind::add(sums[r][v], w[v], word);
    }
    weights += kDotStepBytes;
    words += 4 * kDotRows;
  }
  /// sums += `num_k8` runs of 8 inputs from `lane` of a block on. kPrefetches: the codes of the
  /// next panel are prefetched, a row every four steps, so that all are on their way when this one
  /// is through.
  template <bool kPrefetches>
  [[gnu::always_inline]] void add_k8(const uint8_t* weights, const uint8_t* words, int64_t lane,
                                     int64_t num_k8, Sums& sums) {
    if constexpr (kUnrolls && !kPrefetches) {
      if (num_k8 == 4) return add_unrolled<4>(weights, words, sums);
      if (num_k8 == 2) return add_unrolled<2>(weights, words, sums);
    }
    const int64_t end = (lane + num_k8) * Kind::kSteps;
    for (int64_t step = lane * Kind::kSteps; step < end; ++step) {
      if (kPrefetches && step % 4 == 0) prefetch_row();
      add_step(weights, words, sums);
    }
  }
  template <int64_t kNumK8>
  [[gnu::always_inline]] static void add_unrolled(const uint8_t* weights, const uint8_t* words,
                                                  Sums& sums) {
#pragma GCC unroll 8
    for (int64_t step = 0; step < kNumK8 * Kind::kSteps; ++step) add_step(weights, words, sums);
  }
  [[gnu::always_inline]] void prefetch_row() {
    for (int64_t i = 0; i < next_bytes_; i += 64) prefetch<64>(task_.weights.codes, next_ + i);
    next_ += task_.weights.row_bytes;
  }

  /// Weights as they are.
  template <bool kPrefetches>
  [[gnu::always_inline]] void add_weights(const uint8_t* x, Totals& totals) {
    const uint8_t* weights = scratch_.panel;
    for (int64_t k8 = begin_; k8 < end_; k8 += kLanes) {
      const int64_t count = end_ - k8 < kLanes ? end_ - k8 : kLanes;
      add_k8<kPrefetches>(weights, x + Kind::kWordsAt, 0, count, totals);
      weights += Kind::kBlockSteps * kDotStepBytes;
      x += Kind::kBlockBytes;
    }
  }

  /// Codes and their scales.
  template <bool kPrefetches>
  [[gnu::always_inline]] void add_spans(const uint8_t* x, int64_t outputs_panel, Totals& totals) {
    const uint8_t* weights = scratch_.panel;
    int64_t group_left = group_k8_ - begin_ % group_k8_;
    const int64_t group = begin_ / group_k8_ - staged_group_;
    const float* scales = scratch_.scales[outputs_panel][group];
    const float* zeros = scratch_.zeros[outputs_panel][group];
    for (int64_t k8 = begin_; k8 < end_;) {
      const int64_t lane = k8 % kLanes;
      int64_t count = Kind::kSpanK8 - lane % Kind::kSpanK8;
      if (group_left < count) count = group_left;
      if (end_ - k8 < count) count = end_ - k8;
      const uint8_t* words = x + Kind::kWordsAt + lane * Kind::kSteps * kDotRows * 4;
      const auto add_rows = [&]<bool kFirst>(int r) __attribute__((always_inline)) {
        Sums sums;
#pragma GCC unroll 6
        for (auto& row : sums) {
#pragma GCC unroll 2
          for (auto& sum : row) sum = Kind::zero_sum();
        }
        add_k8<kPrefetches && kFirst>(weights, words + 4 * r, lane, count, sums);
        add_span(x, lane, count, r, scales, zeros, sums, totals + r);
      };
      add_rows.template operator()<true>(0);
      if constexpr (kRowsAtOnce < kDotRows) {
#pragma GCC unroll 6
        for (int r = kRowsAtOnce; r < kDotRows; r += kRowsAtOnce) {
          add_rows.template operator()<false>(r);
        }
      }
      weights += count * Kind::kSteps * kDotStepBytes;
      k8 += count;
      if (k8 % kLanes == 0) x += Kind::kBlockBytes;
      group_left -= count;
      if (group_left == 0) {
        group_left = group_k8_;
        scales += kDotOutputs;
        zeros += kDotOutputs;
      }
    }
  }

  /// totals += scale * (factor * sum - zero * sum of the inputs), of rows from `first` on.
  [[gnu::always_inline]] static void add_span(const uint8_t* x, int64_t lane, int64_t count,
                                              int first, const float* scales, const float* zeros,
                                              const Sums& sums, Float (*totals)[kDotVectors]) {
    const auto* k8_sums = reinterpret_cast<const float*>(x) + 8 * lane;
    Float of_inputs = zero();  // lane r: of row r
    for (int64_t i = 0; i < count; ++i) of_inputs = add(of_inputs, load(k8_sums + 8 * i));
    alignas(64) float inputs[kLanes];
    store(inputs, of_inputs);
    const auto* factors = reinterpret_cast<const float*>(x + kDotFactorsAt) + lane / 4 * 8;
    Float scale[kDotVectors], zero_point[kDotVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kDotVectors; ++v) {
      scale[v] = load(scales + v * kLanes);
      zero_point[v] = load(zeros + v * kLanes);
    }
#pragma GCC unroll 6
    for (int r = 0; r < kRowsAtOnce; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < kDotVectors; ++v) {
        Float part;
        if constexpr (Kind::kIntegers) {
          part = mul(Kind::to_float(sums[r][v]), broadcast(factors[first + r]));
        } else {
          part = sums[r][v];
        }
        part = fnma(zero_point[v], broadcast(inputs[first + r]), part);
        totals[r][v] = fma(scale[v], part, totals[r][v]);
      }
    }
  }

  /// y[m][n .. end) of `count` packs.
  void store_results(int64_t pack, int64_t count, int64_t n, int64_t end) const {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t m = (pack + i) * kPackRows;
      const int64_t rows = task_.x.rows - m < kPackRows ? task_.x.rows - m : kPackRows;
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t outputs_panel = 0; n + outputs_panel * kDotOutputs < end; ++outputs_panel) {
          const int64_t first = n + outputs_panel * kDotOutputs;
          const int64_t outputs = end - first < kDotOutputs ? end - first : kDotOutputs;
          write_results(task_, m + row, 1, first, outputs,
                        {.data = scratch_.totals[outputs_panel][i][row],
                         .stride = 0,
                         .parts = kDotRows / kPackRows,  // limbs
                         .part_stride = kPackRows * kDotOutputs});
        }
      }
    }
  }
  const MatmulTask& task_;
  DotDecoding decoding_;
  DotScratch& scratch_;
  float* staged_;
  int64_t num_k8_;
  int64_t group_k8_;
  int64_t packs_;
  int64_t begin_ = 0;  // of the panel, in runs of 8
  int64_t end_ = 0;
  int64_t next_ = 0;          // where codes to prefetch begin
  int64_t next_bytes_;        // of a row
  int64_t staged_group_ = 0;  // the first whose scales are staged
};
