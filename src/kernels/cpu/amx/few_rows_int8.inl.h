// few_rows.inl.h with bytes: weights that are integers with groups of whole blocks, or MXFP4, and
// activations as three or two signed bytes (int8_limbs.inl.h). Included inside the namespace of an
// instruction set with tiles, after few_rows.inl.h, int8_limbs.inl.h and int8_codes.inl.h.
//
// Each of the three limbs of an activation is a row of B (its tile is transposed), so that a tile
// has 5 rows of activations, and products are exact integers:
//
//             d0 of 5 rows   d1   d2   0
//             +-------------+----+----+-+     A: codes as they are, 16 outputs by 64 inputs
//    16 lanes |      B      |    |    | |     B: limbs, lanes of four inputs by 15 rows
//             +-------------+----+----+-+
//   16   +--+ +-------------+----+----+-+     scales and zero points come with the sums C:
//   out- |A | |      C      |    |    | |     total += scale * (x scale * 2^(8 i) * sum
//   puts +--+ +-------------+----+----+-+                      - zero * sum of the inputs)
//
// Eight rows take two tiles, d1 and d2 in one and d0 in the other, whose sums join those of d1
// before they are scaled. With two limbs they take one. Two packs of a tile go through together.
//
// Accuracy, u = 2^-24, b blocks: products and what they are summed up to in a block are exact. With
// q what an activation is rounded by, half a step, 2^-22 (two limbs: 2^-14) of the largest of its
// block, or 2^-127, and as the limbs of x are together at most 3.02 |x|:
//   |y - exact| <= sum |w| q + 3.02 n u / (1 - n u) * sum |v| (|x| + q)
// |v| = |scale| (|element - centre| + |zero - centre|), as sums are rounded before the zero point
// comes off; n = p b + 5, with two tiles, which d0 and its sum join, p b + 7; p passes, 1 for
// integers, 4 or less for MXFP4 (int8_codes.inl.h).
// An infinite scale that meets a limb that is zero is NaN; an activation that is not finite makes
// its row NaN, and one of 2^113 or more may.

// A tile of activations in a block, in bytes. Two steps: lane q of step h has the inputs
// 8 q + 2 b + h of the block. Then, for each row of B, x scale * 2^(8 i), and that times the sum of
// the limbs; with two tiles those of both are in the first.
constexpr int64_t kInt8Factors = 2 * kTmmBytes;
constexpr int64_t kInt8Sums = kInt8Factors + 64;
constexpr int64_t kInt8BlockBytes = kInt8Sums + 64;

/// Activations as kNumLimbs limbs in kNumTiles tiles.
template <int kNumLimbs, int kNumTiles>
struct Int8Pack {
  static constexpr int kLimbs = kNumLimbs;
  static constexpr int kTiles = kNumTiles;
  static constexpr int64_t kTileLimbs = (kLimbs + kTiles - 1) / kTiles;  // in a tile
  static constexpr int64_t kRows = kTileRows / kTileLimbs;
  static constexpr int64_t kBytes = kTiles * kInt8BlockBytes;  // of a block
  /// Tile and first row of B of limb i.
  static constexpr int tile(int i) { return kTiles == 2 && i == 0 ? 1 : 0; }
  static constexpr int64_t b_row(int i) { return (kTiles == 2 && i > 0 ? i - 1 : i) * kRows; }
};

template <class Pack>
inline void pack_int8_tiles(uint8_t* packed, const float* x, int64_t rows, const uint32_t* gather,
                            int64_t k) {
  for (int64_t begin = 0; begin < k; begin += kBlockInputs) {
    alignas(64) uint8_t bytes[Pack::kTiles][2][kTileRows][64] = {};  // [tile][step][row][lane]
    alignas(64) float factors[Pack::kTiles][kTileRows] = {};
    alignas(64) float sums[Pack::kTiles][kTileRows] = {};
    for (int64_t m = 0; m < rows; ++m) {
      alignas(64) float inputs[kBlockInputs];
      Float v[8];
      transpose_k8(block_inputs(x + m * k, gather, begin, k, inputs), v);
      const auto limbs = limbs_of_block<Pack::kLimbs>(v);
      float factor = limbs.scale;
      for (int i = 0; i < Pack::kLimbs; ++i) {
        const int tile = Pack::tile(i);
        const int64_t row = Pack::b_row(i) + m;
        for (int h = 0; h < 2; ++h) store_int(bytes[tile][h][row], limbs.words[i][h]);
        factors[tile][row] = factor;
        sums[0][row] += factor * static_cast<float>(sum_lanes(limbs.sums[i]));
        factor *= 256;
      }
    }
    for (int tile = 0; tile < Pack::kTiles; ++tile) {
      for (int h = 0; h < 2; ++h) {
        transpose_lanes(reinterpret_cast<const float*>(bytes[tile][h]),
                        reinterpret_cast<float*>(packed + h * kTmmBytes));
      }
      store(reinterpret_cast<float*>(packed + kInt8Factors), load(factors[tile]));
      store(reinterpret_cast<float*>(packed + kInt8Sums), load(sums[tile]));
      packed += kInt8BlockBytes;
    }
  }
}
template <class Pack>
constexpr PackedLayout kPackedInt8 = {.name = Pack::kTiles == 2   ? "int8x3 in two tiles"
                                              : Pack::kLimbs == 3 ? "int8x3 tiles"
                                                                  : "int8x2 tiles",
                                      .rows_per_pack = Pack::kRows,
                                      .padding = kPackPadding,
                                      .row_grain = kTileRowGrain,
                                      .bytes = &packed_bytes<Pack::kBytes>,
                                      .pack = &pack_int8_tiles<Pack>};

/// `Codes` is Int8Codes or Mxfp4Codes. kGroups: scales belong to groups of blocks; else to the row,
/// and multiply its results.
template <class Codes, class Pack, int kNumPacks, bool kGroups>
class Int8Policy {
 public:
  static constexpr int64_t kPackRows = Pack::kRows;
  static constexpr int kPacks = kNumPacks;
  static constexpr int kParts = Pack::kTileLimbs;
  static constexpr int kPasses = Codes::kPasses;
  static constexpr int kTiles = kPacks * Pack::kTiles;  // accumulators
  static constexpr int kSumTiles = kTiles;
  static constexpr int64_t kBufferBytes = 2 * kTmmBytes;
  static_assert(kTiles <= 2);

  struct Block {
    explicit Block(const MatmulTask& task)
        : x(task.x.data),
          scale_blocks(kGroups ? Codes::scale_blocks(task.weights) : INT64_MAX),
          left(scale_blocks) {}
    void next(const MatmulTask&) {
      ++b;
      x += Pack::kBytes;
      if (--left > 0) return;
      ++group;
      left = scale_blocks;
    }

    int64_t b = 0;
    const uint8_t* x;
    int64_t group = 0;
    int64_t scale_blocks;
    int64_t left;
  };

  Int8Policy(const MatmulTask& task, float* staged)
      : weights_(task.weights),
        x_stride_(task.x.stride),
        staged_(staged),
        stride_(staged_floats(Codes::per_row(task.weights))),
        zeros_(staged_half(Codes::per_row(task.weights))),
        whole_blocks_(loadable_blocks<typename Codes::Codes>(task.weights)) {}

  bool stage(int64_t n, int64_t i) { return Codes::stage(weights_, n + i, staged_ + i * stride_); }
  bool begin_rest(const BlockRows& rows) {
    return left_.begin(weights_, rows, staged_ + rows.begin * stride_, stride_);
  }
  bool stage_rest(const BlockRows& rows, int pass) { return left_.stage(weights_, rows, pass); }

  void load_activations(const Block& block) {
    load_tile_t1<4>(block.x);
    load_tile_t1<5, kTmmBytes>(block.x);
    if constexpr (kTiles == 2) {
      const uint8_t* second = block.x + (Pack::kTiles == 2 ? kInt8BlockBytes : x_stride_);
      load_tile_t1<6>(second);
      load_tile_t1<7, kTmmBytes>(second);
    }
  }
  [[gnu::always_inline]] void decode(const BlockRows& rows, const Block& block, uint8_t* buffer) {
    const float* shifts = staged_ + rows.begin * stride_ + zeros_ + block.b;
    const int64_t stride = stride_;
    for_rows_of_block<typename Codes::Codes>(
        weights_, rows, whole_blocks_,
        true, [=](int64_t i, const uint8_t* codes) __attribute__((always_inline)) {
          Codes::decode(codes, shifts + i * stride, buffer + 64 * i, buffer + kTmmBytes + 64 * i);
        });
  }

  [[gnu::always_inline]] static void multiply(const uint8_t* buffer, float* before, float*) {
    store_tile<0>(before);
    zero_tile<0>();
    load_tile<2>(buffer);
    add_byte_products<0, 2, 4, Codes::kSigned>();
    load_tile<3, kTmmBytes>(buffer);
    add_byte_products<0, 3, 5, Codes::kSigned>();
    if constexpr (kTiles == 2) {
      store_tile<1, kTmmBytes>(before);
      zero_tile<1>();
      add_byte_products<1, 2, 6, Codes::kSigned>();
      add_byte_products<1, 3, 7, Codes::kSigned>();
    }
  }
  static void store_accumulators(float* sums) {
    store_tile<0>(sums);
    if constexpr (kTiles == 2) store_tile<1, kTmmBytes>(sums);
  }

  void add(const Block& block, int64_t i, const float* sums, float* totals) {
    const int64_t stride = stride_;
    const int64_t zeros = zeros_;
    for (int pack = 0; pack < kPacks; ++pack) {
      const auto* x = reinterpret_cast<const float*>(block.x + pack * x_stride_);
      const Float factors = load(x + kInt8Factors / 4);
      const Float input_sums = load(x + kInt8Sums / 4);
      const Float center = mul(input_sums, broadcast(-Codes::kCenter));
      const Float low_factors =
          Pack::kTiles == 2 ? load(x + (kInt8BlockBytes + kInt8Factors) / 4) : zero();
      const auto* ints = reinterpret_cast<const uint8_t*>(sums) + pack * kTmmBytes;
      float* total = totals + pack * kPanelOutputs * kTileRows;
      const float* staged = staged_ + i * stride + block.group;
#pragma GCC unroll 8
      for (int64_t r = 0; r < kTileRows; ++r) {
        const Float sum = int_to_float(load_int(ints + 64 * r));
        Float part = Codes::kCenter != 0 ? fma(sum, factors, center) : mul(sum, factors);
        if constexpr (Pack::kTiles == 2) {
          part = fma(int_to_float(load_int(ints + kTmmBytes + 64 * r)), low_factors, part);
        }
        if constexpr (Codes::kHasZeros) part = fnma(broadcast(staged[zeros]), input_sums, part);
        const Float before = load(total + kTileRows * r);
        store(total + kTileRows * r,
              kGroups ? fma(broadcast(*staged), part, before) : plus(part, before));
        staged += stride;
      }
    }
  }
  void row_factors(int64_t i, int64_t count, float* factors) const {
    for (int64_t r = 0; r < count; ++r) {
      const float scale = kGroups ? 1.0f : staged_[(i + r) * stride_];
      factors[r] = scale * weights_.tensor_scale;
    }
  }

 private:
  const Weights& weights_;
  int64_t x_stride_;  // of packs
  float* staged_;     // scales of the panel; zero points, or what Codes says, zeros_ after them
  int64_t stride_;
  int64_t zeros_;
  int64_t whole_blocks_;
  GroupsLeft left_;
};

/// Groups cover whole blocks, or the row.
template <class Codes, class Pack>
void few_rows_int8(const MatmulTask& task) {
  constexpr int kMax = 2 / Pack::kTiles;
  if constexpr (Codes::kHasRows) {
    if (Codes::scale_blocks(task.weights) == INT64_MAX) {
      few_rows<Int8Policy<Codes, Pack, kMax, false>, Int8Policy<Codes, Pack, 1, false>>(task);
      return;
    }
  }
  few_rows<Int8Policy<Codes, Pack, kMax, true>, Int8Policy<Codes, Pack, 1, true>>(task);
}
