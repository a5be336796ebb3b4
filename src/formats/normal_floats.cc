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

namespace subbyte::formats {
namespace {

template <std::size_t kHalf>
constexpr std::array<double, 2 * kHalf> symmetric(const std::array<double, kHalf>& positive) {
  std::array<double, 2 * kHalf> table{};
  for (std::size_t i = 0; i < kHalf; ++i) {
    table[kHalf + i] = positive[i];
    table[kHalf - 1 - i] = -positive[i];
  }
  return table;
}

constexpr std::array<double, 16> kNf4 = {
    -0x1p0,         -0x1.647362p-1, -0x1.0cd66p-1,  -0x1.94654p-2,  //
    -0x1.23449ap-2, -0x1.7a6a7ep-3, -0x1.74f0e2p-4, 0,              //
    0x1.45f5fep-4,  0x1.4995c6p-3,  0x1.f809bap-3,  0x1.5a0674p-2,  //
    0x1.c3497p-2,   0x1.200f56p-1,  0x1.722766p-1,  0x1p0,
};

constexpr auto kNfl2 = symmetric<2>({0x1.1ba432p-2, 1});

constexpr auto kNfl3 = symmetric<4>({0x1.a40254p-4, 0x1.46400ap-2, 0x1.2813eap-1, 1});

constexpr auto kNfl4 = symmetric<8>({
    0x1.58d86cp-5,
    0x1.04cb5ap-3,
    0x1.ba420ep-3,
    0x1.3e5ddp-2,
    0x1.aad29p-2,
    0x1.159c6ep-1,
    0x1.6a4674p-1,
    1,
});

constexpr auto kNfl5 = symmetric<16>({
    0x1.2a00cp-6,
    0x1.bfec62p-5,
    0x1.76d238p-4,
    0x1.080a5ap-3,
    0x1.566d74p-3,
    0x1.a737b4p-3,
    0x1.fb309p-3,
    0x1.29a952p-2,
    0x1.587346p-2,
    0x1.8ad7e6p-2,
    0x1.c21f02p-2,
    0x1.002330p-1,
    0x1.2459e4p-1,
    0x1.5106b2p-1,
    0x1.8e63b8p-1,
    1,
});

}  // namespace

constinit const FormatInfo nf4 = codebook_info<kNf4>(Format::kNF4, "nf4", 4);
constinit const FormatInfo nfl2 = codebook_info<kNfl2>(Format::kNFL2, "nfl2", 2);
constinit const FormatInfo nfl3 = codebook_info<kNfl3>(Format::kNFL3, "nfl3", 3);
constinit const FormatInfo nfl4 = codebook_info<kNfl4>(Format::kNFL4, "nfl4", 4);
constinit const FormatInfo nfl5 = codebook_info<kNfl5>(Format::kNFL5, "nfl5", 5);

}  // namespace subbyte::formats
