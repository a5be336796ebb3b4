// Codebooks that give each code an equal share of a normal distribution; a block of weights is
// divided by its largest magnitude first.
//
//   nf4        bitsandbytes' NF4. 8 positive and 7 negative quantiles around an exact zero (code
//              7). The values are those its files and kernels hold; the formula reproduces them
//              to 2e-7 only.
//   nfl2..5    bitsandbytes' kbit formats: v_i = ppf((i + 1/2) / 2^k) / ppf(1 - 1/2 / 2^k), the
//              median of each of 2^k bins of equal probability. Symmetric, and without a zero: a
//              weight of 0 decodes to +-0.042 of the block's largest for k = 4.
//
// The positive halves below are the formula to 60 digits (mpmath), rounded to binary32. A program
// that divides two binary32 quantiles may differ from them in the last place.
#include "formats/codebook.h"
#include "formats/format_objects.h"
#include "formats/normal_float_tables.h"

namespace subbyte::formats {
namespace {

template <std::size_t kHalf>
constexpr std::array<double, 2 * kHalf> symmetric(const double (&positive)[kHalf]) {
  std::array<double, 2 * kHalf> table{};
  for (std::size_t i = 0; i < kHalf; ++i) {
    table[kHalf + i] = positive[i];
    table[kHalf - 1 - i] = -positive[i];
  }
  return table;
}

constexpr auto kNf4 = std::to_array(kNf4Table);
constexpr auto kNfl2 = symmetric(kNfl2Half);
constexpr auto kNfl3 = symmetric(kNfl3Half);
constexpr auto kNfl4 = symmetric(kNfl4Half);
constexpr auto kNfl5 = symmetric(kNfl5Half);

}  // namespace

constinit const FormatInfo nf4 = codebook_info<kNf4>(Format::kNF4, "nf4", 4);
constinit const FormatInfo nfl2 = codebook_info<kNfl2>(Format::kNFL2, "nfl2", 2);
constinit const FormatInfo nfl3 = codebook_info<kNfl3>(Format::kNFL3, "nfl3", 3);
constinit const FormatInfo nfl4 = codebook_info<kNfl4>(Format::kNFL4, "nfl4", 4);
constinit const FormatInfo nfl5 = codebook_info<kNfl5>(Format::kNFL5, "nfl5", 5);

}  // namespace subbyte::formats
