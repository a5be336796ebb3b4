#include "torch_operators/checkpoint_words.h"

namespace subbyte::torch_operators {

uint32_t gptq_code(const uint32_t* words, int64_t k, int64_t n, int64_t rows, int bits) {
  const int64_t in_word = 32 / bits;
  return words[k / in_word * rows + n] >> (k % in_word * bits) & ((1u << bits) - 1);
}

uint32_t awq_code(const uint32_t* words, int64_t k, int64_t n, int64_t rows, int bits) {
  const int64_t in_word = 32 / bits;
  const int64_t i = n % in_word;
  const int64_t place = i / 2 + i % 2 * in_word / 2;
  return words[k * (rows / in_word) + n / in_word] >> (place * bits) & ((1u << bits) - 1);
}

std::vector<std::byte> canonical(const uint32_t* words, int64_t rows, int64_t cols, int bits,
                                 CodeOf code_of, std::span<const int32_t> order) {
  std::vector<std::byte> codes(static_cast<std::size_t>(rows * cols * bits / 8));
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t k = 0; k < cols; ++k) {
      const int64_t row = order.empty() ? k : order[static_cast<std::size_t>(k)];
      const int64_t at = (n * cols + k) * bits;
      codes[static_cast<std::size_t>(at / 8)] |=
          std::byte(code_of(words, row, n, rows, bits) << at % 8);
    }
  }
  return codes;
}

}  // namespace subbyte::torch_operators
