#include "codebook/hadamard.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "codebook/kbit_codes.h"

namespace subbyte::codebook {
namespace {

constexpr int64_t kLeast = 32;
constexpr int64_t kMax = 8192;

/// Butterflies from neighbours outwards, as bitsandbytes adds.
void transform(std::vector<float>& x) {
  for (std::size_t step = 1; step < x.size(); step *= 2) {
    for (std::size_t first = 0; first < x.size(); first += 2 * step) {
      for (std::size_t i = first; i < first + step; ++i) {
        const float a = x[i];
        const float b = x[i + step];
        x[i] = a + b;
        x[i + step] = a - b;
      }
    }
  }
}

}  // namespace

Status check_hadamard(int64_t count, Format dtype, int64_t dim, int64_t sign_words) {
  SUBBYTE_CHECK(number_bytes("data", dtype, true));
  if (dim < kLeast || dim > kMax || !std::has_single_bit(static_cast<uint64_t>(dim))) {
    return Error{
        "hadamard.dim",
        "hadamard: expected runs of a power of two from 32 to 8192, found " + std::to_string(dim)};
  }
  if (sign_words != 0 && sign_words * 32 < dim) {
    return Error{"hadamard.signs", "hadamard: expected " + std::to_string(dim / 32) +
                                       " words of signs, found " + std::to_string(sign_words)};
  }
  if (count % dim == 0) return {};
  return Error{"kbit.buffer", "hadamard: data: expected runs of " + std::to_string(dim) +
                                  " numbers, found " + std::to_string(count)};
}

Status hadamard_rotate(std::span<std::byte> data, Format dtype, int64_t dim,
                       std::span<const uint32_t> signs) {
  SUBBYTE_CHECK(check_hadamard(std::ssize(data) / 2, dtype, dim, std::ssize(signs)));
  const float factor = 1 / std::sqrt(static_cast<float>(dim));
  std::vector<float> x(static_cast<std::size_t>(dim));
  for (int64_t first = 0; first < std::ssize(data) / 2; first += dim) {
    for (int64_t i = 0; i < dim; ++i) {
      const bool negative = !signs.empty() && (signs[i / 32] >> (i % 32) & 1) != 0;
      const float number = load_number(data.data(), first + i, dtype);
      x[i] = negative ? -number : number;
    }
    transform(x);
    for (int64_t i = 0; i < dim; ++i) {
      const auto bits =
          static_cast<uint16_t>(info(dtype).encode(x[i] * factor, Rounding::kNearestEven));
      std::memcpy(data.data() + 2 * (first + i), &bits, 2);
    }
  }
  return {};
}

}  // namespace subbyte::codebook
