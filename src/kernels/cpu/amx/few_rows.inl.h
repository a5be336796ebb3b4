// The mainloop of tiles for a few rows of activations, which stay in tile registers while the
// weights of a panel pass by. Included inside the namespace of an instruction set with tiles, after
// panels.inl.h. few_rows_int8.inl.h and few_rows_bf16.inl.h are its two policies.
//
//   for each panel of 64 outputs
//     for each block of 128 inputs: load its activations, tiles 4 to 7, then
//       for each tile of 16 outputs
//         multiply    products of the tile: accumulators in tiles 0 and 1, weights in 2 and 3
//         decode      the next tile, into the other of two buffers
//         add         the sums of the tile before, times their scales, to its totals
//     results
//
// So products, decoding and adding belong to three tiles and need not wait for each
// other. Sums leave the accumulators just before the next products there.

template <class P>
concept IsPolicy = requires(P policy, const MatmulTask& task, typename P::Block block,
                            BlockRows rows, int64_t i, uint8_t* buffer, float* floats) {
  requires(P::kPackRows > 0 && P::kPacks > 0);  // rows of a pack; packs that go through together
  requires(P::kParts > 0);                      // totals of a pack that add up to a result
  requires(P::kBufferBytes > 0);                // of a decoded tile
  requires(P::kSumTiles > 0);                   // tiles of sums that it leaves
  requires(P::kPasses > 0);                     // over a block, at most: scales too far apart
  P(task, floats);                              // with room for the scales of 64 outputs
  block.next(task);
  // Scales of output n + i, before the first block; whether some block needs more than one pass.
  { policy.stage(i, i) } -> IsSame<bool>;
  policy.load_activations(block);
  policy.decode(rows, block, buffer);  // one tile
  // Its last accumulators stay where they are; those of the tile before go to the second.
  P::multiply(buffer, floats, floats);
  P::store_accumulators(floats);
  policy.add(block, i, floats, floats);  // 16 outputs from i of the panel on, to totals
  policy.row_factors(i, i, floats);      // what results are multiplied by, the tensor's included
};

/// Scratch memory of a thread. After it: staged scales of a panel.
template <class Policy>
struct FewRowsScratch {
  alignas(64) uint8_t buffers[2][Policy::kBufferBytes];
  alignas(64) float sums[2][Policy::kSumTiles][kTileRows][kTileRows];
  alignas(64) float totals[Policy::kPacks][kPanelOutputs][kTileRows];
};

/// Prefetches the scales and zero points of the output a panel later.
inline void prefetch_panel_scales(const Weights& weights, int64_t row) {
  const int64_t scales_bytes = weights.scale_row_bytes;
  const int64_t zeros_bytes = weights.zero_row_bytes;
  const int64_t later = row + kPanelOutputs;
  for (int64_t i = 0; i < scales_bytes; i += 64) {
    prefetch<64>(weights.scales, later * scales_bytes + i);
  }
  for (int64_t i = 0; i < zeros_bytes; i += 64) {
    prefetch<64>(weights.zeros, later * zeros_bytes + i);
  }
}

template <class Policy>
class FewRows {
  static_assert(IsPolicy<Policy>,
                "A Policy of FewRows decodes, multiplies and adds the sums of one "
                "tile of 16 outputs: see IsPolicy");

 public:
  explicit FewRows(const MatmulTask& task)
      : task_(task),
        scratch_(*reinterpret_cast<FewRowsScratch<Policy>*>(task.scratch)),
        policy_(task, reinterpret_cast<float*>(task.scratch + sizeof(FewRowsScratch<Policy>))),
        blocks_((task.weights.cols + kBlockInputs - 1) / kBlockInputs) {}

  void run() {
    for (int64_t n = task_.row_begin; n < task_.row_end; n += kPanelOutputs) {
      n_ = n;
      outputs_ = task_.row_end - n < kPanelOutputs ? task_.row_end - n : kPanelOutputs;
      multiply_panel();
      store_results();
    }
  }

 private:
  using Block = typename Policy::Block;

  void multiply_panel() {
    bool more_passes = false;
    for (int64_t i = 0; i < outputs_; ++i) more_passes |= policy_.stage(n_, i);
    __builtin_memset(scratch_.totals, 0, sizeof(scratch_.totals));
    Block block(task_);
    Block block_before = block;
    int64_t before = -1;  // first output of the tile whose sums are to be added
    int turn = 0;
    decode_alone(block, 0, 0);
    for (int64_t b = 0; b < blocks_; ++b) {
      Block next_block = block;
      next_block.next(task_);
      policy_.load_activations(block);
      for (int64_t i = 0; i < outputs_; i += kTileRows) {
        Policy::multiply(scratch_.buffers[turn], sums(1 - turn), sums(turn));
        const bool last = i + kTileRows >= outputs_;
        if (!last || b + 1 < blocks_) {
          decode(last ? next_block : block, last ? 0 : i + kTileRows, 1 - turn);
        }
        if (before >= 0) add(block_before, before, 1 - turn);
        block_before = block;
        before = i;
        turn = 1 - turn;
      }
      block = next_block;
    }
    Policy::store_accumulators(sums(1 - turn));
    add(block_before, before, 1 - turn);
    if constexpr (Policy::kPasses > 1) {
      if (more_passes) multiply_rest();
    }
  }

  /// Further passes, over tiles with a block whose scales are too far apart for one.
  void multiply_rest() {
    Block block(task_);
    for (int64_t b = 0; b < blocks_; ++b) {
      bool loaded = false;
      for (int64_t i = 0; i < outputs_; i += kTileRows) {
        if (!policy_.begin_rest(tile_rows(block, i))) continue;
        for (int pass = 0; pass < Policy::kPasses; ++pass) {
          if (!policy_.stage_rest(tile_rows(block, i), pass)) continue;
          if (!loaded) policy_.load_activations(block);
          loaded = true;
          decode_alone(block, i, 0);
          Policy::multiply(scratch_.buffers[0], sums(1), sums(0));
          Policy::store_accumulators(sums(0));
          add(block, i, 0);
        }
      }
      block.next(task_);
    }
  }

  BlockRows tile_rows(const Block& block, int64_t i) const {
    const int64_t end = outputs_ - i < kTileRows ? outputs_ : i + kTileRows;
    return {.n = n_, .begin = i, .end = end, .b = block.b};
  }
  [[gnu::always_inline]] void decode(const Block& block, int64_t i, int turn) {
    policy_.decode(tile_rows(block, i), block, scratch_.buffers[turn]);
  }
  [[gnu::noinline]] void decode_alone(const Block& block, int64_t i, int turn) {
    decode(block, i, turn);
  }
  void add(const Block& block, int64_t i, int turn) {
    policy_.add(block, i, sums(turn), scratch_.totals[0][i]);
  }
  float* sums(int turn) { return scratch_.sums[turn][0][0]; }

  void store_results() const {
    for (int64_t pack = 0; pack < Policy::kPacks; ++pack) {
      const int64_t m = pack * Policy::kPackRows;
      const int64_t left = task_.x.rows - m;
      for (int64_t i = 0; i < outputs_; i += kTileRows) {
        alignas(64) float by_row[kTileRows][kTileRows];  // of B: [row][output]
        alignas(64) float factors[kTileRows];
        transpose_lanes(scratch_.totals[pack][i], by_row[0]);
        const int64_t count = outputs_ - i < kTileRows ? outputs_ - i : kTileRows;
        policy_.row_factors(i, count, factors);
        write_results(task_, m, left < Policy::kPackRows ? left : Policy::kPackRows, n_ + i, count,
                      {.data = by_row[0],
                       .stride = kTileRows,
                       .parts = Policy::kParts,
                       .part_stride = Policy::kPackRows * kTileRows},
                      factors);
      }
    }
  }

  const MatmulTask& task_;
  FewRowsScratch<Policy>& scratch_;
  Policy policy_;
  int64_t blocks_;
  int64_t n_ = 0;        // first output of the panel
  int64_t outputs_ = 0;  // that it has
};

/// Any number of rows of activations. `Policy` multiplies the most packs at once, `OnePack` one.
template <class Policy, class OnePack = Policy>
void few_rows(const MatmulTask& task) {
  const TileSession session;
  constexpr int64_t kRows = Policy::kPackRows;
  constexpr int64_t kMax = Policy::kPacks * kRows;
  for (int64_t m = 0; m < task.x.rows; m += kMax) {
    MatmulTask part = task;
    part.x.data += m / kRows * task.x.stride;
    part.x.rows = task.x.rows - m < kMax ? task.x.rows - m : kMax;
    part.y += m * task.y_stride;
    part.x.rows <= kRows ? FewRows<OnePack>(part).run() : FewRows<Policy>(part).run();
  }
}
