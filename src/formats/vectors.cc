// Vector quantization: a byte is the index of one of 256 vectors of 4 or 2 numbers, and a weight
// takes 2 or 4 bits. The vectors are in the codebook of a matrix: 256 * 4 or 256 * 2 numbers,
// vector after vector. The code of one weight is the place of its number there,
//
//   code(n, k) = size * byte(n, k / size) + k % size
//
//   vq2    4 numbers a vector        vq4    2 numbers a vector

#include <limits>

#include "formats/format_objects.h"

namespace subbyte::formats {
namespace {

double no_value(uint32_t) {
  return std::numeric_limits<double>::quiet_NaN();
}

uint32_t no_code(double, Rounding) {
  return 0;
}

constexpr FormatInfo vectors(Format id, std::string_view name, int bits) {
  return {id, name, bits, Specials::kNone, 0, 0, no_value, no_code, 8 / bits};
}

}  // namespace

constinit const FormatInfo vq2 = vectors(Format::kVQ2, "vq2", 2);
constinit const FormatInfo vq4 = vectors(Format::kVQ4, "vq4", 4);

}  // namespace subbyte::formats
