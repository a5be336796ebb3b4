// Activations as limbs: three or two signed bytes each. Included inside the namespace of an
// instruction set with dot products of bytes, after products.inl.h.
//
//   x = scale * (d2 * 2^16 + d1 * 2^8 + d0)   scale: a power of two, for each row and block of 128
//
// What rounding adds is 2^-22 (two limbs: 2^-14) of the largest of the block, or 2^-127.

/// One block of a row, lowest limb first.
template <int kLimbs>
struct BlockLimbs {
  Int words[kLimbs][2];  // [h]: byte b of lane i is a limb of input 8 i + 2 b + h
  Int sums[kLimbs];      // of each run of 8
  float scale;           // NaN if an input is not finite
};

/// v[j] holds element j of each run of 8.
template <int kLimbs>
inline BlockLimbs<kLimbs> limbs_of_block(const Float* v) {
  const auto [largest, nan_if_nonfinite] = largest_of_k8(v);
  // Two bits fewer than the limbs have: the highest one stays below 2^7.
  const LimbScale scale = limb_scale<8 * kLimbs - 2>(largest);
  BlockLimbs<kLimbs> block;
  for (int i = 0; i < kLimbs; ++i) {
    block.words[i][0] = block.words[i][1] = block.sums[i] = zero_int();
  }
  for (int j = 7; j >= 0; --j) {
    Int limbs[kLimbs];
    split_limbs(round_to_int(mul(v[j], broadcast(scale.inverse))), limbs);
    for (int i = 0; i < kLimbs; ++i) {
      Int& word = block.words[i][j % 2];
      block.sums[i] = add_int(block.sums[i], limbs[i]);
      word = or_bits(shift_left<8>(word), and_bits(limbs[i], 0xFFu));
    }
  }
  block.scale = scale.scale + sum(nan_if_nonfinite);
  return block;
}
