// few_rows.inl.h with bf16: codes of two to five bits in groups of a multiple of 32. Included
// inside the namespace of an instruction set with tiles, after few_rows.inl.h and decoders.inl.h.
//
// A step of 32 inputs has one scale, which can wait for the sums of one step, or of two. Codes are
// looked up as they are, in the table of their zero point, or in the codebook. Activations are one
// bf16 each in tiles of 16 rows, or two, x = hi + lo, in tiles of 8; then weights that bf16 does
// not hold are two as well, and meet the same activations.
//
//   total += scale * sum of one or two steps
//
// Accuracy, u = 2^-24, k inputs: with q what an activation is rounded by (2^-8 of it, of two bf16
// 2^-17; subnormal bf16 are zero), and w as the table has it, scaled (where bf16 does not hold it,
// rounded by 2^-8 of it, two by 2^-17):
//   |y - exact| <= sum |w| q + n u / (1 - n u) * sum |w| (|x| + q),   n = k / 32 + 10 + 64 t
// as a sum adds up 64 products at most for each of the t parts of a weight. An infinite scale that
// meets a lo part of zero is NaN.

/// kStepsOfSum: steps that share a scale, for groups of a multiple of that many times 32.
template <class Tables, class Scaling, int kSplitsOfX, int kStepsOfSum>
class Bf16Policy {
 public:
  static constexpr int64_t kPackRows = kTileRows / kSplitsOfX;
  static constexpr int kPacks = 1;
  static constexpr int kParts = kSplitsOfX;
  static constexpr int kPasses = 1;
  static constexpr int kSumTiles = 4 / kStepsOfSum;
  static constexpr int64_t kBufferBytes = Tables::kSplits * kBlockTileBytes;

  struct Block {
    explicit Block(const MatmulTask& task)
        : x(task.x.data), walk(task.weights, 0), groups(walk.next()) {
      count_sums(task);
    }
    void next(const MatmulTask& task) {
      ++b;
      x += kBlockTileBytes;
      groups = walk.next();
      count_sums(task);
    }
    /// Those that the row has: scales of other groups are not known.
    void count_sums(const MatmulTask& task) {
      const int64_t left = task.weights.cols - b * kBlockInputs;
      const int64_t all = (left + 32 * kStepsOfSum - 1) / (32 * kStepsOfSum);
      sums = static_cast<int>(all < kSumTiles ? all : kSumTiles);
    }

    int64_t b = 0;
    const uint8_t* x;
    GroupWalk walk;
    StepGroups groups;
    int sums;
  };

  Bf16Policy(const MatmulTask& task, float* staged)
      : weights_(task.weights), staged_(staged), stride_(staged_floats(task.weights.groups)) {}

  bool stage(int64_t n, int64_t i) {
    prefetch_panel_scales(weights_, n + i);
    Scaling::stage(weights_, n + i, 0, weights_.groups, staged_ + i * stride_);
    return false;
  }
  void load_activations(const Block& block) {
    load_tile_t1<4>(block.x);
    load_tile_t1<5, kTmmBytes>(block.x);
    load_tile_t1<6, 2 * kTmmBytes>(block.x);
    load_tile_t1<7, 3 * kTmmBytes>(block.x);
  }
  [[gnu::always_inline]] void decode(const BlockRows& rows, const Block& block, uint8_t* buffer) {
    const DecodeTask task = {.weights = weights_,
                             .rows = rows,
                             .groups = block.groups,
                             .scales = nullptr,
                             .scale_stride = 0,
                             .staged = nullptr,
                             .to = buffer,
                             .prefetches = true};
    decode_with_tables(task, Tables(task));
  }

  [[gnu::always_inline]] static void multiply(const uint8_t* buffer, float* before, float* sums) {
    multiply_step_of_block<0>(buffer, before, sums);
    multiply_step_of_block<1>(buffer, before, sums);
    multiply_step_of_block<2>(buffer, before, sums);
    multiply_step_of_block<3>(buffer, before, sums);
  }
  static void store_accumulators(float* sums) {
    store_tile<0, (kSumTiles - 2) * kTmmBytes>(sums);
    store_tile<1, (kSumTiles - 1) * kTmmBytes>(sums);
  }

  void add(const Block& block, int64_t i, const float* sums, float* totals) {
    if (block.sums == kSumTiles) return add_sums<kSumTiles>(block, i, sums, totals);
    if constexpr (kSumTiles == 4) {
      if (block.sums == 3) return add_sums<3>(block, i, sums, totals);
      if (block.sums == 2) return add_sums<2>(block, i, sums, totals);
    }
    add_sums<1>(block, i, sums, totals);
  }
  void row_factors(int64_t, int64_t, float* factors) const {
    store(factors, broadcast(weights_.tensor_scale));
  }

 private:
  /// Two accumulators take turns. Where a step begins a sum, what the accumulator has, the sum
  /// before the last, goes to its place.
  template <int kStep>
  [[gnu::always_inline]] static void multiply_step_of_block(const uint8_t* buffer, float* before,
                                                            float* sums) {
    constexpr int kSum = kStep / kStepsOfSum;
    constexpr int kC = kSum % 2;
    if constexpr (kStep % kStepsOfSum == 0) {
      constexpr int kStored = (kSum + kSumTiles - 2) % kSumTiles;
      store_tile<kC, kStored * kTmmBytes>(kSum < 2 ? before : sums);
      zero_tile<kC>();
    }
    load_tile<2, kStep * kTmmBytes>(buffer);
    add_bf16_products<kC, 2, 4 + kStep>();
    if constexpr (Tables::kSplits == 2) {
      load_tile<3, (4 + kStep) * kTmmBytes>(buffer);
      add_bf16_products<kC, 3, 4 + kStep>();
    }
  }
  template <int kCount>
  void add_sums(const Block& block, int64_t i, const float* sums, float* totals) const {
    int64_t groups[kCount];
    for (int s = 0; s < kCount; ++s) groups[s] = block.groups.of_step[kStepsOfSum * s];
    const float* staged = staged_ + i * stride_;
#pragma GCC unroll 4
    for (int64_t r = 0; r < kTileRows; ++r) {
      Float total = load(totals + kTileRows * r);
#pragma GCC unroll 4
      for (int64_t s = 0; s < kCount; ++s) {
        const Float sum = load(sums + kTileRows * (kTileRows * s + r));
        total = fma(broadcast(staged[groups[s]]), sum, total);
      }
      store(totals + kTileRows * r, total);
      staged += stride_;
    }
  }

  const Weights& weights_;
  float* staged_;
  int64_t stride_;
};

/// Where activations take two bf16 weights do, unless one holds them.
template <Format kElement, int kSplitsOfX>
constexpr int weight_splits() {
  return kSplitsOfX == 2 && !exact_bf16<kElement>() ? 2 : 1;
}

/// Groups of a multiple of 32, or the row.
template <class Weight, int kSplitsOfX>
void few_rows_bf16(const MatmulTask& task) {
  constexpr int kSplits = weight_splits<Weight::kElement, kSplitsOfX>();
  using Tables = UnscaledTables<Weight, kSplits, 4>;
  using Scaling = typename Weight::Broadcast;
  const Weights& weights = task.weights;
  if (weights.group_size % 64 == 0 || weights.group_size >= weights.cols) {
    few_rows<Bf16Policy<Tables, Scaling, kSplitsOfX, 2>>(task);
  } else {
    few_rows<Bf16Policy<Tables, Scaling, kSplitsOfX, 1>>(task);
  }
}
