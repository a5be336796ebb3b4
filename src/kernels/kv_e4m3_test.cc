#include "kernels/kv_e4m3.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/float16.h"
#include "formats/format.h"

namespace subbyte {
namespace {

uint8_t encode(float x) {
  return e4m3::encode(std::bit_cast<uint32_t>(x));
}

TEST(KvE4M3, rounds_as_the_format_does) {
  const FormatInfo& format = info(Format::kE4M3);
  const auto expect_rounded = [&](float x) {
    ASSERT_EQ(encode(x), format.encode(static_cast<double>(x), Rounding::kNearestEven)) << x;
  };
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 4093) {
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (!std::isnan(x)) expect_rounded(x);
  }
  // Every number, every tie, and the floats next to them.
  for (uint32_t code = 0; code < 0x7E; ++code) {
    const double low = format.decode(code);
    const double high = format.decode(code + 1);
    for (const double middle : {low, (low + high) / 2}) {
      const auto x = static_cast<float>(middle);
      for (const float near : {std::nextafter(x, -1.0F), x, std::nextafter(x, 1e9F)}) {
        expect_rounded(near);
        expect_rounded(-near);
      }
    }
  }
  for (const float x : {448.0F, 449.0F, 1e30F, INFINITY}) {
    EXPECT_EQ(encode(x), 0x7E);
    EXPECT_EQ(encode(-x), 0xFE);
  }
  EXPECT_EQ(encode(NAN), 0x7F);
  EXPECT_EQ(encode(-NAN), 0x7F);
}

TEST(KvE4M3, is_read_as_what_it_is) {
  const FormatInfo& format = info(Format::kE4M3);
  for (const uint32_t scale : {1, 100, 127, 246}) {
    const float factor = std::bit_cast<float>(e4m3::factor_bits(scale));
    for (uint32_t code = 0; code < 256; ++code) {
      if ((code & 0x7F) == 0x7F) continue;
      const float half = to_float(Float16{e4m3::f16_bits(static_cast<uint8_t>(code))});
      EXPECT_EQ(half * factor, std::ldexp(format.decode(code), static_cast<int>(scale) - 127));
    }
    const float inverse = std::bit_cast<float>(e4m3::inverse_bits(scale));
    EXPECT_EQ(inverse, std::ldexp(1.0F, 127 - static_cast<int>(scale)));
  }
  EXPECT_TRUE(std::isnan(std::bit_cast<float>(e4m3::factor_bits(e4m3::kNanScale))));
}

TEST(KvE4M3, scales_are_the_smallest_that_do) {
  const auto scale_of = [](float largest) {
    return e4m3::scale_of(std::bit_cast<uint32_t>(largest));
  };
  for (int exponent = -126; exponent < 119; ++exponent) {
    const float most = std::ldexp(448.0F, exponent);
    EXPECT_EQ(scale_of(most), static_cast<uint32_t>(exponent + 127)) << most;
    EXPECT_EQ(scale_of(std::nextafter(most, INFINITY)), static_cast<uint32_t>(exponent + 128));
  }
  EXPECT_EQ(scale_of(0), e4m3::kLeastScale);
  EXPECT_EQ(scale_of(1e-45F), e4m3::kLeastScale);
  EXPECT_EQ(scale_of(std::numeric_limits<float>::max()), e4m3::kMaxScale);
  EXPECT_EQ(scale_of(INFINITY), e4m3::kNanScale);
  EXPECT_EQ(scale_of(NAN), e4m3::kNanScale);
}

}  // namespace
}  // namespace subbyte
