// How MXFP4 and NVFP4 become the tiles of a matrix unit. Included inside the namespace of an
// instruction set with tiles, after tile_decoders.inl.h, which draws the panels.
//
//   mxfp4    groups of 32: scales are added to the exponents of what codes stand for. Exact
//   nvfp4    groups of 16, in the order of kFollowingTiles: steps of 32 inputs that follow each
//            other, two groups. Scales are added to the exponents of a codebook, as 1 and as 1.5
//            times the scale. Exact

/// The words of subtract_exponents() for the codes of E2M1.
constexpr PairTable make_mxfp4_table() {
  PairTable table = kPairTable<Format::kE2M1>;
  for (uint16_t& word : table.words) {
    word = (word & 0x7FFF) == 0 ? 0 : static_cast<uint16_t>(word + (125 << 7));
  }
  return table;
}
constexpr PairTable kMxfp4Table = make_mxfp4_table();

/// A block of MXFP4 with its groups of 32. Returns whether its scales fit; else it is to be written
/// again.
[[gnu::always_inline]] inline bool store_mxfp4_steps(uint8_t* steps, const uint8_t* block,
                                                     const uint8_t* scales, Pairs table) {
  using E = PairElement<Format::kE2M1>;
  const Pairs missing = missing_exponents(scales);
  const Pairs e = exponent_steps(missing);
  const auto codes = E::load(block);
  store_pairs(steps, subtract_exponents(E::template value_of<0>(codes, table), e));
  store_pairs(steps + kStepBytes, subtract_exponents(E::template value_of<1>(codes, table), e));
  store_pairs(steps + 2 * kStepBytes, subtract_exponents(E::template value_of<2>(codes, table), e));
  store_pairs(steps + 3 * kStepBytes, subtract_exponents(E::template value_of<3>(codes, table), e));
  return exponents_fit(missing);
}

/// Blocks with a scale at the edges of the range, or at the end of the row, go the long way.
template <class Element, class Scaling>
void decode_mxfp4(const Weights& weights, const StripRows& rows, const BlockRange& blocks,
                  const TileOutput& out) {
  const Pairs table = table_of(kMxfp4Table);
  const int64_t groups = weights.groups;
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const uint8_t* scales = weights.scales + rows.n * groups + 4 * b;
    bool fit = b < blocks.whole_blocks;
    if (fit) {
      decode_block_of_rows<Element>(
          weights, rows, blocks, b, out, [&](int64_t i, const uint8_t* codes, uint8_t* steps) {
            fit &= store_mxfp4_steps(steps, codes, scales + i * groups, table);
          });
    }
    if (!fit) {
      decode_weights_of_block<Element, Scaling, WeightTerms::kExact>(weights, rows, blocks, b, out);
    }
  }
}

/// The codes of E2M1 for subtract_scale_steps(): word 2 * code + h is that of group h of a step.
constexpr PairTable make_nvfp4_table() {
  PairTable table{};
  for (int i = 0; i < 32; ++i) {
    const double value = Codebook<Format::kE2M1>::value(i / 2);
    const double size = value < 0 ? -value : value;
    const bool power = size == 0.5 || size == 1 || size == 2 || size == 4;
    // The largest scale is below 2^9; 1.5 times that, below 2^10.
    const auto top = static_cast<float>(power ? value * 0x1p9 : value / 1.5 * 0x1p10);
    table.words[i] = size == 0 ? 0 : static_cast<uint16_t>(__builtin_bit_cast(uint32_t, top) >> 16);
  }
  return table;
}
constexpr PairTable kNvfp4Table = make_nvfp4_table();

/// What the scales of a block lack, for the rows of a strip; two rows go together.
struct Nvfp4Steps {
  alignas(64) uint32_t words[kStripRows + 1][8];  // [row][group]
};

/// The scales of block b of one row, one for each 16 inputs; behind the last are zeros.
inline uint64_t nvfp4_scales(const Weights& weights, int64_t row, int64_t b) {
  const uint8_t* scales = weights.scales + row * weights.groups;
  uint64_t codes = 0;
  if (weights.group_size == 16 && 8 * b + 8 <= weights.groups) {
    __builtin_memcpy(&codes, scales + 8 * b, 8);
    return codes;
  }
  for (int64_t i = 0; i < 8 && b * kBlockInputs + 16 * i < weights.cols; ++i) {
    const uint64_t code = scales[(b * kBlockInputs + 16 * i) / weights.group_size];
    codes |= code << (8 * i);
  }
  return codes;
}
/// Returns whether all scales are numbers without a sign.
inline bool stage_nvfp4(const Weights& weights, const StripRows& rows, int64_t b,
                        Nvfp4Steps& steps) {
  bool fit = true;
  if (8 * b % 64 == 0) {  // a line of the next strip's, which the hardware does not foresee
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      prefetch<64>(weights.scales, (rows.n + kStripRows + i) * weights.groups + 8 * b);
    }
  }
  for (int64_t i = rows.begin; i < rows.end; i += 2) {
    const uint64_t first = nvfp4_scales(weights, rows.n + i, b);
    const uint64_t second = i + 1 < rows.end ? nvfp4_scales(weights, rows.n + i + 1, b) : 0;
    const auto codes = join_words(first, second);
    fit &= scales_fit(codes);
    store_int(reinterpret_cast<uint8_t*>(steps.words[i]), scale_steps(codes));
  }
  return fit;
}

[[gnu::always_inline]] inline void store_nvfp4_steps(uint8_t* steps, const uint8_t* codes,
                                                     const uint32_t* missing, Pairs table) {
#pragma GCC unroll 4
  for (int64_t step = 0; step < 4; ++step) {
    store_pairs(steps + step * kStepBytes,
                look_up(paired_code_words(codes + 16 * step),
                        subtract_scale_steps(table, missing + 2 * step)));
  }
}

/// Any groups; those of a multiple of 16 with ordinary scales fast.
template <class Element, class Scaling>
void decode_nvfp4(const Weights& weights, const StripRows& rows, const BlockRange& blocks,
                  const TileOutput& out) {
  const Pairs table = table_of(kNvfp4Table);
  const bool sixteens = weights.group_size % 16 == 0 || weights.group_size >= weights.cols;
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    Nvfp4Steps missing;
    if (!sixteens || !stage_nvfp4(weights, rows, b, missing)) {
      decode_following_weights<Element, Scaling>(weights, rows, blocks, b, out);
    } else if (b < blocks.whole_blocks) {
      decode_block_of_rows<Element>(weights, rows, blocks, b, out,
                                    [&](int64_t i, const uint8_t* codes, uint8_t* steps) {
                                      store_nvfp4_steps(steps, codes, missing.words[i], table);
                                    });
    } else {
      for (int64_t i = rows.begin; i < rows.end; ++i) {
        alignas(64) uint8_t padded[load_bytes<Element>()] = {};
        copy_block<Element>(weights, weights.codes + (rows.n + i) * weights.row_bytes, b, padded);
        store_nvfp4_steps(panel_steps(out, blocks, i, b), padded, missing.words[i], table);
      }
    }
  }
}
