// Activations as signed digits, three or two. Included inside the namespace of an instruction set
// with dot products of bytes, after products.inl.h.
//
//   x = step * (d2 * 2^16 + d1 * 2^8 + d0)      step: a power of two, for each row and block of 128
//
// What rounding to a step adds is 2^-22 (two digits: 2^-14) of the largest of the block, or 2^-127.

/// One block of a row, lowest digit first.
template <int kTerms>
struct BlockDigits {
  Int words[kTerms][2];  // [h]: byte b of lane i is a digit of input 8 i + 2 b + h
  Int sums[kTerms];      // of each octet
  float step;            // NaN if an input is not finite
};

/// v[j] holds element j of each octet.
template <int kTerms>
inline BlockDigits<kTerms> digits_of_block(const Float* v) {
  const auto [largest, poison] = largest_of_octets(v);
  // Two bits less than the digits have: the highest one stays below 2^7.
  const DigitStep step = digit_step<8 * kTerms - 2>(largest);
  BlockDigits<kTerms> block;
  for (int i = 0; i < kTerms; ++i) {
    block.words[i][0] = block.words[i][1] = block.sums[i] = zero_int();
  }
  for (int j = 7; j >= 0; --j) {
    Int digits[kTerms];
    split_digits(round_to_int(mul(v[j], broadcast(step.inverse))), digits);
    for (int i = 0; i < kTerms; ++i) {
      Int& word = block.words[i][j % 2];
      block.sums[i] = add_int(block.sums[i], digits[i]);
      word = or_bits(shift_left<8>(word), and_bits(digits[i], 0xFFu));
    }
  }
  block.step = step.step + sum(poison);
  return block;
}
