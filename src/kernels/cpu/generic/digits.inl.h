// Activations as three signed digits. Included inside the namespace of an instruction set with dot
// products of bytes, after products.inl.h.
//
//   x = step * (d2 * 2^16 + d1 * 2^8 + d0)      step: a power of two, for each row and block of 128
//
// What rounding to a step adds is 2^-22 of the largest of the block, or 2^-127.

constexpr int64_t kDigitTerms = 3;

/// One block of a row, lowest digit first.
struct BlockDigits {
  Int words[kDigitTerms][2];  // [h]: byte b of lane i is a digit of input 8 i + 2 b + h
  Int sums[kDigitTerms];      // of each octet
  float step;                 // NaN if an input is not finite
};

/// v[j] holds element j of each octet.
inline BlockDigits digits_of_block(const Float* v) {
  const auto [largest, poison] = largest_of_octets(v);
  const DigitStep step = digit_step(largest);
  BlockDigits block;
  for (int i = 0; i < kDigitTerms; ++i) {
    block.words[i][0] = block.words[i][1] = block.sums[i] = zero_int();
  }
  for (int j = 7; j >= 0; --j) {
    Int digits[kDigitTerms];
    split_digits(round_to_int(mul(v[j], broadcast(step.inverse))), digits);
    for (int i = 0; i < kDigitTerms; ++i) {
      Int& word = block.words[i][j % 2];
      block.sums[i] = add_int(block.sums[i], digits[i]);
      word = or_bits(shift_left<8>(word), and_bits(digits[i], 0xFFu));
    }
  }
  block.step = step.step + sum(poison);
  return block;
}
